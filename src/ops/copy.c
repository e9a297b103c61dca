/* Copies between layouts and dtypes. */

#include "blocks.h"

typedef struct copy {
  const heed__kernels *kernels;
  heed_dtype to, from;
  int across; /* the dimension of the walk (dst, src) along which src is contiguous while dst is along rows;
                 0: none */
} copy;

static void transpose_part(void *user, heed__walk *w, int worker) {
  const copy *c = user;
  const size_t columns = (size_t)w->size[c->across];
  const ptrdiff_t out_row = w->step[0][c->across] / (ptrdiff_t)sizeof(float);
  (void)worker;
  w->size[c->across] = 1; /* the kernel does all of this dimension */
  do {
    c->kernels->transpose((float *)(void *)w->data[0], out_row, (const float *)(void *)w->data[1],
                          w->stride[1], (size_t)w->count, columns);
  } while (heed__walk_next(w));
}

static void copy_part(void *user, heed__walk *w, int worker) {
  const copy *c = user;
  (void)worker;
  do {
    heed__convert_row(c->kernels, c->to, w->data[0], w->stride[0], c->from, w->data[1], w->stride[1],
                      w->count);
  } while (heed__walk_next(w));
}

bool heed__copy_elements(const heed_tensor *dst, const heed_tensor *src) {
  heed__walk w;
  const heed_tensor *const operands[] = {dst, src};
  if (!heed__walk_begin(&w, dst->ndim, dst->shape, 2, operands)) return true;
  heed__walk_turn(&w, operands);
  heed_context *ctx = dst->storage->context;
  const bool floats = dst->dtype == HEED_FLOAT32 && src->dtype == HEED_FLOAT32;
  copy c = {heed__kernels_of(ctx), dst->dtype, src->dtype,
            floats && w.stride[0] == 1 ? heed__walk_across(&w, 1) : 0};
  return heed__walk_divided_across(ctx, &w, HEED__ALIGNMENT, c.across, 1,
                                   c.across ? transpose_part : copy_part, &c);
}

/* A copy of x in dtype: a new row-major tensor, or written to *out as heed.h says of results. */
static heed_status copy_as(heed_context *ctx, const char *function, const heed_tensor *x, heed_dtype dtype,
                           heed_tensor **out) {
  heed__result result;
#if !HEED_MINIMAL
  if (heed__is_blocked(x->dtype) || heed__is_blocked(dtype))
    return heed__copy_blocked(ctx, function, x, dtype, out);
#endif
  heed_status status = heed__result_begin(ctx, function, &result, out, dtype, x->ndim, x->shape, true, 1, &x);
  if (status == HEED_OK && !heed__same_view(result.tensor, x) && !heed__copy_elements(result.tensor, x))
    status = heed__stopped(ctx, function);
  return heed__result_end(ctx, &result, status);
}

heed_status heed__clone(heed_context *ctx, const char *function, const heed_tensor *x, heed_tensor **out) {
  return copy_as(ctx, function, x, x->dtype, out);
}

heed_status heed_clone(heed_context *ctx, const heed_tensor *x, heed_tensor **out) {
  HEED__ENTER(ctx, "clone", out);
  HEED__ENTER_BLOCKED(ctx, "clone", x);
  return heed__recorded1(ctx, copy_as(ctx, "clone", x, x->dtype, out), HEED__OP_clone, x, NULL, 0, out);
}

heed_status heed_contiguous(heed_context *ctx, const heed_tensor *x, heed_tensor **out) {
  HEED__ENTER(ctx, "contiguous", out);
  HEED__ENTER_BLOCKED(ctx, "contiguous", x);
  if (!*out && heed_tensor_is_contiguous(x)) return heed__tensor_from_view(ctx, "contiguous", x, out);
  return heed__recorded1(ctx, copy_as(ctx, "contiguous", x, x->dtype, out), HEED__OP_contiguous, x, NULL, 0,
                         out);
}

heed_status heed_flip(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims,
                      heed_tensor **out) {
  HEED__ENTER(ctx, "flip", x, out);
  heed__result result;
  heed_tensor back; /* x read backwards: with negative strides, which only a walk can handle */
  uint32_t named;
  heed_status status = heed__check_dims(ctx, "flip", x->ndim, ndims, dims, &named);
  if (status) return status;
  status = heed__result_begin(ctx, "flip", &result, out, x->dtype, x->ndim, x->shape, false, 1, &x);
  if (status == HEED_OK && x->numel > 0) {
    heed__alias_on_stack(&back, x);
    for (int d = 0; d < x->ndim; d++) {
      if (!(named >> d & 1)) continue;
      back.data += (x->shape[d] - 1) * x->stride[d] * (ptrdiff_t)heed__element_bytes(x->dtype);
      back.stride[d] = -x->stride[d];
    }
    if (!heed__copy_elements(result.tensor, &back)) status = heed__stopped(ctx, "flip");
  }
  return heed__recorded1(ctx, heed__result_end(ctx, &result, status), HEED__OP_flip, x, &named, sizeof named,
                         out);
}

