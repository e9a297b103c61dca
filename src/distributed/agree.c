/* Waiting for other ranks, and agreeing with them before each call. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "distributed.h"

const char *const dist_names[DIST_KINDS] = {
#define X(name, text) text,
    DIST_CALLS(X) DIST_OTHERS(X)
#undef X
};
const char *const dist_op_names[] = {
#define X(name, text) text,
    DIST_OPS(X)
#undef X
        NULL};

heed_status dist_fail(dist *d, heed_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(d->message, sizeof d->message, format, arguments);
  va_end(arguments);
  return status;
}

heed_status dist_failed(dist *d, heed_status status) {
  return dist_fail(d, status, "%s", heed_message(d->context));
}

heed_status dist_check_group(dist_group *g, const char *call) {
  dist *d = g->d;
  if (!d->open)
    return dist_fail(d, HEED_ARGUMENT, "%s: the process group is not there; call init_process_group first",
                     call);
  if (!transport_is_here(&d->transport))
    return dist_fail(d, HEED_ARGUMENT,
                     "%s: this process is a fork of rank %d; only the process that called "
                     "init_process_group can communicate",
                     call, transport_world_rank(&g->comm, g->comm.rank) + 1);
  if (g->comm.size == 0) return dist_fail(d, HEED_ARGUMENT, "%s: this rank is not in the group", call);
  if (g->broken[0])
    return dist_fail(d, HEED_ARGUMENT,
                     "%s: the group cannot be used after a call that was not completed (%s)", call,
                     g->broken);
  return HEED_OK;
}

/* ---- Waiting ---- */

const char *dist_seconds_text(char *text, size_t size, double seconds) {
  const long tenths = (long)(seconds * 10 + 0.5);
  snprintf(text, size, "%ld.%ld", tenths / 10, tenths % 10);
  return text;
}

static heed_status break_group(dist_group *g, heed_status status) {
  snprintf(g->broken, sizeof g->broken, "%.255s", g->d->message);
  return status;
}

static heed_status time_is_up(dist_group *g, dist_call call) {
  char seconds[32], who[160];
  dist_seconds_text(seconds, sizeof seconds, g->d->timeout);
  return dist_fail(g->d, HEED_LIMIT, "%s (number %lld): after %s seconds %s come to it", dist_names[call],
                   (long long)g->calls, seconds, dist_call_roll(g, who, sizeof who));
}

/* *begin = when the waiting began, if not all had ended before. */
static heed_status wait_for(dist_group *g, dist_call call, transport_request *r, int count, double *begin) {
  dist *d = g->d;
  double look = 0;
  for (int i = 0; i < count;) {
    bool done;
    if (!transport_test(&d->transport, &r[i], &done))
      return break_group(g, dist_fail(d, HEED_ARGUMENT, "%s: %s", dist_names[call], d->transport.message));
    if (done) {
      i++;
      continue;
    }
    const double now = heed_clock();
    if (*begin == 0) {
      *begin = now;
      look = now + DIST_CHECK_SECONDS;
    }
    if (now >= look) {
      const heed_status status = heed_check_stop(d->context, dist_names[call]);
      if (status) return break_group(g, dist_failed(d, status));
      if (now - *begin >= d->timeout) return break_group(g, time_is_up(g, call));
      dist_answer(d);
      look = now + DIST_CHECK_SECONDS;
    }
    dist_poll(d); /* another rank may have to send all of a message before it comes here */
    transport_yield();
  }
  return HEED_OK;
}

heed_status dist_wait(dist_group *g, dist_call call, transport_request *r, int count) {
  double begin = 0;
  dist_set_waiting(g->d, g);
  const heed_status status = wait_for(g, call, r, count, &begin);
  dist_set_waiting(g->d, NULL);
  if (begin != 0) g->d->counts[call].waited += heed_clock() - begin;
  return status;
}

/* ---- Agreeing ---- */

/* What each rank sends to agree on a call. */
typedef struct record {
  int64_t number;
  int64_t call; /* a dist_call + 256 · detail */
  int64_t dtype, count, shape;
} record;
enum { FIELDS = sizeof(record) / sizeof(int64_t) };

/* Two shapes with the same number of elements almost surely have different values. */
static int64_t hash_of_shape(const heed_tensor *x) {
  uint64_t h = 14695981039346656037u;
  for (int i = 0; i < heed_tensor_ndim(x); i++)
    h = (h ^ (uint64_t)heed_tensor_shape(x)[i]) * 1099511628211u ^ h >> 29;
  return (int64_t)h;
}

static record record_of(const dist_group *g, dist_call call, int64_t detail, const heed_tensor *x) {
  record r = {.number = g->calls, .call = (int64_t)call + 256 * detail};
  if (x) {
    r.dtype = (int64_t)heed_tensor_dtype(x);
    r.count = heed_tensor_numel(x);
    r.shape = hash_of_shape(x);
  }
  return r;
}

static const char *name_of(const record *r) {
  const int64_t call = r->call % 256;
  return call >= 0 && call < DIST_KINDS ? dist_names[call] : "an unknown function";
}

static const char *dtype_of(const record *r) {
  return r->dtype >= 0 && r->dtype <= HEED_INT8 ? heed_dtype_name((heed_dtype)r->dtype) : "an unknown dtype";
}

