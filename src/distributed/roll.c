/* Who has not come: a rank whose time is up asks the others which call they wait in. Those that wait answer;
 * a rank that computes, was stopped or has ended does not. */
#include <stdio.h>
#include <string.h>

#include "distributed.h"

/* Seconds for the answers. */
#define PATIENCE 1.0

enum { QUESTION = 1, ANSWER = 2 }; /* tags */

/* Numbers that identify a call of a group. */
typedef struct call_id {
  int64_t group, call;
} call_id;

/* What is exchanged with one rank. */
typedef struct exchange {
  call_id sent[2], answer; /* the question to it, the answer to it; its answer */
  transport_request requests[2];
} exchange;

struct dist_roll {
  transport_comm comm;  /* all ranks */
  call_id waiting;      /* the call in which this rank waits; zeros: none */
  exchange exchanges[]; /* [size] */
};

heed_status dist_open_roll(dist *d, const dist_group *world) {
  const size_t bytes = sizeof(struct dist_roll) + (size_t)world->comm.size * sizeof(exchange);
  heed_tensor *memory = NULL; /* until the context ends: messages may be in flight */
  const heed_status status =
      heed_full(d->context, HEED_INT8, 1, (int64_t[]){(int64_t)bytes}, heed_integer(0), &memory);
  if (status) return dist_failed(d, status);
  struct dist_roll *roll = heed_tensor_data(memory);
  if (!transport_split(&d->transport, &world->comm, 0, world->comm.rank, &roll->comm))
    return dist_fail(d, HEED_ARGUMENT, "%s: %s", dist_names[DIST_INIT], d->transport.message);
  d->roll = roll;
  return HEED_OK;
}

void dist_set_waiting(dist *d, const dist_group *g) {
  if (d->roll) d->roll->waiting = g ? (call_id){g->number, g->calls} : (call_id){0, 0};
}

/* Sends the id of a call to a rank, unless the last one to it is still in flight. */
static void send_id(dist *d, int rank, int tag, call_id what) {
  struct dist_roll *roll = d->roll;
  exchange *with = &roll->exchanges[rank];
  transport_request *r = &with->requests[tag == ANSWER];
  bool done = false;
  if (!transport_test(&d->transport, r, &done) || !done) return;
  with->sent[tag == ANSWER] = what;
  if (!transport_send(&d->transport, &roll->comm, &with->sent[tag == ANSWER], sizeof what, rank, tag, r))
    return;
}

void dist_answer(dist *d) {
  struct dist_roll *roll = d->roll;
  call_id asked;
  int from = -1;
  while (roll && transport_take(&d->transport, &roll->comm, &asked, sizeof asked, QUESTION, &from) &&
         from >= 0)
    send_id(d, from, ANSWER, roll->waiting);
}

/* Takes the answers that have come. */
static void take_answers(dist *d) {
  struct dist_roll *roll = d->roll;
  call_id answer;
  int from = -1;
  while (transport_take(&d->transport, &roll->comm, &answer, sizeof answer, ANSWER, &from) && from >= 0)
    roll->exchanges[from].answer = answer;
}

static bool is_here(const dist_group *g, int rank) {
  const call_id *answer = &g->d->roll->exchanges[transport_world_rank(&g->comm, rank)].answer;
  return rank == g->comm.rank || (answer->group == g->number && answer->call == g->calls);
}

static int count_missing(const dist_group *g) {
  int missing = 0;
  for (int i = 0; i < g->comm.size; i++) missing += !is_here(g, i);
  return missing;
}

const char *dist_call_roll(dist_group *g, char *text, size_t size) {
  dist *d = g->d;
  const double end = heed_clock() + PATIENCE;
  int missing = d->roll ? g->comm.size : 0;
  for (int i = 0; d->roll && i < g->comm.size; i++) {
    const int rank = transport_world_rank(&g->comm, i);
    d->roll->exchanges[rank].answer = (call_id){0, 0};
    if (i != g->comm.rank) send_id(d, rank, QUESTION, (call_id){g->number, g->calls});
  }
  while (missing > 0 && heed_clock() < end) {
    dist_answer(d);
    take_answers(d);
    missing = count_missing(g);
    transport_yield();
  }
  if (missing == 0) {
    snprintf(text, size, "not all ranks have");
    return text;
  }
  size_t at = (size_t)snprintf(text, size, missing == 1 ? "rank" : "ranks");
  enum { MOST = 6 }; /* that are named */
  for (int i = 0, named = 0; i < g->comm.size && named < missing && at < size; i++) {
    if (is_here(g, i)) continue;
    named++;
    const char *before = named == 1 ? " " : named == missing ? " and " : ", ";
    if (named == MOST && missing > MOST) {
      at += (size_t)snprintf(text + at, size - at, " and %d others", missing - MOST + 1);
      break;
    }
    at += (size_t)snprintf(text + at, size - at, "%s%d", before, transport_world_rank(&g->comm, i) + 1);
  }
  if (at < size) snprintf(text + at, size - at, missing == 1 ? " has not" : " have not");
  return text;
}
