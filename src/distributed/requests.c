/* Messages from one rank to another, which go on while the ranks compute. With agreement, a header goes ahead
 * of the elements, in a communicator of its own. */
#include <stdio.h>

#include "distributed.h"

enum { TAGS = 32768 }; /* which every MPI allows */

static const char *name_of(const dist_request *r) {
  return dist_names[r->call];
}

static int world_rank(const dist_request *r) {
  return transport_world_rank(&r->group->comm, r->peer) + 1;
}

static bool has_headers(const dist_request *r) {
  return r->group->headers.size > 0;
}

/* ---- Starting ---- */

static void link_request(dist *d, dist_request *r) {
  r->next = d->requests;
  r->link = &d->requests;
  if (r->next) r->next->link = &r->next;
  d->requests = r;
}

static void unlink_request(dist_request *r) {
  if (r->link) *r->link = r->next;
  if (r->next) r->next->link = r->link;
  r->next = NULL;
  r->link = NULL;
}

static void drop(dist_request *r) {
  unlink_request(r);
  heed_tensor_free(r->copy);
  heed_tensor_free(r->x);
  r->copy = r->x = NULL;
}

static heed_status start(dist_group *g, dist_call call, const heed_tensor *x, int peer, int tag,
                         dist_request *r) {
  *r = (dist_request){.group = g, .call = call, .peer = peer, .tag = tag};
  r->header = (dist_header){.dtype = (int64_t)heed_tensor_dtype(x), .count = heed_tensor_numel(x)};
  const heed_status status = heed_tensor_alias(g->d->context, x, &r->x);
  return status ? dist_failed(g->d, status) : HEED_OK;
}

/* The parts were started, or not. */
static heed_status started(dist_group *g, bool ok, dist_request *r) {
  dist *d = g->d;
  if (!ok) {
    dist_fail(d, HEED_ARGUMENT, "%s: %s", name_of(r), d->transport.message);
    if (!r->parts[0].active) drop(r); /* else the header is still in use */
    return HEED_ARGUMENT;
  }
  d->counts[r->call].calls++;
  if (r->call == DIST_ISEND)
    d->counts[DIST_ISEND].bytes += dist_bytes(r->x) + (has_headers(r) ? (int64_t)sizeof r->header : 0);
  link_request(d, r);
  return HEED_OK;
}

static void *data_of(const dist_request *r) {
  return heed_tensor_data(r->copy ? r->copy : r->x);
}

heed_status dist_isend(dist_group *g, const heed_tensor *x, int to, int tag, dist_request *r) {
  dist *d = g->d;
  heed_status status = dist_check_group(g, dist_names[DIST_ISEND]);
  if (!status) status = start(g, DIST_ISEND, x, to, tag, r);
  if (status) return status;
  if (!heed_tensor_is_contiguous(x) && (status = heed_clone(d->context, x, &r->copy))) {
    drop(r);
    return dist_failed(d, status);
  }
  r->stage = DIST_IN_FLIGHT;
  if (!has_headers(r))
    return started(
        g, transport_send(&d->transport, &g->comm, data_of(r), dist_bytes(x), to, tag, &r->parts[1]), r);
  r->header.tag = g->sent++ % TAGS;
  return started(
      g,
      transport_send(&d->transport, &g->headers, &r->header, sizeof r->header, to, tag, &r->parts[0]) &&
          transport_send(&d->transport, &g->comm, data_of(r), dist_bytes(x), to, (int)r->header.tag,
                         &r->parts[1]),
      r);
}

/* Starts receiving the elements. */
static bool receive_elements(dist_request *r, int64_t bytes, int tag) {
  dist_group *g = r->group;
  r->stage = DIST_IN_FLIGHT;
  return transport_receive(&g->d->transport, &g->comm, data_of(r), bytes, r->peer, tag, &r->parts[1]);
}

heed_status dist_irecv(dist_group *g, heed_tensor *x, int from, int tag, dist_request *r) {
  dist *d = g->d;
  heed_status status = dist_check_group(g, dist_names[DIST_IRECV]);
  if (!status) status = start(g, DIST_IRECV, x, from, tag, r);
  if (status) return status;
  if ((status = dist_begin_write(d, name_of(r), x, &r->copy))) {
    drop(r);
    return status;
  }
  const bool ok = has_headers(r) ? transport_receive(&d->transport, &g->headers, &r->header, sizeof r->header,
                                                     from, tag, &r->parts[0])
                                 : receive_elements(r, dist_bytes(x), tag);
  return started(g, ok, r);
}

/* ---- Ending ---- */

static bool fits(const dist_request *r) {
  return r->header.dtype == (int64_t)heed_tensor_dtype(r->x) && r->header.count == heed_tensor_numel(r->x);
}

static void fail(dist_request *r, const char *message) {
  snprintf(r->failure, sizeof r->failure, "%.255s", message);
}

static void transport_failed(dist_request *r) {
  snprintf(r->failure, sizeof r->failure, "%s: %.200s", name_of(r), r->group->d->transport.message);
  r->stage = DIST_ARRIVED;
}

/* Elements are received after the header, and only if they fit x: Open MPI 4.1 writes a message that is too
 * long behind the end of the buffer. Does not use the context. */
