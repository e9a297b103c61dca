/* Sequences of different lengths as [total, ...], one after another, and as [b, n, ...], padded. */
#include "ops.h"

heed_status heed__read_lengths(heed_context *ctx, const char *function, const char *argument,
                               const heed_tensor *lengths, int64_t most, heed__lengths *out) {
  *out = (heed__lengths){0};
  const heed_status status = heed__check_dtype(ctx, function, argument, lengths, HEED_INT64);
  if (status != HEED_OK) return status;
  if (lengths->ndim != 1) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(ctx, HEED_SHAPE, "%s: %s is %s; it must be [b], one for each sequence", function,
                      argument, heed__shape_text(text, lengths->ndim, lengths->shape));
  }
  out->count = lengths->shape[0];
  const heed_status charged = heed__charge(ctx, function, (double)out->count);
  if (charged != HEED_OK) return charged;
  for (int64_t i = 0; i < out->count; i++) {
    const int64_t length = heed__int64_at(lengths, i);
    if (length < 0)
      return heed__fail(ctx, HEED_INDEX, "%s: element %lld of %s is %lld; it must be at least 0", function,
                        (long long)(i + 1), argument, (long long)length);
    if (length > most)
      return heed__fail(ctx, HEED_INDEX, "%s: element %lld of %s is %lld; it must be at most %lld", function,
                        (long long)(i + 1), argument, (long long)length, (long long)most);
    out->longest = heed__max(out->longest, length);
    out->total = length > INT64_MAX - out->total ? INT64_MAX : out->total + length;
    if (heed__is_due_at(&ctx->pace, i)) return heed__stopped(ctx, function);
  }
  return HEED_OK;
}

heed_status heed__check_total(heed_context *ctx, const char *function, const char *argument,
                              const heed__lengths *lengths, const char *name, const heed_tensor *x, int dim) {
  char text[HEED__SHAPE_TEXT];
  if (lengths->total == x->shape[dim]) return HEED_OK;
  return heed__fail(ctx, HEED_SHAPE,
                    "%s: %s add up to %lld and %s is %s; they must add up to %lld, its tokens", function,
                    argument, (long long)lengths->total, name, heed__shape_text(text, x->ndim, x->shape),
                    (long long)x->shape[dim]);
}

static heed_status check_dims(heed_context *ctx, const char *function, const heed_tensor *x, int least,
                              const char *shape) {
  char text[HEED__SHAPE_TEXT];
  if (x->ndim >= least) return HEED_OK;
  return heed__fail(ctx, HEED_SHAPE, "%s: x is %s; it must be %s", function,
                    heed__shape_text(text, x->ndim, x->shape), shape);
}

/* Copies the sequences from rows, [total, ...], to padded, [b, n, ...] (unpacks), or back. False if a
 * cancellation check stopped it. */
static bool copy_sequences(heed_context *ctx, const heed_tensor *rows, const heed_tensor *padded,
                           const heed_tensor *lengths, bool unpacks) {
  heed_tensor from, to;
  int64_t first = 0;
  for (int64_t i = 0; i < padded->shape[0]; i++) {
    const int64_t n = heed__int64_at(lengths, i);
    if (heed__is_due_at(&ctx->pace, i)) return false;
    heed_tensor *row = unpacks ? &from : &to, *item = unpacks ? &to : &from;
    heed__alias_on_stack(row, rows);
    heed__alias_on_stack(item, padded);
    heed__narrow_on_stack(row, 0, first, n);
    heed__narrow_on_stack(item, 0, i, 1);
    for (int d = 1; d < item->ndim; d++) { /* without its first dimension */
      item->shape[d - 1] = item->shape[d];
      item->stride[d - 1] = item->stride[d];
    }
    item->ndim--;
    heed__narrow_on_stack(item, 0, 0, n);
    if (row->numel > 0 && !heed__copy_elements(&to, &from)) return false;
    first += n;
  }
  return true;
}

heed_status heed_pack(heed_context *ctx, const heed_tensor *x, const heed_tensor *lengths,
                      heed_tensor **out) {
  HEED__ENTER(ctx, "pack", x, lengths, out);
  heed__result result = {0};
  heed__lengths read;
  int64_t shape[HEED_MAX_DIMS];
  heed_status status = check_dims(ctx, "pack", x, 2, "[b, n, ...]");
  if (status != HEED_OK) return status;
  status = heed__read_lengths(ctx, "pack", "lengths", lengths, x->shape[1], &read);
  if (status != HEED_OK) return status;
  if (read.count != x->shape[0])
    return heed__fail_pair(ctx, "pack", "x", x, "lengths", lengths, "their first sizes must be equal");
  shape[0] = read.total;
  for (int d = 2; d < x->ndim; d++) shape[d - 1] = x->shape[d];
  status = heed__result_begin(ctx, "pack", &result, out, x->dtype, x->ndim - 1, shape, false, 2,
                              (const heed_tensor *const[]){x, lengths});
  if (status != HEED_OK) return status;
  if (!copy_sequences(ctx, result.tensor, x, lengths, false)) status = heed__stopped(ctx, "pack");
  return heed__recorded2(ctx, heed__result_end(ctx, &result, status), HEED__OP_pack, x, lengths, out);
}

heed_status heed_unpack(heed_context *ctx, const heed_tensor *x, const heed_tensor *lengths, int64_t n,
                        heed_tensor **out) {
  HEED__ENTER(ctx, "unpack", x, lengths, out);
  heed__result result = {0};
  heed__lengths read;
  int64_t shape[HEED_MAX_DIMS + 1];
  heed_status status = check_dims(ctx, "unpack", x, 1, "[total, ...]");
  if (status != HEED_OK) return status;
  if (n < 0) return heed__fail(ctx, HEED_ARGUMENT, "unpack: n is %lld; it must be at least 0", (long long)n);
  status = heed__read_lengths(ctx, "unpack", "lengths", lengths, n > 0 ? n : INT64_MAX, &read);
  if (status == HEED_OK) status = heed__check_total(ctx, "unpack", "lengths", &read, "x", x, 0);
  if (status != HEED_OK) return status;
  if (x->ndim == HEED_MAX_DIMS)
    return heed__fail(ctx, HEED_SHAPE, "unpack: x has %d dimensions; it must have fewer", HEED_MAX_DIMS);
  shape[0] = read.count;
  shape[1] = n > 0 ? n : read.longest;
  for (int d = 1; d < x->ndim; d++) shape[d + 1] = x->shape[d];
  status = heed__result_begin(ctx, "unpack", &result, out, x->dtype, x->ndim + 1, shape, false, 2,
                              (const heed_tensor *const[]){x, lengths});
  if (status != HEED_OK) return status;
  if (read.longest == 0 || read.total != read.count * shape[1])
    status = heed__fill(ctx, "unpack", result.tensor,
                        x->dtype == HEED_BOOL ? heed_boolean(false) : heed_number(0));
  if (status == HEED_OK && !copy_sequences(ctx, x, result.tensor, lengths, true))
    status = heed__stopped(ctx, "unpack");
  return heed__recorded2(ctx, heed__result_end(ctx, &result, status), HEED__OP_unpack, x, lengths, out);
}
