/* Collectives of tensors. Each one checks and allocates, agrees with the other ranks, and only then sends. */
#include <string.h>

#include "distributed.h"

int64_t dist_element_bytes(heed_dtype dtype) {
  static const int64_t bytes[] = {
#define X(name, text, type) sizeof(type),
      HEED_DTYPE_LIST(X)
#undef X
  };
  return bytes[dtype];
}

int64_t dist_bytes(const heed_tensor *x) {
  return heed_tensor_numel(x) * dist_element_bytes(heed_tensor_dtype(x));
}

static void count(dist *d, dist_call call, int64_t bytes) {
  d->counts[call].calls++;
  d->counts[call].bytes += bytes;
}

/* Waits for what was started; `started` is false if that failed. */
static heed_status finish(dist_group *g, dist_call call, bool started, transport_request *r, int requests) {
  if (started) return dist_wait(g, call, r, requests);
  return dist_fail(g->d, HEED_ARGUMENT, "%s: %s", dist_names[call], g->d->transport.message);
}

/* ---- Writing in place ---- */

/* Counts a version of x, so that a backward pass refuses values that it saved before. Writes no elements. */
static heed_status note_write(dist *d, heed_tensor *x) {
  heed_tensor *flat = NULL, *none = NULL;
  heed_status status = heed_view(d->context, x, 1, (int64_t[]){-1}, &flat);
  if (!status) status = heed_narrow(d->context, flat, 1, 1, 0, &none);
  if (!status) status = heed_fill(d->context, none, heed_integer(0));
  heed_tensor_free(none);
  heed_tensor_free(flat);
  return status;
}

heed_status dist_begin_write(dist *d, const char *call, heed_tensor *x, heed_tensor **copy) {
  if (heed_is_recording(d->context) && heed_tensor_requires_grad(x))
    return dist_fail(d, HEED_ARGUMENT,
                     "%s: x requires a gradient, which would not include what other ranks send; use "
                     "heed.no_grad or x:detach()",
                     call);
  heed_status status;
  if (heed_tensor_is_contiguous(x)) {
    status = heed_tensor_numel(x) > 0 ? note_write(d, x) : HEED_OK;
  } else {
    status = heed_clone(d->context, x, copy);
    if (!status) status = heed_copy(d->context, x, *copy);
    if (status == HEED_ARGUMENT)
      return dist_fail(
          d, HEED_ARGUMENT,
          "%s: x has elements that share memory, as those of an expanded tensor do; use x:clone()", call);
  }
  return status ? dist_failed(d, status) : HEED_OK;
}

heed_status dist_end_write(dist *d, heed_tensor *x, heed_tensor *copy) {
  const heed_status status = copy ? heed_copy(d->context, x, copy) : HEED_OK;
  return status ? dist_failed(d, status) : HEED_OK;
}

/* *held is an alias of x: after a failure, MPI may still write to x when the script has released it. */
static heed_status begin(dist_group *g, dist_call call, heed_tensor *x, heed_tensor **held,
                         heed_tensor **copy) {
  heed_status status = dist_check_group(g, dist_names[call]);
  if (!status) status = dist_begin_write(g->d, dist_names[call], x, copy);
  if (status) return status;
  status = heed_tensor_alias(g->d->context, x, held);
  return status ? dist_failed(g->d, status) : HEED_OK;
}

/* ---- Reductions ---- */

/* Bytes that all ranks together may have for one all_gather instead of an all_to_all and an all_gather, which
 * send less, but take twice as many steps. */
#define SMALL ((int64_t)64 << 10)
/* Bytes that are reduced at once: the size of the scratch buffer. */
#define PIECE ((int64_t)16 << 20)

