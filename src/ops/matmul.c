/* matmul and dot: products of tensors with any number of dimensions, as products of matrices. */
#include "map.h"

#include <string.h>

/* A product of matrices a [m, k] and b [k, n] with a row-major result. */
typedef struct matrices {
  int64_t m, n, k;
  ptrdiff_t a_row, a_column, b_row, b_column;
  bool reduced; /* multiplied in bfloat16: a_column is 1, and b_row or b_column */
} matrices;

#define INT64_SLICE ((int64_t)1 << 14) /* multiply-adds between cancellation checks */

/* Stops early at a cancellation check. */
static void multiply_int64(const matrices *p, const int64_t *a, const int64_t *b, int64_t *c,
                           const heed__pace *pace) {
  const int64_t sums = heed__max(1, INT64_SLICE / heed__max(p->k, 1)); /* between cancellation checks */
  int64_t left = sums;
  for (int64_t i = 0; i < p->m; i++, c += p->n) {
    for (int64_t j = 0; j < p->n; j++) {
      uint64_t sum = 0; /* wraps, like PyTorch's */
      if (--left == 0) {
        if (heed__is_due(pace)) return;
        left = sums;
      }
      for (int64_t t = 0; t < p->k; t++) {
        sum += (uint64_t)a[i * p->a_row + t * p->a_column] * (uint64_t)b[t * p->b_row + j * p->b_column];
        if (heed__is_due_at(pace, t)) return;
      }
      c[j] = (int64_t)sum;
    }
  }
}

/* Stops early at a cancellation check, which the caller must make too. Errors: MEMORY, if p->reduced. */
static heed_status multiply(heed_context *ctx, const char *function, const matrices *p, heed_dtype dtype,
                            const void *a, const void *b, void *c) {
  if (dtype == HEED_INT64) {
    multiply_int64(p, a, b, c, &ctx->pace);
    return HEED_OK;
  }
  if (p->reduced) {
    const heed__product product = {.m = p->m,
                                   .n = p->n,
                                   .k = p->k,
                                   .a = a,
                                   .b = b,
                                   .c = c,
                                   .a_row = p->a_row,
                                   .a_column = 1,
                                   .b_row = p->b_row,
                                   .b_column = p->b_column,
                                   .c_row = p->n};
    return heed__reduced_product(ctx, function, &product);
  }
  (void)!heed__gemm(ctx, p->m, p->n, p->k, a, p->a_row, p->a_column, b, p->b_row, p->b_column, NULL, c, p->n);
  return HEED_OK;
}

/* x with a dimension of size 1 added in front (or behind) if it has only one dimension. */
static void as_matrices(heed_tensor *view, const heed_tensor *x, bool behind) {
  heed__alias_on_stack(view, x);
  if (x->ndim > 1) return;
  view->ndim = 2;
  view->shape[behind ? 0 : 1] = x->shape[0];
  view->stride[behind ? 0 : 1] = x->stride[0];
  view->shape[behind ? 1 : 0] = 1;
  view->stride[behind ? 1 : 0] = 0;
}

/* The dimensions of x but the last two. */
static void batch_of(heed_tensor *view, const heed_tensor *x) {
  heed__alias_on_stack(view, x);
  view->ndim = x->ndim - 2;
  view->numel = heed__numel(view->ndim, view->shape, 1);
}

typedef struct batch_product {
  heed_context *ctx;
  const char *function;
  const matrices *product;
  heed_dtype dtype;
  heed_status status; /* of products in fewer bits, one after the other */
} batch_product;

/* The walk visits the first elements of the matrices of a, b and c. */
static void multiply_part(void *user, heed__walk *w, int worker) {
  batch_product *p = user;
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(p->dtype);
  (void)worker;
  bool more = true;
  while (more) {
    for (int64_t i = 0; i < w->count && !heed__is_due(&p->ctx->pace); i++) {
      const heed_status status =
          multiply(p->ctx, p->function, p->product, p->dtype, w->data[0] + i * w->stride[0] * bytes,
                   w->data[1] + i * w->stride[1] * bytes, w->data[2] + i * w->stride[2] * bytes);
      if (status) {
        p->status = status;
        return;
      }
    }
    more = !heed__is_due(&p->ctx->pace) && heed__walk_next(w);
  }
}

/* Multiply-adds of a product that gemm.c divides among threads itself, and of what heed__walk_divided counts
 * as one element of work. */
#define LARGE_PRODUCT ((double)(1 << 21))
#define AN_ELEMENT    16

