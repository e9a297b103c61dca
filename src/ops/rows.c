/* Functions of whole rows: softmax, normalisation, cumulative sums. */
#include "ops.h"

/* ---- Applying a kernel to rows of float32 ---- */

#define FLOATS_ON_STACK 1024              /* floats */
#define ABREAST         HEED__TILE        /* lanes done together: a cache line holds an element of each */
#define LONG_LANE       ((size_t)1 << 12) /* elements of each lane between cancellation checks */
#define GAP             16 /* floats between lanes in scratch: lanes of 2^n would share cache sets */

typedef void row_function(const void *user, float *out, const float *x, size_t n);

/* Lanes: the elements of a lane are `stride` apart, the lanes `step`. */
typedef struct lanes {
  float *data;
  ptrdiff_t stride, step;
} lanes;

/* A transpose, where one side has its lanes side by side and the other one after another. */
static void move_some(const heed__kernels *kernels, lanes to, lanes from, size_t n, size_t count) {
  if (to.stride == 1 && from.step == 1) {
    kernels->transpose(to.data, to.step, from.data, from.stride, n, count);
  } else if (to.step == 1 && from.stride == 1) {
    kernels->transpose(to.data, to.stride, from.data, from.step, count, n);
  } else {
    for (size_t l = 0; l < count; l++, to.data += to.step, from.data += from.step)
      heed__copy_row(HEED_FLOAT32, to.data, to.stride, HEED_FLOAT32, from.data, from.stride, (int64_t)n);
  }
}

/* Copies `from` to `to`; stops early at a cancellation check. */
static void move_lanes(const heed__kernels *kernels, const heed__pace *pace, lanes to, lanes from, size_t n,
                       size_t count) {
  for (size_t first = 0; first < n; first += LONG_LANE) {
    if (first > 0 && heed__is_due(pace)) return;
    const lanes some_to = {to.data + (ptrdiff_t)first * to.stride, to.stride, to.step};
    const lanes some_from = {from.data + (ptrdiff_t)first * from.stride, from.stride, from.step};
    move_some(kernels, some_to, some_from, n - first < LONG_LANE ? n - first : LONG_LANE, count);
  }
}

typedef struct row_job {
  const heed__kernels *kernels;
  const heed__pace *pace;
  row_function *row;
  const void *user;
  float *scratch; /* for lanes that are not contiguous */
  size_t floats;  /* of scratch for each worker: up to ABREAST lanes */
} row_job;

static void run_lanes(const row_job *j, lanes out, lanes x, size_t n, size_t count, float *scratch) {
  const lanes packed = {scratch, 1, (ptrdiff_t)n + GAP};
  const lanes from = x.stride == 1 ? x : packed, to = out.stride == 1 ? out : packed;
  if (x.stride != 1) move_lanes(j->kernels, j->pace, packed, x, n, count);
  for (size_t l = 0; l < count; l++) {
    if (n >= LONG_LANE && heed__is_due(j->pace)) return;
    j->row(j->user, to.data + (ptrdiff_t)l * to.step, from.data + (ptrdiff_t)l * from.step, n);
  }
  if (out.stride != 1) move_lanes(j->kernels, j->pace, out, packed, n, count);
}

static lanes lanes_of(const heed__walk *w, int operand, int64_t first) {
  const ptrdiff_t step = w->dims > 1 ? w->step[operand][1] / (ptrdiff_t)sizeof(float) : 0;
  return (lanes){(float *)(void *)w->data[operand] + first * step, w->stride[operand], step};
}

static void rows_part(void *user, heed__walk *w, int worker) {
  const row_job *j = user;
  float *scratch = j->scratch + (size_t)worker * j->floats;
  const int64_t side = w->dims > 1 ? w->size[1] : 1;
  if (w->dims > 1) w->size[1] = 1; /* the loop below does all of this dimension */
  do {
    for (int64_t first = 0; first < side; first += ABREAST)
      run_lanes(j, lanes_of(w, 0, first), lanes_of(w, 1, first), (size_t)w->count,
                (size_t)heed__min(side - first, ABREAST), scratch);
  } while (heed__walk_next(w));
}