static heed_status different_details(dist_group *g, const record *own, const record *other, int rank) {
  const long long here = own->call / 256, there = other->call / 256;
  const char *name = name_of(own);
  switch (own->call % 256) {
  case DIST_INIT:
    return dist_fail(g->d, HEED_ARGUMENT,
                     "%s: the version of heed or the option check is not that of rank %d; all ranks need the "
                     "same",
                     name, rank);
  case DIST_BROADCAST:
    return dist_fail(g->d, HEED_ARGUMENT, "%s: src is %lld here, and %lld on rank %d; they must be the same",
                     name, here + 1, there + 1, rank);
  default:
    return dist_fail(g->d, HEED_ARGUMENT, "%s: op is %s here, and %s on rank %d; they must be the same", name,
                     dist_op_names[here], dist_op_names[there], rank);
  }
}

/* Why the records are not equal. */
static heed_status different(dist_group *g, const record *own, const record *other, int rank) {
  const char *name = name_of(own);
  rank = transport_world_rank(&g->comm, rank) + 1;
  if (other->call % 256 == DIST_END)
    return dist_fail(g->d, HEED_ARGUMENT, "%s: rank %d has ended", name, rank);
  if (own->call % 256 != other->call % 256 || own->number != other->number)
    return dist_fail(g->d, HEED_ARGUMENT, "%s: rank %d calls %s here (call %lld)", name, rank, name_of(other),
                     (long long)other->number);
  if (own->dtype != other->dtype || own->count != other->count)
    return dist_fail(g->d, HEED_ARGUMENT,
                     "%s: x is %s of %lld elements here, and %s of %lld on rank %d; they must be the same",
                     name, dtype_of(own), (long long)own->count, dtype_of(other), (long long)other->count,
                     rank);
  if (own->call != other->call) return different_details(g, own, other, rank);
  return dist_fail(g->d, HEED_ARGUMENT,
                   "%s: x has as many elements here as on rank %d, but another shape; they must be the same",
                   name, rank);
}

heed_status dist_agree(dist_group *g, dist_call call, int64_t detail, const heed_tensor *x) {
  dist *d = g->d;
  g->calls++;
  const bool always = call == DIST_BARRIER || call == DIST_INIT || call == DIST_SPLIT || call == DIST_END;
  if (!d->check && !always) return HEED_OK;
  const int64_t bytes = sizeof(record);
  const record own = record_of(g, call, detail, x);
  record *all = heed_tensor_data(g->records);
  transport_request r;
  all[g->comm.rank] = own;
  if (!transport_all_gather(&d->transport, &g->comm, NULL, bytes, all, &r))
    return break_group(g, dist_fail(d, HEED_ARGUMENT, "%s: %s", dist_names[call], d->transport.message));
  d->counts[DIST_AGREEMENT].calls++;
  d->counts[DIST_AGREEMENT].bytes += bytes * (g->comm.size - 1);
  const heed_status status = dist_wait(g, call, &r, 1);
  if (status) return status;
  for (int i = 0; i < g->comm.size; i++)
    if (memcmp(&own, &all[i], sizeof own) != 0) return different(g, &own, &all[i], i);
  return HEED_OK;
}

/* ---- Groups ---- */

/* Allocates what a group of at most `size` ranks needs to agree. */
static heed_status open_group(dist *d, dist_group *g, int size) {
  g->d = d;
  const heed_status status =
      heed_tensor_new(d->context, HEED_INT64, 2, (int64_t[]){size, FIELDS}, &g->records);
  return status ? dist_failed(d, status) : HEED_OK;
}

/* Its communicator for headers, when all ranks have come. */
static heed_status open_headers(dist *d, dist_group *g, dist_call call) {
  if (!d->check || g->comm.size == 0) return HEED_OK;
  if (transport_split(&d->transport, &g->comm, 0, g->comm.rank, &g->headers)) return HEED_OK;
  return dist_fail(d, HEED_ARGUMENT, "%s: %s", dist_names[call], d->transport.message);
}

heed_status dist_init(dist *d, dist_group *world) {
  if (!transport_init(&d->transport, &world->comm))
    return dist_fail(d, HEED_ARGUMENT, "init_process_group: %s", d->transport.message);
  d->open = true;
  world->number = ++d->groups;
  heed_status status = open_group(d, world, world->comm.size);
  if (!status) status = dist_agree(world, DIST_INIT, (int64_t)heed_version_number() * 2 + d->check, NULL);
  world->calls = 0; /* a script counts from its own first call */
  if (!status) status = open_headers(d, world, DIST_INIT);
  return status || !d->check ? status : dist_open_roll(d, world);
}

heed_status dist_split(dist_group *g, int color, int key, dist_group *out) {
  dist *d = g->d;
  heed_status status = dist_check_group(g, dist_names[DIST_SPLIT]);
  if (!status) status = open_group(d, out, g->comm.size);
  if (!status) status = dist_agree(g, DIST_SPLIT, 0, NULL);
  if (status) {
    heed_tensor_free(out->records);
    out->records = NULL;
    return status;
  }
  out->number = ++d->groups;
  if (!transport_split(&d->transport, &g->comm, color, key, &out->comm))
    return dist_fail(d, HEED_ARGUMENT, "new_group: %s", d->transport.message);
  return open_headers(d, out, DIST_SPLIT);
}

heed_status dist_end(dist_group *world, double seconds) {
  dist *d = world->d;
  heed_status status = dist_check_group(world, dist_names[DIST_END]);
  if (status) return status;
  const double timeout = d->timeout;
  d->timeout = seconds;
  status = dist_agree(world, DIST_END, 0, NULL);
  d->timeout = timeout;
  if (status) return status;
  dist_find_lost(d);
  d->open = false;
  transport_finalize(&d->transport);
  return HEED_OK;
}