/* c [batch..., m, n], row-major, from the matrices of a and b, whose leading dimensions broadcast to batch.
 * Errors: MEMORY, if p->reduced, or of a cancellation check. */
static heed_status multiply_batch(heed_context *ctx, const char *function, const matrices *p, int ndim,
                                  const int64_t *batch, const heed_tensor *a, const heed_tensor *b,
                                  const heed_tensor *c) {
  batch_product user = {ctx, function, p, c->dtype, HEED_OK};
  heed_tensor x, y, z;
  heed__walk w;
  batch_of(&x, a);
  batch_of(&y, b);
  heed__alias_on_stack(&z, c);
  z.ndim = ndim;
  heed__row_major(ndim, batch, z.stride);
  for (int d = 0; d < ndim; d++) {
    z.shape[d] = batch[d];
    z.stride[d] *= p->m * p->n;
  }
  if (!heed__walk_begin(&w, ndim, batch, 3, (const heed_tensor *const[]){&x, &y, &z})) return HEED_OK;
  const heed__product one = {.m = p->m,
                             .n = p->n,
                             .k = p->k,
                             .a_row = p->a_row,
                             .a_column = p->a_column,
                             .b_row = p->b_row,
                             .b_column = p->b_column,
                             .c_row = p->n};
  if (c->dtype == HEED_FLOAT32) heed__gemm_prepare(ctx, &one);
  const double work = (double)p->m * (double)p->n * (double)p->k;
  bool whole = true;
  if (work < LARGE_PRODUCT)
    whole = heed__walk_divided(ctx, &w, 1, (int64_t)work / AN_ELEMENT + 1, multiply_part, &user);
  else
    multiply_part(&user, &w, 0);
  if (user.status) return user.status;
  return whole && !heed__is_due(&ctx->pace) ? HEED_OK : heed__stopped(ctx, function);
}

/* Chooses bfloat16 for large float32 products, for which the rows of x and the rows or columns of y must be
 * contiguous: otherwise they are copied, to made[0] and made[1], which the caller frees. */
static heed_status choose_product(heed_context *ctx, const char *function, matrices *p, heed_tensor *x,
                                  heed_tensor *y, heed_tensor *made[2]) {
  enum { FEW = 64 }; /* columns, for fewer of which a copy of x costs more than it saves */
  const double work = (double)p->m * (double)p->n * (double)p->k;
  const int64_t *row = y->stride + y->ndim - 2, *column = row + 1;
  const bool close_x = x->stride[x->ndim - 1] == 1, close_y = *row == 1 || (*column == 1 && *row > 0);
  const heed_tensor *view;
  heed_status status;
  if (x->dtype != HEED_FLOAT32 || work < LARGE_PRODUCT || !heed__goes_reduced(ctx, p->m, p->n, p->k) ||
      (!close_x && p->n < FEW))
    return HEED_OK;
  if (!close_x) {
    if ((status = heed__as_contiguous(ctx, function, x, HEED_FLOAT32, &view, &made[0]))) return status;
    heed__alias_on_stack(x, view);
  }
  if (!close_y) {
    if ((status = heed__as_contiguous(ctx, function, y, HEED_FLOAT32, &view, &made[1]))) return status;
    heed__alias_on_stack(y, view);
  }
  p->reduced = true;
  return HEED_OK;
}

static heed_status check_matrix(heed_context *ctx, const char *function, const char *argument,
                                const heed_tensor *x) {
  if (x->ndim == 0) {
    return heed__fail(ctx, HEED_SHAPE, "%s: %s has no dimensions; it must have at least 1", function,
                      argument);
  }
  const heed_status status = heed__check_arithmetic(ctx, function, argument, x);
  if (status != HEED_OK) return status;
  if (x->dtype == HEED_BOOL) {
    return heed__fail(ctx, HEED_DTYPE, "%s: %s is bool; it must be float32 or int64", function, argument);
  }
  return HEED_OK;
}

static heed_status fail_inner(heed_context *ctx, const char *function, const heed_tensor *a,
                              const heed_tensor *b) {
  char a_text[HEED__SHAPE_TEXT], b_text[HEED__SHAPE_TEXT];
  int inner = b->ndim > 2 ? b->ndim - 2 : 0;
  if (a->shape[a->ndim - 1] == b->shape[inner])
    return heed__fail_pair(ctx, function, "a", a, "b", b, "the sizes before the last two must broadcast");
  heed__shape_text(a_text, a->ndim, a->shape);
  heed__shape_text(b_text, b->ndim, b->shape);
  return heed__fail(ctx, HEED_SHAPE,
                    "%s: a is %s and b is %s; the last size of a (%lld) must equal the %s size of b (%lld)",
                    function, a_text, b_text, (long long)a->shape[a->ndim - 1],
                    b->ndim > 2 ? "second to last" : "first", (long long)b->shape[inner]);
}