/* out = row(x) along dim (from 0) of a float32 x; the function also reads `others`. */
static heed_status map_rows(heed_context *ctx, const char *function, row_function *row, const void *user,
                            const heed_tensor *x, int dim, int nothers, const heed_tensor *const *others,
                            heed_tensor **out) {
  heed__result result = {0};
  float on_stack[FLOATS_ON_STACK];
  void *block = NULL;
  row_job job = {heed__kernels_of(ctx), &ctx->pace, row, user, on_stack, 0};
  heed__walk w;
  const heed_tensor *inputs[3] = {x};
  for (int i = 0; i < nothers; i++) inputs[i + 1] = others[i];
  heed_status status = heed__result_begin(ctx, function, &result, out, HEED_FLOAT32, x->ndim, x->shape, true,
                                          nothers + 1, inputs);
  if (status != HEED_OK) goto done;
  if (!heed__walk_lanes_begin(&w, x->ndim, x->shape, dim, 2, (const heed_tensor *const[]){result.tensor, x}))
    goto done;
  if (w.stride[0] != 1 || w.stride[1] != 1) {
    const int64_t side = w.dims > 1 ? w.size[1] : 1;
    job.floats = (size_t)((w.count + GAP) * heed__min(side, ABREAST));
    const size_t bytes =
        heed__array_bytes((uint64_t)heed__workers(ctx), heed__array_bytes(job.floats, sizeof(float)));
    if (bytes > sizeof on_stack) {
      job.scratch = block = heed__allocate(ctx, bytes);
      if (block == NULL) {
        status = heed__fail_memory(ctx, function, bytes);
        goto done;
      }
    }
  }
  /* Lanes side by side share cache lines, each of which should be read once (Zen 4: softmax along the first
   * dimension of [65536, 16] takes 720 µs instead of 2400). */
  const int across =
      w.dims > 1 && (heed__walk_lies_across(&w, 0, 1) || heed__walk_lies_across(&w, 1, 1)) ? 1 : 0;
  if (!heed__walk_divided_across(ctx, &w, 0, across, 1, rows_part, &job))
    status = heed__stopped(ctx, function);
done:
  heed__release(ctx, block);
  return heed__result_end(ctx, &result, status);
}

/* ---- Softmax ---- */

static void kernel_row(const void *user, float *out, const float *x, size_t n) {
  heed__unary_kernel *const *kernel = user;
  (*kernel)(out, x, n);
}