heed_status heed__to(heed_context *ctx, const char *function, const heed_tensor *x, heed_dtype dtype,
                     heed_tensor **out) {
  if (!*out && x->dtype == dtype) return heed__tensor_from_view(ctx, function, x, out);
  return heed__recorded1(ctx, copy_as(ctx, function, x, dtype, out), HEED__OP_to, x, NULL, 0, out);
}

heed_status heed_to(heed_context *ctx, const heed_tensor *x, heed_dtype dtype, heed_tensor **out) {
  HEED__ENTER(ctx, "to", out);
  if (!heed__is_any_dtype(dtype)) return heed__refuse_dtype(ctx, "to", "dtype", dtype);
  HEED__ENTER_BLOCKED(ctx, "to", x);
  return heed__to(ctx, "to", x, dtype, out);
}

heed_status heed__as_contiguous(heed_context *ctx, const char *function, const heed_tensor *x,
                                heed_dtype dtype, const heed_tensor **view, heed_tensor **made) {
  *made = NULL;
  *view = x;
  if (x->dtype == dtype && heed_tensor_is_contiguous(x)) return HEED_OK;
  const heed_status status = copy_as(ctx, function, x, dtype, made);
  *view = *made;
  return status;
}

void heed__expand_on_stack(heed_tensor *view, const heed_tensor *x, int ndim, const int64_t *shape) {
  heed__alias_on_stack(view, x);
  view->ndim = ndim;
  view->numel = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    const int own = d - (ndim - x->ndim);
    const int64_t size = own < 0 ? 1 : x->shape[own];
    view->shape[d] = shape[d];
    view->numel *= shape[d];
    if (size != shape[d])
      view->stride[d] = 0;
    else if (own >= 0)
      view->stride[d] = x->stride[own];
    else /* size 1: the stride that PyTorch gives it, which decides the order of dimensions in memory */
      view->stride[d] = d + 1 < ndim ? shape[d + 1] * view->stride[d + 1] : 1;
  }
}

heed_status heed__copy_if_overlapping(heed_context *ctx, const char *function, const heed_tensor *written,
                                      const heed_tensor **input, heed_tensor **made) {
  if (!heed__may_overlap(written, *input)) return HEED_OK;
  const heed_status status = copy_as(ctx, function, *input, (*input)->dtype, made);
  if (status == HEED_OK) *input = *made;
  return status;
}

heed_status heed__copy(heed_context *ctx, const char *function, heed_tensor *dst, const heed_tensor *src) {
  heed_tensor *made = NULL;
  heed_tensor *widened = NULL;
  heed_status status = HEED_OK;
  if (heed__is_blocked(src->dtype)) {
    status = heed__to(ctx, function, src, HEED_FLOAT32, &widened);
    if (status) return status;
    src = widened;
  }
  status = heed__check_expands(ctx, function, "the source", src, dst->ndim, dst->shape);
  if (status) goto done;
  if (heed__same_view(dst, src)) {
    if (ctx->recorder != NULL) status = ctx->recorder->check_write(ctx, function, dst);
    goto done;
  }
  status = heed__check_target(ctx, function, dst);
  if (status == HEED_OK) status = heed__charge(ctx, function, 2 * (double)dst->numel + 1);
  if (status) goto done;
  status = heed__copy_if_overlapping(ctx, function, dst, &src, &made);
  if (status == HEED_OK) status = heed__written(ctx, function, dst);
  if (status) goto done;
  if (!heed__copy_elements(dst, src)) status = heed__stopped(ctx, function);
done:
  heed_tensor_free(made);
  heed_tensor_free(widened);
  return status;
}

heed_status heed_copy(heed_context *ctx, heed_tensor *dst, const heed_tensor *src) {
  HEED__ENTER(ctx, "copy_", dst);
  HEED__ENTER_BLOCKED(ctx, "copy_", src);
  return heed__recorded1(ctx, heed__copy(ctx, "copy_", dst, src), HEED__OP_copy, src, NULL, 0, &dst);
}

heed_status heed__fill(heed_context *ctx, const char *function, heed_tensor *dst, heed_scalar value) {
  heed__number number;
  if (heed__copy_elements(dst, heed__number_tensor(&number, value))) return HEED_OK;
  return heed__stopped(ctx, function);
}

heed_status heed_fill(heed_context *ctx, heed_tensor *dst, heed_scalar value) {
  HEED__ENTER(ctx, "fill_", dst, value);
  heed_status status = heed__charge(ctx, "fill_", (double)dst->numel + 1);
  if (status == HEED_OK) status = heed__check_writable(ctx, "fill_", dst);
  if (status == HEED_OK) status = heed__fill(ctx, "fill_", dst, value);
  return heed__recorded(ctx, status, HEED__OP_fill, 0, NULL, NULL, 0, &dst);
}