/* Reduces n elements at x; scratch has capacity for max(n, small · size) of them. */
static heed_status reduce_piece(dist_group *g, heed_dtype dtype, dist_op op, char *x, int64_t n,
                                char *scratch) {
  dist *d = g->d;
  const int size = g->comm.size;
  const int64_t e = dist_element_bytes(dtype);
  transport_request r;
  if (n * e * size <= SMALL || n < size) {
    bool ok = transport_all_gather(&d->transport, &g->comm, x, n * e, scratch, &r);
    const heed_status status = finish(g, DIST_ALL_REDUCE, ok, &r, 1);
    if (!status) dist_reduce(dtype, op, scratch, size, n, x);
    d->counts[DIST_ALL_REDUCE].bytes += n * e * (size - 1);
    return status;
  }
  const int64_t chunk = n / size, rest = n % size;
  bool ok = transport_all_to_all(&d->transport, &g->comm, x, chunk * e, scratch, &r);
  heed_status status = finish(g, DIST_ALL_REDUCE, ok, &r, 1);
  if (status) return status;
  dist_reduce(dtype, op, scratch, size, chunk, x + g->comm.rank * chunk * e);
  ok = transport_all_gather(&d->transport, &g->comm, NULL, chunk * e, x, &r);
  status = finish(g, DIST_ALL_REDUCE, ok, &r, 1);
  d->counts[DIST_ALL_REDUCE].bytes += 2 * chunk * e * (size - 1);
  return status || rest == 0 ? status : reduce_piece(g, dtype, op, x + (n - rest) * e, rest, scratch);
}

heed_status dist_all_reduce(dist_group *g, heed_tensor *x, dist_op op) {
  dist *d = g->d;
  const int size = g->comm.size;
  const heed_dtype dtype = heed_tensor_dtype(x);
  const int64_t n = heed_tensor_numel(x), e = dist_element_bytes(dtype);
  const int64_t most = PIECE / e > size ? PIECE / e : size, piece = n < most ? n : most;
  heed_tensor *held = NULL, *copy = NULL, *scratch = NULL;
  bool in_flight = false;
  heed_status status = dist_check_op(d, dist_names[DIST_ALL_REDUCE], op, dtype);
  if (!status) status = begin(g, DIST_ALL_REDUCE, x, &held, &copy);
  if (status) goto done;
  const int64_t small = SMALL / e > (int64_t)size * size ? SMALL / e : (int64_t)size * size;
  const int64_t capacity = n * size < small ? n * size : piece > small ? piece : small;
  status = heed_tensor_new(d->context, dtype, 1, (int64_t[]){capacity}, &scratch);
  if (status) {
    dist_failed(d, status);
    goto done;
  }
  status = dist_agree(g, DIST_ALL_REDUCE, (int64_t)op, x);
  if (status) goto done;
  char *data = heed_tensor_data(copy ? copy : x);
  for (int64_t at = 0; at < n && !status; at += piece)
    status =
        reduce_piece(g, dtype, op, data + at * e, n - at < piece ? n - at : piece, heed_tensor_data(scratch));
  count(d, DIST_ALL_REDUCE, 0);
  in_flight = status != HEED_OK;
  if (!status) status = dist_end_write(d, x, copy);
done:
  if (in_flight) return status; /* MPI may still write to the buffers */
  heed_tensor_free(held);
  heed_tensor_free(copy);
  heed_tensor_free(scratch);
  return status;
}