static heed_status matmul(heed_context *ctx, const char *function, const heed_tensor *a, const heed_tensor *b,
                          heed_tensor **out) {
  heed_tensor *converted_a = NULL, *converted_b = NULL, *made[2] = {NULL, NULL};
  heed__result result = {0};
  heed_status status;
  if ((status = check_matrix(ctx, function, "a", a))) return status;
  if ((status = check_matrix(ctx, function, "b", b))) return status;

  heed_tensor x, y;
  as_matrices(&x, a, false);
  as_matrices(&y, b, true);
  matrices p = {.m = x.shape[x.ndim - 2], .n = y.shape[y.ndim - 1], .k = x.shape[x.ndim - 1]};
  int batch_ndim = 0;
  int64_t batch[HEED_MAX_DIMS], shape[HEED_MAX_DIMS];
  if (p.k != y.shape[y.ndim - 2] || !heed__broadcast(&batch_ndim, batch, x.ndim - 2, x.shape) ||
      !heed__broadcast(&batch_ndim, batch, y.ndim - 2, y.shape)) {
    return fail_inner(ctx, function, a, b);
  }
  int ndim = batch_ndim;
  for (int i = 0; i < ndim; i++) shape[i] = batch[i];
  if (a->ndim > 1) shape[ndim++] = p.m;
  if (b->ndim > 1) shape[ndim++] = p.n;
  const heed_dtype dtype = heed__wider(a->dtype, b->dtype);
  double products = (double)p.m * (double)p.n * (double)p.k;
  for (int i = 0; i < batch_ndim; i++) products *= (double)batch[i];
  if ((status = heed__charge(ctx, function, products))) return status;
  status = heed__result_begin_row_major(ctx, function, &result, out, dtype, ndim, shape, 2,
                                        (const heed_tensor *const[]){a, b});
  if (status) return status;
  if (a->dtype != dtype) {
    if ((status = heed__to(ctx, function, a, dtype, &converted_a))) goto done;
    as_matrices(&x, converted_a, false);
  }
  if (b->dtype != dtype) {
    if ((status = heed__to(ctx, function, b, dtype, &converted_b))) goto done;
    as_matrices(&y, converted_b, true);
  }
  if (result.tensor->numel == 0) goto done;

  /* With a single b, the matrices of a are one matrix if all their rows are evenly spaced. */
  int64_t rows = p.m * heed__numel(batch_ndim, batch, 1), stride[2];
  if (x.ndim > 2 && x.numel > 0 && heed__numel(y.ndim - 2, y.shape, 1) == 1 &&
      heed__view_strides(&x, 2, (const int64_t[]){rows, p.k}, stride)) {
    x.ndim = 2;
    x.shape[0] = rows;
    x.shape[1] = p.k;
    memcpy(x.stride, stride, sizeof stride);
    p.m = rows;
    batch_ndim = 0;
  }
  if ((status = choose_product(ctx, function, &p, &x, &y, made))) goto done;
  p.a_row = x.stride[x.ndim - 2];
  p.a_column = x.stride[x.ndim - 1];
  p.b_row = y.stride[y.ndim - 2];
  p.b_column = y.stride[y.ndim - 1];
  status = multiply_batch(ctx, function, &p, batch_ndim, batch, &x, &y, result.tensor);
done:
  heed_tensor_free(made[0]);
  heed_tensor_free(made[1]);
  heed_tensor_free(converted_a);
  heed_tensor_free(converted_b);
  return heed__result_end(ctx, &result, status);
}

heed_status heed_matmul(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, heed_tensor **out) {
  HEED__ENTER(ctx, "matmul", a, b, out);
  return heed__recorded2(ctx, matmul(ctx, "matmul", a, b, out), HEED__OP_matmul, a, b, out);
}

heed_status heed_dot(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, heed_tensor **out) {
  HEED__ENTER(ctx, "dot", a, b, out);
  if (a->ndim != 1 || b->ndim != 1) {
    return heed__fail_pair(ctx, "dot", "a", a, "b", b, "both must have 1 dimension");
  }
  return heed__recorded2(ctx, matmul(ctx, "dot", a, b, out), HEED__OP_dot, a, b, out);
}
