/* linear and linear_int8: x · weightᵀ + bias; the weight is float32 or low-precision. */
#include "ops.h"

/* ---- Checks ---- */

static heed_status check_weight(heed_context *ctx, const char *function, const heed_tensor *weight,
                                const heed_tensor *scale) {
  char text[HEED__SHAPE_TEXT];
  if (scale != NULL) return heed__check_int8_weight(ctx, function, weight, scale);
  if (weight->dtype == HEED_INT8)
    return heed__fail(ctx, HEED_DTYPE,
                      "%s: weight is int8; it must be float32, bfloat16 or float16 (linear_int8 takes int8 "
                      "with its scales)",
                      function);
  if (weight->dtype != HEED_BFLOAT16 && weight->dtype != HEED_FLOAT16 && !heed__is_blocked(weight->dtype)) {
    const heed_status status = heed__check_dtype(ctx, function, "weight", weight, HEED_FLOAT32);
    if (status != HEED_OK) return status;
  }
  if (weight->ndim == 2) return HEED_OK;
  return heed__fail(ctx, HEED_SHAPE, "%s: weight is %s; it must have 2 dimensions", function,
                    heed__shape_text(text, weight->ndim, weight->shape));
}

static heed_status check_linear(heed_context *ctx, const char *function, const heed_tensor *x,
                                const heed_tensor *weight, const heed_tensor *scale,
                                const heed_tensor *bias) {
  char text[HEED__SHAPE_TEXT], weight_text[HEED__SHAPE_TEXT];
  heed_status status;
  if ((status = heed__check_dtype(ctx, function, "x", x, HEED_FLOAT32))) return status;
  if ((status = check_weight(ctx, function, weight, scale))) return status;
  if (bias && (status = heed__check_dtype(ctx, function, "bias", bias, HEED_FLOAT32))) return status;
  if (x->ndim == 0) {
    return heed__fail(ctx, HEED_SHAPE, "%s: x has no dimensions; it must have at least 1", function);
  }
  const int64_t k = x->shape[x->ndim - 1];
  if (k != weight->shape[1]) {
    return heed__fail(
        ctx, HEED_SHAPE,
        "%s: x is %s and weight is %s; the last size of x (%lld) must equal the last size of weight (%lld)",
        function, heed__shape_text(text, x->ndim, x->shape), heed__shape_text(weight_text, 2, weight->shape),
        (long long)k, (long long)weight->shape[1]);
  }
  if (bias && (bias->ndim != 1 || bias->shape[0] != weight->shape[0])) {
    return heed__fail(ctx, HEED_SHAPE, "%s: bias is %s and weight is %s; bias must be [%lld]", function,
                      heed__shape_text(text, bias->ndim, bias->shape),
                      heed__shape_text(weight_text, 2, weight->shape), (long long)weight->shape[0]);
  }
  return HEED_OK;
}

/* ---- Low-precision weights ---- */

/* Multiply-adds of a slice: waking a thread for less costs more than it saves. The division depends on the
 * sizes alone, so that results do not depend on the number of threads. Fewer rows take as long as MEMORY
 * ones, since they wait for the memory of the weight. */
#define LOWP_SLICE     ((int64_t)1 << 21)
#define MEMORY         8
#define MEMORY_COLUMNS 64

/* Elements of 16 bits that usually fit the second-level cache. */
#define LOWP_NEAR ((int64_t)1 << 18)

static bool multiply_lowp_slice(void *argument, int64_t i, int slot, int64_t *position) {
  const heed__lowp_work *d = argument;
  const int64_t row = i / d->across * d->rows, column = i % d->across * d->columns;
  heed__lowp_task t = d->whole;
  (void)slot;
  const int64_t m = (int64_t)t.m - row, n = (int64_t)t.n - column;
  t.m = (size_t)heed__min(m, d->rows);
  t.n = (size_t)heed__min(n, d->columns);
  t.x += row * t.x_row;
  t.w = (const char *)t.w + heed__row_bytes(t.dtype, column * t.w_row);
  if (t.scale) t.scale += column * t.scale_row;
  if (t.bias) t.bias += column;
  t.c += row * t.c_row + column;
  return d->kernels->lowp(&t, d->work.pace, position);
}