heed_status dist_reduce_scatter(dist_group *g, const heed_tensor *x, dist_op op, heed_tensor **out) {
  dist *d = g->d;
  const int size = g->comm.size, ndim = heed_tensor_ndim(x);
  const char *name = dist_names[DIST_REDUCE_SCATTER];
  const heed_dtype dtype = heed_tensor_dtype(x);
  heed_tensor *row_major = NULL, *scratch = NULL;
  int64_t shape[HEED_MAX_DIMS];
  bool in_flight = false;
  heed_status status = dist_check_group(g, name);
  if (!status) status = dist_check_op(d, name, op, dtype);
  if (status) return status;
  if (ndim == 0 || heed_tensor_shape(x)[0] % size != 0)
    return dist_fail(d, HEED_SHAPE,
                     "%s: x has %lld rows; their number must be a multiple of the number of ranks (%d)", name,
                     ndim > 0 ? (long long)heed_tensor_shape(x)[0] : 0LL, size);
  memcpy(shape, heed_tensor_shape(x), (size_t)ndim * sizeof *shape);
  shape[0] /= size;
  const int64_t n = heed_tensor_numel(x) / size, bytes = n * dist_element_bytes(dtype);
  status = heed_contiguous(d->context, x, &row_major);
  if (!status) status = heed_tensor_new(d->context, dtype, 1, (int64_t[]){n * size}, &scratch);
  if (!status) status = heed_tensor_new(d->context, dtype, ndim, shape, out);
  if (status) {
    dist_failed(d, status);
    goto done;
  }
  status = dist_agree(g, DIST_REDUCE_SCATTER, (int64_t)op, x);
  if (status) goto done;
  transport_request r;
  bool ok = transport_all_to_all(&d->transport, &g->comm, heed_tensor_data(row_major), bytes,
                                 heed_tensor_data(scratch), &r);
  status = finish(g, DIST_REDUCE_SCATTER, ok, &r, 1);
  count(d, DIST_REDUCE_SCATTER, bytes * (size - 1));
  in_flight = status != HEED_OK;
  if (!status) dist_reduce(dtype, op, heed_tensor_data(scratch), size, n, heed_tensor_data(*out));
done:
  if (in_flight) return status;
  heed_tensor_free(row_major);
  heed_tensor_free(scratch);
  return status;
}

/* ---- Copies ---- */

heed_status dist_all_gather(dist_group *g, const heed_tensor *x, heed_tensor **out) {
  dist *d = g->d;
  const int size = g->comm.size, ndim = heed_tensor_ndim(x);
  heed_tensor *row_major = NULL;
  int64_t shape[HEED_MAX_DIMS + 1] = {size};
  heed_status status = dist_check_group(g, dist_names[DIST_ALL_GATHER]);
  if (status) return status;
  memcpy(shape + 1, heed_tensor_shape(x), (size_t)ndim * sizeof *shape);
  status = heed_contiguous(d->context, x, &row_major);
  if (!status) status = heed_tensor_new(d->context, heed_tensor_dtype(x), ndim + 1, shape, out);
  if (status) {
    dist_failed(d, status);
    goto done;
  }
  status = dist_agree(g, DIST_ALL_GATHER, 0, x);
  if (status) goto done;
  transport_request r;
  bool ok = transport_all_gather(&d->transport, &g->comm, heed_tensor_data(row_major), dist_bytes(x),
                                 heed_tensor_data(*out), &r);
  status = finish(g, DIST_ALL_GATHER, ok, &r, 1);
  count(d, DIST_ALL_GATHER, dist_bytes(x) * (size - 1));
  if (status) { /* MPI may still write to the result */
    *out = NULL;
    return status;
  }
done:
  heed_tensor_free(row_major);
  return status;
}

heed_status dist_broadcast(dist_group *g, heed_tensor *x, int root) {
  dist *d = g->d;
  heed_tensor *held = NULL, *copy = NULL;
  heed_status status = begin(g, DIST_BROADCAST, x, &held, &copy);
  if (!status) status = dist_agree(g, DIST_BROADCAST, root, x);
  if (!status) {
    transport_request r;
    bool ok = transport_broadcast(&d->transport, &g->comm, heed_tensor_data(copy ? copy : x), dist_bytes(x),
                                  root, &r);
    status = finish(g, DIST_BROADCAST, ok, &r, 1);
    count(d, DIST_BROADCAST, g->comm.rank == root ? dist_bytes(x) * (g->comm.size - 1) : 0);
    if (status) return status;
    status = dist_end_write(d, x, copy);
  }
  heed_tensor_free(held);
  heed_tensor_free(copy);
  return status;
}

heed_status dist_barrier(dist_group *g) {
  heed_status status = dist_check_group(g, dist_names[DIST_BARRIER]);
  if (!status) status = dist_agree(g, DIST_BARRIER, 0, NULL);
  if (!status) count(g->d, DIST_BARRIER, 0);
  return status;
}