static void advance(dist_request *r) {
  transport *t = &r->group->d->transport;
  bool done[2] = {true, true};
  if (r->stage != DIST_AWAITS_HEADER && r->stage != DIST_IN_FLIGHT) return;
  for (int i = 0; i < 2; i++)
    if (!transport_test(t, &r->parts[i], &done[i])) return transport_failed(r);
  if (!done[0] || !done[1]) return;
  if (r->stage == DIST_IN_FLIGHT)
    r->stage = DIST_ARRIVED;
  else if (!fits(r))
    r->stage = DIST_REFUSED;
  else if (!receive_elements(r, dist_bytes(r->x), (int)r->header.tag))
    transport_failed(r);
}

void dist_poll(void *user) {
  dist *d = user;
  if (!d->open || !transport_is_here(&d->transport)) return;
  for (dist_request *r = d->requests; r; r = r->next) advance(r);
}

static const dist_request *first_in_flight(const dist *d) {
  const dist_request *r = d->requests;
  while (r && r->stage != DIST_AWAITS_HEADER && r->stage != DIST_IN_FLIGHT) r = r->next;
  return r;
}

void dist_find_lost(dist *d) {
  const double end = heed_clock() + 0.2; /* what was received may take a moment to arrive */
  while (first_in_flight(d) && heed_clock() < end) {
    dist_poll(d);
    transport_yield();
  }
  const dist_request *r = first_in_flight(d);
  d->message[0] = '\0';
  if (r && r->call == DIST_ISEND)
    dist_fail(d, HEED_ARGUMENT, "destroy_process_group: rank %d did not receive x of isend (tag %d)",
              world_rank(r), r->tag);
  else if (r)
    dist_fail(d, HEED_ARGUMENT, "destroy_process_group: rank %d sent nothing for irecv (tag %d)",
              world_rank(r), r->tag);
}

/* The message does not fit x: it is received elsewhere, so that its sender can go on. */
static void refuse(dist_request *r) {
  dist *d = r->group->d;
  const bool known = r->header.dtype >= 0 && r->header.dtype <= HEED_INT8;
  snprintf(r->failure, sizeof r->failure,
           "%s: x is %s of %lld elements here, and %s of %lld on rank %d; they must be the same", name_of(r),
           heed_dtype_name(heed_tensor_dtype(r->x)), (long long)heed_tensor_numel(r->x),
           known ? heed_dtype_name((heed_dtype)r->header.dtype) : "an unknown dtype",
           (long long)r->header.count, world_rank(r));
  heed_tensor_free(r->copy);
  r->copy = NULL;
  r->stage = DIST_ARRIVED;
  if (known && !heed_tensor_new(d->context, (heed_dtype)r->header.dtype, 1, &r->header.count, &r->copy) &&
      !receive_elements(r, dist_bytes(r->copy), (int)r->header.tag))
    r->stage = DIST_ARRIVED;
}

static void end(dist_request *r) {
  dist *d = r->group->d;
  heed_tensor *again = NULL;
  /* Of row-major x, what was recorded since irecv saved the old elements. */
  if (r->call == DIST_IRECV && !r->failure[0] &&
      (dist_end_write(d, r->x, r->copy) || dist_begin_write(d, name_of(r), r->x, &again)))
    fail(r, d->message);
  heed_tensor_free(again);
  drop(r);
  r->stage = DIST_DONE;
}

heed_status dist_test(dist_request *r, bool *done) {
  dist *d = r->group->d;
  *done = false;
  if (r->stage != DIST_DONE) {
    const heed_status status = dist_check_group(r->group, name_of(r));
    if (status) return status;
    advance(r);
    if (r->stage == DIST_REFUSED) refuse(r);
    if (r->stage != DIST_ARRIVED) return HEED_OK;
    end(r);
  }
  *done = true;
  return r->failure[0] ? dist_fail(d, HEED_ARGUMENT, "%s", r->failure) : HEED_OK;
}

static heed_status await(dist_request *r, double begin) {
  dist *d = r->group->d;
  double look = begin + DIST_CHECK_SECONDS;
  for (;;) {
    bool done;
    heed_status status = dist_test(r, &done);
    if (status || done) return status;
    dist_poll(d); /* other messages may have to arrive before */
    const double now = heed_clock();
    if (now < look) {
      transport_yield();
      continue;
    }
    look = now + DIST_CHECK_SECONDS;
    dist_answer(d);
    if ((status = heed_check_stop(d->context, name_of(r)))) return dist_failed(d, status);
    if (now - begin >= d->timeout) {
      char seconds[32];
      return dist_fail(d, HEED_LIMIT, "%s: after %s seconds rank %d has %s (tag %d)", name_of(r),
                       dist_seconds_text(seconds, sizeof seconds, d->timeout), world_rank(r),
                       r->call == DIST_ISEND ? "not received x" : "sent nothing", r->tag);
    }
  }
}

heed_status dist_await(dist_request *r) {
  const double begin = heed_clock();
  const heed_status status = await(r, begin);
  r->group->d->counts[r->call].waited += heed_clock() - begin;
  return status;
}