/* ---- In fewer bits ---- */

/* Rows that one task packs. */
#define PACKED_ROWS 16

static bool pack_slice(void *argument, int64_t i, int slot, int64_t *position) {
  const heed__lowp_work *d = argument;
  const size_t row = (size_t)i * PACKED_ROWS;
  const heed__reduced_task task = {.whole = d->whole,
                                   .packed = d->packed,
                                   .row = row,
                                   .rows = heed__min_size(d->whole.m - row, PACKED_ROWS)};
  (void)slot;
  (void)position;
  d->kernels->reduced_pack(&task);
  return true;
}

static bool multiply_reduced_slice(void *argument, int64_t i, int slot, int64_t *position) {
  const heed__lowp_work *d = argument;
  const int64_t row = i / d->across * d->rows, column = i % d->across * d->columns;
  const heed__reduced_task task = {.whole = d->whole,
                                   .packed = d->packed,
                                   .scratch = (char *)d->scratch + (size_t)slot * d->scratch_each,
                                   .row = (size_t)row,
                                   .rows = (size_t)heed__min((int64_t)d->whole.m - row, d->rows),
                                   .column = (size_t)column,
                                   .columns = (size_t)heed__min((int64_t)d->whole.n - column, d->columns)};
  return d->kernels->reduced(&task, d->work.pace, position);
}

/* The bytes of x as the kernels pack it for a product in fewer bits, and those of *scratch for each worker; 0
 * where the context's precision or its kernels do not compute it so. */
static size_t reduced_bytes(const heed_context *ctx, const heed__lowp_task *t, size_t *scratch) {
  const bool stored = t->dtype == HEED_BFLOAT16 || t->dtype == HEED_INT8 || heed__is_blocked(t->dtype);
  if (ctx->precision == HEED_PRECISION_HIGHEST || (!stored && ctx->precision == HEED_PRECISION_HIGH))
    return 0;
  return heed__kernels_of(ctx)->reduced_bytes(t, scratch);
}

/* Begins a product of which reduced_bytes is above 0. Errors: MEMORY. */
static heed_status begin_reduced(heed_context *ctx, const char *function, heed__lowp_work *d,
                                 const heed__lowp_task *t) {
  enum {
    COLUMNS = 192,
    ROWS = 512,
    WORK = 1 << 24 /* multiply-adds of a slice */
  };               /* a slice's columns are a multiple of COLUMNS */
  size_t each;
  const size_t bytes = reduced_bytes(ctx, t, &each);
  each = (each + HEED__ALIGNMENT - 1) / HEED__ALIGNMENT * HEED__ALIGNMENT;
  const int workers = heed__workers(ctx);
  *d = (heed__lowp_work){.kernels = heed__kernels_of(ctx), .whole = *t, .scratch_each = each};
  d->packed = heed__allocate(ctx, bytes);
  if (d->packed == NULL) return heed__fail_memory(ctx, function, bytes);
  if (each > 0) d->scratch = heed__allocate(ctx, (size_t)workers * each);
  if (each > 0 && d->scratch == NULL) {
    heed__release(ctx, d->packed);
    return heed__fail_memory(ctx, function, (size_t)workers * each);
  }
  const int64_t m = (int64_t)t->m, n = (int64_t)t->n;
  d->rows = heed__part_of(m, ROWS, HEED__REDUCED_ROWS);
  const bool few = m < MEMORY;
  const double columns =
      few ? (double)LOWP_SLICE / (MEMORY * (double)t->k) : (double)WORK / ((double)d->rows * (double)t->k);
  const int64_t part = few ? MEMORY_COLUMNS : COLUMNS;
  d->columns = columns < (double)n ? heed__part_of(n, heed__max(part, (int64_t)columns), part) : n;
  d->across = heed__parts(n, d->columns);
  heed__work_begin(ctx, &d->packing, workers, heed__parts(m, PACKED_ROWS), pack_slice, d);
  heed__work_begin(ctx, &d->work, workers, d->across * heed__parts(m, d->rows), multiply_reduced_slice, d);
  return HEED_OK;
}

