/* Messages from one rank to another, which go on while the ranks compute. With agreement, a header goes ahead
 * of each message, in a communicator of its own. */
#include <stdio.h>

#include "distributed.h"

static const char *name_of(const dist_request *r) {
  return dist_names[r->call];
}

static int world_rank(const dist_request *r) {
  return transport_world_rank(&r->group->comm, r->peer) + 1;
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
  r->header = (dist_header){(int64_t)heed_tensor_dtype(x), heed_tensor_numel(x)};
  const heed_status status = heed_tensor_alias(g->d->context, x, &r->x);
  return status ? dist_failed(g->d, status) : HEED_OK;
}

/* The parts were started, or not. */
static heed_status started(dist_group *g, bool ok, dist_request *r) {
  dist *d = g->d;
  if (!ok) {
    dist_fail(d, HEED_ARGUMENT, "%s: %s", name_of(r), d->transport.message);
    if (!r->parts[0].active) drop(r); /* else the buffers are still in use */
    return HEED_ARGUMENT;
  }
  d->counts[r->call].calls++;
  if (r->call == DIST_ISEND)
    d->counts[DIST_ISEND].bytes += dist_bytes(r->x) + (g->headers.size > 0 ? (int64_t)sizeof r->header : 0);
  link_request(d, r);
  return HEED_OK;
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
  const void *data = heed_tensor_data(r->copy ? r->copy : r->x);
  const bool ok = (g->headers.size == 0 || transport_send(&d->transport, &g->headers, &r->header,
                                                          sizeof r->header, to, tag, &r->parts[0])) &&
                  transport_send(&d->transport, &g->comm, data, dist_bytes(r->x), to, tag, &r->parts[1]);
  return started(g, ok, r);
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
  void *data = heed_tensor_data(r->copy ? r->copy : r->x);
  const bool ok = (g->headers.size == 0 || transport_receive(&d->transport, &g->headers, &r->header,
                                                             sizeof r->header, from, tag, &r->parts[0])) &&
                  transport_receive(&d->transport, &g->comm, data, dist_bytes(r->x), from, tag, &r->parts[1]);
  return started(g, ok, r);
}

/* ---- Ending ---- */

/* Tests the parts that are in flight. Elements that do not fit x are a failure of MPI; the header, which
 * comes as well, says it better. */
static void advance(dist_request *r) {
  transport *t = &r->group->d->transport;
  bool done;
  for (int i = 0; i < 2; i++) {
    if (!r->parts[i].active) continue;
    if (!transport_test(t, &r->parts[i], &done))
      snprintf(r->failure, sizeof r->failure, "%s: %.200s", name_of(r), t->message);
  }
}

static bool has_ended(const dist_request *r) {
  return !r->parts[0].active && !r->parts[1].active;
}

void dist_poll(void *user) {
  dist *d = user;
  for (dist_request *r = d->requests; r; r = r->next)
    if (!has_ended(r)) advance(r);
}

/* Ends a request whose parts have ended. */
static void end(dist_request *r) {
  dist *d = r->group->d;
  const int64_t dtype = (int64_t)heed_tensor_dtype(r->x), count = heed_tensor_numel(r->x);
  if (r->header.dtype != dtype || r->header.count != count) {
    const bool known = r->header.dtype >= 0 && r->header.dtype <= HEED_INT8;
    snprintf(r->failure, sizeof r->failure,
             "%s: x is %s of %lld elements here, and %s of %lld on rank %d; they must be the same",
             name_of(r), heed_dtype_name((heed_dtype)dtype), (long long)count,
             known ? heed_dtype_name((heed_dtype)r->header.dtype) : "an unknown dtype",
             (long long)r->header.count, world_rank(r));
  } else if (r->call == DIST_IRECV && !r->failure[0]) {
    heed_tensor *again = NULL; /* for row-major x: what was recorded since irecv saved the old elements */
    if (dist_end_write(d, r->x, r->copy) || dist_begin_write(d, name_of(r), r->x, &again))
      snprintf(r->failure, sizeof r->failure, "%.255s", d->message);
    heed_tensor_free(again);
  }
  drop(r);
  r->done = true;
}

heed_status dist_test(dist_request *r, bool *done) {
  dist *d = r->group->d;
  if (!r->done) {
    const heed_status status = dist_check_group(r->group, name_of(r));
    if (status) return status;
    advance(r);
    if (has_ended(r)) end(r);
  }
  if (r->done && r->failure[0]) return dist_fail(d, HEED_ARGUMENT, "%s", r->failure);
  *done = r->done;
  return HEED_OK;
}

heed_status dist_await(dist_request *r) {
  dist *d = r->group->d;
  const double begin = heed_clock();
  double look = begin + 0.0005;
  for (;;) {
    bool done = false;
    heed_status status = dist_test(r, &done);
    if (status || done) return status;
    const double now = heed_clock();
    if (now < look) {
      transport_yield();
      continue;
    }
    look = now + 0.0005;
    if ((status = heed_check_stop(d->context, name_of(r)))) return dist_failed(d, status);
    if (now - begin >= d->timeout) {
      const long tenths = (long)(d->timeout * 10 + 0.5);
      return dist_fail(d, HEED_LIMIT, "%s: after %ld.%ld seconds rank %d has %s (tag %d)", name_of(r),
                       tenths / 10, tenths % 10, world_rank(r),
                       r->call == DIST_ISEND ? "not received x" : "sent nothing", r->tag);
    }
  }
}
