/* The loop behind all reductions (reduce.h). */
#include "reduce.h"
#include "map.h"

_Static_assert(HEED__REDUCE_WIDTH <= HEED__CHUNK, "a row of columns goes through one buffer");

heed_status heed__reduced_dims(heed_context *ctx, const char *function, const heed_tensor *x, int ndims,
                               const int *dims, uint32_t *reduced) {
  uint32_t bits = ndims == 0 ? UINT32_MAX : 0;
  for (int i = 0; i < ndims; i++) {
    int dim;
    const heed_status status = heed__check_dim(ctx, function, x->ndim, dims[i], &dim);
    if (status != HEED_OK) return status;
    if (bits >> dim & 1)
      return heed__fail(ctx, HEED_ARGUMENT, "%s: dimension %d is named twice in dim", function, dim + 1);
    bits |= (uint32_t)1 << dim;
  }
  *reduced = bits;
  return HEED_OK;
}

int heed__reduced_shape(const heed_tensor *x, uint32_t reduced, bool keepdim, int64_t *shape) {
  int ndim = 0;
  for (int i = 0; i < x->ndim; i++) {
    if (!(reduced >> i & 1))
      shape[ndim++] = x->shape[i];
    else if (keepdim)
      shape[ndim++] = 1;
  }
  return ndim;
}

/* x with those of its dimensions whose bit is set. */
static void pick_dims(heed_tensor *view, const heed_tensor *x, uint32_t picked) {
  heed__alias_on_stack(view, x);
  view->ndim = 0;
  view->numel = 1;
  for (int i = 0; i < x->ndim; i++) {
    if (!(picked >> i & 1)) continue;
    view->shape[view->ndim] = x->shape[i];
    view->stride[view->ndim] = x->stride[i];
    view->numel *= x->shape[i];
    view->ndim++;
  }
}

/* The smallest stride of a dimension that has steps. */
static int64_t least_stride(const heed_tensor *x) {
  int64_t least = INT64_MAX;
  for (int i = 0; i < x->ndim; i++) {
    if (x->shape[i] > 1 && x->stride[i] < least) least = x->stride[i];
  }
  return least;
}

typedef struct job {
  const heed__reduction *reduction;
  void *state;
  heed_dtype dtype;
  ptrdiff_t bytes;
  bool along;
  bool any;          /* there are elements to fold */
  heed__walk folded; /* over the elements of the first result */
  int64_t buffer[HEED__CHUNK];
} job;

/* One row of elements of a single result. */
static void fold_along(job *j, const char *data, ptrdiff_t stride, int64_t count) {
  const heed__reduction *r = j->reduction;
  const int64_t most = j->dtype == r->read_as && (stride == 1 || count == 1) ? count : HEED__CHUNK;
  for (int64_t first = 0; first < count; first += most) {
    const int64_t n = count - first < most ? count - first : most;
    const heed__span x =
        heed__fetch(r->read_as, true, j->dtype, data + first * stride * j->bytes, stride, n, j->buffer);
    r->along(j->state, x.data, (size_t)n);
  }
}

/* One row of elements of `width` results that lie `column` elements apart. */
static void fold_across(job *j, const char *data, ptrdiff_t stride, int64_t count, ptrdiff_t column,
                        int64_t width) {
  const heed__reduction *r = j->reduction;
  for (int64_t i = 0; i < count; i++) {
    const heed__span x =
        heed__fetch(r->read_as, true, j->dtype, data + i * stride * j->bytes, column, width, j->buffer);
    r->across(j->state, x.data, (size_t)width);
  }
}

/* One pass over the elements of the results whose first elements are at data, data + column…. */
static void fold(job *j, char *data, ptrdiff_t column, int64_t width) {
  if (!j->any) return;
  heed__walk *w = &j->folded; /* which stands at its first row again after the last */
  w->data[0] = data;
  do {
    if (j->along)
      fold_along(j, w->data[0], w->stride[0], w->count);
    else
      fold_across(j, w->data[0], w->stride[0], w->count, column, width);
  } while (heed__walk_next(w));
}

void heed__reduce(const heed__reduction *r, void *state, const heed_tensor *x, uint32_t reduced, bool keepdim,
                  int outputs, const heed_tensor *const *out) {
  job j; /* not zeroed: it has a buffer */
  j.reduction = r;
  j.state = state;
  j.dtype = x->dtype;
  j.bytes = (ptrdiff_t)heed__element_bytes(x->dtype);
  heed_tensor kept, folded, results[HEED__REDUCE_OUTPUTS];
  const heed_tensor *folded_operand = &folded, *operands[HEED__REDUCE_OUTPUTS + 1] = {&kept};
  heed__walk w;
  pick_dims(&kept, x, ~reduced);
  pick_dims(&folded, x, reduced);
  for (int i = 0; i < outputs; i++) {
    pick_dims(&results[i], out[i], keepdim ? ~reduced : UINT32_MAX);
    operands[i + 1] = &results[i];
  }
  j.along = kept.numel == 1 || least_stride(&folded) <= least_stride(&kept);
  j.any = heed__walk_begin(&j.folded, folded.ndim, folded.shape, 1, &folded_operand);
  const int64_t most = j.along ? 1 : HEED__REDUCE_WIDTH;
  for (bool more = heed__walk_begin(&w, kept.ndim, kept.shape, outputs + 1, operands); more;
       more = heed__walk_next(&w)) {
    for (int64_t first = 0; first < w.count; first += most) {
      const int64_t width = w.count - first < most ? w.count - first : most;
      for (int pass = 0; pass < r->passes; pass++) {
        r->begin(state, pass, (size_t)width, folded.numel);
        fold(&j, w.data[0] + first * w.stride[0] * j.bytes, w.stride[0], width);
      }
      void *places[HEED__REDUCE_OUTPUTS];
      for (int i = 0; i < outputs; i++) {
        const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(results[i].dtype);
        places[i] = w.data[i + 1] + first * w.stride[i + 1] * bytes;
      }
      r->finish(state, (size_t)width, places, w.stride + 1);
    }
  }
}