static bool run_lowp(heed_context *ctx, heed__lowp_work *d) {
  return (d->packed == NULL || heed__work_run(ctx, &d->packing)) && heed__work_run(ctx, &d->work);
}

static void end_lowp(heed_context *ctx, heed__lowp_work *d) {
  heed__work_end(ctx, &d->work);
  if (d->packed == NULL) return;
  heed__work_end(ctx, &d->packing);
  heed__release(ctx, d->packed);
  heed__release(ctx, d->scratch);
}

/* A product whose b has contiguous rows or columns */
static heed__lowp_task as_lowp(const heed__product *p) {
  return (heed__lowp_task){.m = (size_t)p->m,
                           .n = (size_t)p->n,
                           .k = (size_t)p->k,
                           .x = p->a,
                           .w = p->b,
                           .dtype = HEED_FLOAT32,
                           .x_row = p->a_row,
                           .w_row = p->b_row == 1 ? p->b_column : 1,
                           .w_column = p->b_row == 1 ? 0 : p->b_row,
                           .bias = p->bias,
                           .c = p->c,
                           .c_row = p->c_row};
}

bool heed__goes_reduced(const heed_context *ctx, int64_t m, int64_t n, int64_t k) {
  enum { FEW = 16 }; /* columns, for fewer of which packing a costs more than it saves */
  const heed__lowp_task task = {.m = (size_t)m, .n = (size_t)n, .k = (size_t)k, .dtype = HEED_FLOAT32};
  size_t unused;
  return n >= FEW && reduced_bytes(ctx, &task, &unused) > 0;
}

heed_status heed__reduced_product(heed_context *ctx, const char *function, const heed__product *p) {
  const heed__lowp_task task = as_lowp(p);
  heed__lowp_work d;
  const heed_status status = begin_reduced(ctx, function, &d, &task);
  if (status) return status;
  const bool whole = run_lowp(ctx, &d);
  end_lowp(ctx, &d);
  return whole ? HEED_OK : heed__stopped(ctx, function);
}

static heed_status begin_lowp(heed_context *ctx, const char *function, heed__lowp_work *d,
                              const heed__lowp_task *t) {
  const int64_t m = (int64_t)t->m, n = (int64_t)t->n, k = heed__max((int64_t)t->k, 1);
  size_t unused;
  if (reduced_bytes(ctx, t, &unused) > 0) return begin_reduced(ctx, function, d, t);
  d->kernels = heed__kernels_of(ctx);
  d->whole = *t;
  d->packed = NULL;
  d->rows = m;
  d->columns = n;
  const double columns = (double)LOWP_SLICE / ((double)heed__max(m, MEMORY) * (double)k);
  if (columns < (double)n)
    d->columns = heed__part_of(n, heed__max(MEMORY_COLUMNS, (int64_t)columns), MEMORY_COLUMNS);
  const double rows = (double)LOWP_SLICE / ((double)d->columns * (double)k);
  if (rows < (double)m) d->rows = heed__part_of(m, heed__max(384, (int64_t)rows), 12);
  d->across = heed__parts(n, d->columns);
  heed__work_begin(ctx, &d->work, heed__workers(ctx), d->across * heed__parts(m, d->rows),
                   multiply_lowp_slice, d);
  return HEED_OK;
}

/* Replaces *x by a copy, which the caller frees as *made, if its rows are not contiguous. */
static heed_status close_rows(heed_context *ctx, const char *function, const heed_tensor **x,
                              heed_tensor **made) {
  if ((*x)->shape[1] <= 1 || (*x)->stride[1] == 1) return HEED_OK;
  return heed__as_contiguous(ctx, function, *x, (*x)->dtype, x, made);
}