static heed_status softmax(heed_context *ctx, const char *function, heed__op op, heed__unary_kernel *kernel,
                           const heed_tensor *x, int dim, heed_tensor **out) {
  int d = 0;
  heed_status status = heed__check_dtype(ctx, function, "x", x, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  status = heed__check_dim(ctx, function, x->ndim, dim, &d);
  if (status != HEED_OK) return status;
  status = map_rows(ctx, function, kernel_row, &kernel, x, d, 0, NULL, out);
  return heed__recorded1(ctx, status, op, x, &d, sizeof d, out);
}

heed_status heed_softmax(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out) {
  HEED__ENTER(ctx, "softmax", x, out);
  return softmax(ctx, "softmax", HEED__OP_softmax, heed__kernels_of(ctx)->softmax, x, dim, out);
}

heed_status heed_log_softmax(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out) {
  HEED__ENTER(ctx, "log_softmax", x, out);
  return softmax(ctx, "log_softmax", HEED__OP_log_softmax, heed__kernels_of(ctx)->log_softmax, x, dim, out);
}

/* ---- Normalisation ---- */

typedef struct row_norm {
  const heed__kernels *kernels;
  const float *weight, *bias;
  float epsilon;
} row_norm;

static void layer_norm_row(const void *user, float *out, const float *x, size_t n) {
  const row_norm *s = user;
  s->kernels->layer_norm(out, x, s->weight, s->bias, s->epsilon, n);
}

static void rms_norm_row(const void *user, float *out, const float *x, size_t n) {
  const row_norm *s = user;
  s->kernels->rms_norm(out, x, s->weight, s->epsilon, n);
}

/* The contiguous elements of a weight or bias, whose shape must be the last ndims sizes of x; NULL stays
 * NULL. The caller frees *made. */
static heed_status norm_parameter(heed_context *ctx, const char *function, const char *name,
                                  const heed_tensor *x, int ndims, const heed_tensor *parameter,
                                  const float **data, heed_tensor **made) {
  char text[HEED__SHAPE_TEXT], x_text[HEED__SHAPE_TEXT], wanted[HEED__SHAPE_TEXT];
  const heed_tensor *packed;
  if (parameter == NULL) return HEED_OK;
  const int64_t *sizes = x->shape + x->ndim - ndims;
  heed_status status = heed__check_dtype(ctx, function, name, parameter, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  if (!heed__same_shape(parameter->ndim, parameter->shape, ndims, sizes))
    return heed__fail(ctx, HEED_SHAPE, "%s: %s is %s and x is %s; %s must be %s, the last size%s of x",
                      function, name, heed__shape_text(text, parameter->ndim, parameter->shape),
                      heed__shape_text(x_text, x->ndim, x->shape), name,
                      heed__shape_text(wanted, ndims, sizes), ndims > 1 ? "s" : "");
  status = heed__as_contiguous(ctx, function, parameter, HEED_FLOAT32, &packed, made);
  if (status == HEED_OK) *data = (const float *)packed->data;
  return status;
}

/* A header on x with its last ndims dimensions merged into one; false if their strides do not allow it. */
static bool merge_last(heed_tensor *view, const heed_tensor *x, int ndims) {
  heed__alias_on_stack(view, x);
  view->ndim = x->ndim - ndims + 1;
  for (int i = view->ndim; i < x->ndim; i++) view->shape[view->ndim - 1] *= x->shape[i];
  return heed__view_strides(x, view->ndim, view->shape, view->stride);
}

/* map_rows along the last ndims dimensions of x, merged into one. */
static heed_status map_merged(heed_context *ctx, const char *function, row_function *row, const void *user,
                              const heed_tensor *x, int ndims, int nothers, const heed_tensor *const *others,
                              heed_tensor **out) {
  if (ndims == 1) return map_rows(ctx, function, row, user, x, x->ndim - 1, nothers, others, out);
  heed__result result = {0};
  heed_tensor from, to, *into = &to, *made = NULL;
  heed_status status =
      heed__result_begin_row_major(ctx, function, &result, out, HEED_FLOAT32, x->ndim, x->shape, 1, &x);
  if (status != HEED_OK) return status;
  if (!merge_last(&from, x, ndims)) {
    status = heed__clone(ctx, function, x, &made);
    if (status != HEED_OK) goto done;
    merge_last(&from, made, ndims);
  }
  merge_last(&to, result.tensor, ndims);
  status = map_rows(ctx, function, row, user, &from, to.ndim - 1, nothers, others, &into);
done:
  heed_tensor_free(made);
  return heed__result_end(ctx, &result, status);
}

static heed_status normalise(heed_context *ctx, const char *function, row_function *row, const heed_tensor *x,
                             int ndims, const heed_tensor *weight, const heed_tensor *bias, double epsilon,
                             heed_tensor **out) {
  row_norm user = {.kernels = heed__kernels_of(ctx), .epsilon = (float)epsilon};
  heed_tensor *made_weight = NULL, *made_bias = NULL;
  const heed_tensor *others[] = {weight, bias};
  heed_status status = heed__check_dtype(ctx, function, "x", x, HEED_FLOAT32);
  if (status != HEED_OK) goto done;
  if (x->ndim < ndims) {
    char text[HEED__SHAPE_TEXT];
    status = x->ndim == 0
                 ? heed__fail(ctx, HEED_SHAPE, "%s: x has no dimensions; it must have at least %d", function,
                              ndims)
                 : heed__fail(ctx, HEED_SHAPE, "%s: x is %s; it must have at least %d dimension%s", function,
                              heed__shape_text(text, x->ndim, x->shape), ndims, HEED__S(ndims));
    goto done;
  }
  status = norm_parameter(ctx, function, "weight", x, ndims, weight, &user.weight, &made_weight);
  if (status != HEED_OK) goto done;
  status = norm_parameter(ctx, function, "bias", x, ndims, bias, &user.bias, &made_bias);
  if (status != HEED_OK) goto done;
  status = map_merged(ctx, function, row, &user, x, ndims, 2, others, out);
done:
  heed_tensor_free(made_weight);
  heed_tensor_free(made_bias);
  return status;
}

heed_status heed__layer_norm(heed_context *ctx, const char *function, const heed_tensor *x, int ndims,
                             const heed_tensor *weight, const heed_tensor *bias, double epsilon,
                             heed_tensor **out) {
  const heed_status status = normalise(ctx, function, layer_norm_row, x, ndims, weight, bias, epsilon, out);
  const heed__norm_values values = {ndims, epsilon};
  return heed__recorded(ctx, status, HEED__OP_layer_norm, 3, (const heed_tensor *const[]){x, weight, bias},
                        &values, sizeof values, out);
}

heed_status heed_layer_norm(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                            const heed_tensor *bias, double epsilon, heed_tensor **out) {
  HEED__ENTER(ctx, "layer_norm", x, out);
  HEED__MAY_ENTER(ctx, "layer_norm", weight, bias);
  return heed__layer_norm(ctx, "layer_norm", x, 1, weight, bias, epsilon, out);
}

heed_status heed__rms_norm(heed_context *ctx, const char *function, const heed_tensor *x, int ndims,
                           const heed_tensor *weight, double epsilon, heed_tensor **out) {
  const heed_status status = normalise(ctx, function, rms_norm_row, x, ndims, weight, NULL, epsilon, out);
  const heed__norm_values values = {ndims, epsilon};
  return heed__recorded(ctx, status, HEED__OP_rms_norm, 2, (const heed_tensor *const[]){x, weight}, &values,
                        sizeof values, out);
}

heed_status heed_rms_norm(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight, double epsilon,
                          heed_tensor **out) {
  HEED__ENTER(ctx, "rms_norm", x, out);
  HEED__MAY_ENTER(ctx, "rms_norm", weight);
  return heed__rms_norm(ctx, "rms_norm", x, 1, weight, epsilon, out);
}

/* ---- Cumulative sums and products ---- */

/* These stop early at a cancellation check. float32 is computed in double, like PyTorch does. */
#define CUMULATIVE(name, out_type, in_type, sum_type, start, operator, read)                                 \
  static void name(const heed__walk *w, const heed__pace *pace) {                                            \
    out_type *out = (out_type *)(void *)w->data[0];                                                          \
    const in_type *row = (const in_type *)(const void *)w->data[1];                                          \
    sum_type result = (start);                                                                               \
    for (int64_t i = 0; i < w->count && !heed__is_due_at(pace, i); i++) {                                    \
      const in_type x = row[i * w->stride[1]];                                                               \
      result operator(read);                                                                                 \
      out[i * w->stride[0]] = (out_type)result;                                                              \
    }                                                                                                        \
  }
CUMULATIVE(float_cumsum, float, float, double, 0, +=, (double)x)
CUMULATIVE(int64_cumsum, int64_t, int64_t, uint64_t, 0, +=, (uint64_t)x)
CUMULATIVE(bool_cumsum, int64_t, uint8_t, int64_t, 0, +=, x != 0)
CUMULATIVE(float_cumprod, float, float, double, 1, *=, (double)x)
CUMULATIVE(int64_cumprod, int64_t, int64_t, uint64_t, 1, *=, (uint64_t)x)
CUMULATIVE(bool_cumprod, int64_t, uint8_t, int64_t, 1, *=, x != 0)

typedef void cumulative_lane(const heed__walk *w, const heed__pace *pace);

/* of_dtype: for each dtype */
static heed_status cumulative(heed_context *ctx, const char *function, heed__op op,
                              cumulative_lane *const *of_dtype, const heed_tensor *x, int dim,
                              heed_tensor **out) {
  heed__result result = {0};
  const heed_dtype dtype = x->dtype == HEED_FLOAT32 ? HEED_FLOAT32 : HEED_INT64;
  int d;
  heed_status status = heed__check_arithmetic(ctx, function, "x", x);
  if (status != HEED_OK) return status;
  status = heed__check_dim(ctx, function, x->ndim, dim, &d);
  if (status != HEED_OK) return status;
  status = heed__result_begin(ctx, function, &result, out, dtype, x->ndim, x->shape, true, 1, &x);
  if (status != HEED_OK) return status;
  heed__walk w;
  const heed_tensor *operands[] = {result.tensor, x};
  for (bool more = heed__walk_lanes_begin(&w, x->ndim, x->shape, d, 2, operands); more && status == HEED_OK;
       more = heed__walk_next(&w)) {
    of_dtype[x->dtype](&w, &ctx->pace);
    if (heed__is_due(&ctx->pace)) status = heed__stopped(ctx, function);
  }
  status = heed__result_end(ctx, &result, status);
  return heed__recorded1(ctx, status, op, x, &d, sizeof d, out);
}

heed_status heed_cumsum(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out) {
  HEED__ENTER(ctx, "cumsum", x, out);
  static cumulative_lane *const of_dtype[] = {
      [HEED_BOOL] = bool_cumsum,
      [HEED_INT64] = int64_cumsum,
      [HEED_FLOAT32] = float_cumsum,
  };
  return cumulative(ctx, "cumsum", HEED__OP_cumsum, of_dtype, x, dim, out);
}

heed_status heed_cumprod(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out) {
  HEED__ENTER(ctx, "cumprod", x, out);
  static cumulative_lane *const of_dtype[] = {
      [HEED_BOOL] = bool_cumprod,
      [HEED_INT64] = int64_cumprod,
      [HEED_FLOAT32] = float_cumprod,
  };
  return cumulative(ctx, "cumprod", HEED__OP_cumprod, of_dtype, x, dim, out);
}