/* ---- linear ---- */

static void free_made(heed__linear_work *l) {
  for (int i = 0; i < 4; i++) heed_tensor_free(l->made[i]);
}

/* Prepares the operands for the kernels and begins the work; l->result has begun. */
static heed_status begin_product(heed_context *ctx, heed__linear_work *l, const heed_tensor *x,
                                 const heed_tensor *weight, const heed_tensor *scale,
                                 const heed_tensor *bias) {
  const char *function = l->function;
  const int64_t k = weight->shape[1], n = weight->shape[0];
  const int64_t m = heed__quotient(l->result.tensor->numel, n);
  int64_t stride[2] = {k, 1};
  heed_status status;
  if (x->numel > 0 &&
      (!heed__view_strides(x, 2, (const int64_t[]){m, k}, stride) || (l->lowp && k > 1 && stride[1] != 1))) {
    if ((status = heed__as_contiguous(ctx, function, x, HEED_FLOAT32, &x, &l->made[0]))) return status;
    stride[0] = k;
    stride[1] = 1;
  }
  if (bias && (status = heed__as_contiguous(ctx, function, bias, HEED_FLOAT32, &bias, &l->made[1])))
    return status;
  const float *offset = bias ? (const float *)bias->data : NULL;
  float *c = (float *)l->result.tensor->data;
  if (weight->dtype == HEED_FLOAT32) {
    const heed__product p = {.m = m,
                             .n = n,
                             .k = k,
                             .a = (const float *)x->data,
                             .b = (const float *)weight->data,
                             .bias = offset,
                             .c = c,
                             .a_row = stride[0],
                             .a_column = stride[1],
                             .b_row = weight->stride[1],
                             .b_column = weight->stride[0],
                             .c_row = n};
    if (!l->lowp) {
      heed__gemm_begin(ctx, &l->as.gemm, &p);
      return HEED_OK;
    }
    const heed__lowp_task task = as_lowp(&p);
    return begin_reduced(ctx, function, &l->as.lowp, &task);
  }
  if ((status = close_rows(ctx, function, &weight, &l->made[2]))) return status;
  if (scale && (status = close_rows(ctx, function, &scale, &l->made[3]))) return status;
  const heed__lowp_task task = {.m = (size_t)m,
                                .n = (size_t)n,
                                .k = (size_t)k,
                                .x = (const float *)x->data,
                                .w = weight->data,
                                .scale = scale ? (const float *)scale->data : NULL,
                                .dtype = weight->dtype,
                                .x_row = stride[0],
                                .w_row = weight->stride[0],
                                .scale_row = scale ? scale->stride[0] : 0,
                                .bias = offset,
                                .c = c,
                                .c_row = n,
                                .far = n * k > LOWP_NEAR};
  return begin_lowp(ctx, function, &l->as.lowp, &task);
}

/* Whether a float32 weight is multiplied in bfloat16: its rows must be contiguous. */
static bool goes_reduced(const heed_context *ctx, const heed_tensor *x, const heed_tensor *weight) {
  return weight->numel > 0 && weight->stride[1] == 1 &&
         heed__goes_reduced(ctx, heed__quotient(x->numel, weight->shape[1]), weight->shape[0],
                            weight->shape[1]);
}

heed_status heed__linear_begin(heed_context *ctx, heed__linear_work *l, const char *function,
                               const heed_tensor *x, const heed_tensor *weight, const heed_tensor *scale,
                               const heed_tensor *bias, heed_tensor **out) {
  heed_status status = check_linear(ctx, function, x, weight, scale, bias);
  if (status) return status;
  int64_t shape[HEED_MAX_DIMS];
  for (int i = 0; i < x->ndim; i++) shape[i] = x->shape[i];
  shape[x->ndim - 1] = weight->shape[0];
  status = heed__charge(ctx, function, (double)x->numel * (double)weight->shape[0]);
  if (status) return status;
  status = heed__result_begin_row_major(ctx, function, &l->result, out, HEED_FLOAT32, x->ndim, shape, 4,
                                        (const heed_tensor *const[]){x, weight, bias, scale});
  if (status) return status;
  l->function = function;
  l->lowp = weight->dtype != HEED_FLOAT32 || goes_reduced(ctx, x, weight);
  l->empty = l->result.tensor->numel == 0;
  for (int i = 0; i < 4; i++) l->made[i] = NULL;
  if (l->empty) return HEED_OK;
  status = begin_product(ctx, l, x, weight, scale, bias);
  if (status == HEED_OK) return HEED_OK;
  free_made(l);
  return heed__result_end(ctx, &l->result, status);
}

bool heed__linear_run(heed_context *ctx, heed__linear_work *l) {
  if (l->empty) return true;
  return l->lowp ? run_lowp(ctx, &l->as.lowp) : heed__gemm_run(ctx, &l->as.gemm);
}

heed_status heed__linear_end(heed_context *ctx, heed__linear_work *l, heed_status status) {
  if (!l->empty && l->lowp) end_lowp(ctx, &l->as.lowp);
  if (!l->empty && !l->lowp) heed__gemm_end(ctx, &l->as.gemm);
  free_made(l);
  return heed__result_end(ctx, &l->result, status);
}

double heed__linear_progress(const heed__linear_work *l) {
  if (l->empty || (!l->lowp && !l->as.gemm.divided)) return 0;
  return heed__work_progress(l->lowp ? &l->as.lowp.work : &l->as.gemm.work);
}

static heed_status apply_linear(heed_context *ctx, const char *function, const heed_tensor *x,
                                const heed_tensor *weight, const heed_tensor *scale, const heed_tensor *bias,
                                heed_tensor **out) {
  heed__linear_work l;
  heed_status status = heed__linear_begin(ctx, &l, function, x, weight, scale, bias, out);
  if (status) return status;
  if (!heed__linear_run(ctx, &l)) status = heed__stopped(ctx, function);
  status = heed__linear_end(ctx, &l, status);
  const heed_tensor *const inputs[] = {x, weight, scale != NULL ? scale : bias, bias};
  return heed__recorded(ctx, status, scale != NULL ? HEED__OP_linear_int8 : HEED__OP_linear,
                        scale != NULL ? 4 : 3, inputs, NULL, 0, out);
}

heed_status heed__linear(heed_context *ctx, const char *function, const heed_tensor *x,
                         const heed_tensor *weight, const heed_tensor *bias, heed_tensor **out) {
  return apply_linear(ctx, function, x, weight, NULL, bias, out);
}

heed_status heed_linear(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                        const heed_tensor *bias, heed_tensor **out) {
  HEED__ENTER(ctx, "linear", x, out);
  HEED__ENTER_BLOCKED(ctx, "linear", weight);
  HEED__MAY_ENTER(ctx, "linear", bias);
  return apply_linear(ctx, "linear", x, weight, NULL, bias, out);
}

heed_status heed__linear_int8(heed_context *ctx, const char *function, const heed_tensor *x,
                              const heed_tensor *weight, const heed_tensor *scale, const heed_tensor *bias,
                              heed_tensor **out) {
  if (scale == NULL) return heed__fail(ctx, HEED_ARGUMENT, "%s: scale is missing (NULL)", function);
  return apply_linear(ctx, function, x, weight, scale, bias, out);
}

heed_status heed_linear_int8(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                             const heed_tensor *scale, const heed_tensor *bias, heed_tensor **out) {
  HEED__ENTER(ctx, "linear_int8", x, weight, scale, out);
  HEED__MAY_ENTER(ctx, "linear_int8", bias);
  return heed__linear_int8(ctx, "linear_int8", x, weight, scale, bias, out);
}
