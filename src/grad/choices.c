/* Gradients of operations that choose one of several elements, or 0: they go to what was chosen. */
#include "grad.h"

/* values: whether a bound is a tensor */
const char *heed__clamp_name(const heed__node *node) {
  return *(const bool *)node->values ? "ClampBackward0" : "ClampBackward1";
}

/* ---- Rows ---- */

#define ROW(name, type, other_type, value)                                                                   \
  static void name(float *dx, const float *dy, const void *a, const void *b, const double *numbers,          \
                   size_t n) {                                                                               \
    const type *first = a;                                                                                   \
    const other_type *second = b;                                                                            \
    (void)numbers, (void)second;                                                                             \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const float d = dy[i];                                                                                 \
      dx[i] = (value);                                                                                       \
    }                                                                                                        \
  }

/* Equal elements share. nan is neither less nor more: both sides get the gradient. Branches would be
 * unpredictable. */
static inline float with_halves(float x, float y, float taken, float half) {
  return x == y ? half : taken;
}
ROW(larger_slope, float, float, with_halves(first[i], second[i], first[i] < second[i] ? 0.0f : d, 0.5f * d))
ROW(smaller_slope, float, float, with_halves(first[i], second[i], first[i] > second[i] ? 0.0f : d, 0.5f * d))
ROW(at_least_slope, float, float, first[i] >= second[i] ? d : 0.0f)
ROW(at_most_slope, float, float, first[i] <= second[i] ? d : 0.0f)
ROW(below_slope, float, float, first[i] < second[i] ? d : 0.0f)
ROW(above_slope, float, float, first[i] > second[i] ? d : 0.0f)
ROW(where_true_slope, uint8_t, uint8_t, first[i] ? d : 0.0f)
ROW(where_false_slope, uint8_t, uint8_t, first[i] ? 0.0f : d)

#undef ROW

/* numbers: the two bounds */
static void between_slope(float *dx, const float *dy, const void *a, const void *b, const double *numbers,
                          size_t n) {
  const float *x = a, low = (float)numbers[0], high = (float)numbers[1];
  (void)b;
  for (size_t i = 0; i < n; i++) {
    const float d = dy[i], above = x[i] >= low ? d : 0.0f;
    dx[i] = x[i] <= high ? above : 0.0f;
  }
}

/* 0 · d is nan where d is infinite or nan, as in PyTorch */
static void dropout_slope(float *dx, const float *dy, const void *a, const void *b, const double *numbers,
                          size_t n) {
  const uint8_t *kept = a;
  const float scale = (float)*numbers;
  (void)b;
  for (size_t i = 0; i < n; i++) dx[i] = dy[i] * (kept[i] ? scale : 0.0f);
}

/* ---- maximum, minimum, where, masks ---- */

/* dx[i] = row(dy, mask), if it is wanted. */
static heed_status masked_gradient(heed__backward *b, int i, heed__gradient_row *row, const double *numbers,
                                   const heed_tensor *mask) {
  if (!heed__backward_wants(b, i)) return HEED_OK;
  return heed__mask_gradient(b->ctx, b->function, row, numbers, b->dy[0], mask, &b->dx[i]);
}

static heed_status slopes_of_two(heed__backward *b, heed__gradient_row *row) {
  heed_tensor first, second;
  const heed_tensor *x = heed__backward_input(b, 0, &first), *y = heed__backward_input(b, 1, &second);
  const heed_status status = heed__backward_map(b, 0, row, NULL, x, y);
  return status ? status : heed__backward_map(b, 1, row, NULL, y, x);
}

heed_status heed__maximum_backward(heed__backward *b) {
  return slopes_of_two(b, larger_slope);
}

heed_status heed__minimum_backward(heed__backward *b) {
  return slopes_of_two(b, smaller_slope);
}

heed_status heed__where_backward(heed__backward *b) {
  heed_tensor condition;
  const heed_tensor *mask = heed__backward_input(b, 0, &condition);
  const heed_status status = masked_gradient(b, 1, where_true_slope, NULL, mask);
  return status ? status : masked_gradient(b, 2, where_false_slope, NULL, mask);
}

const char *heed__masked_fill_name(const heed__node *node) {
  return heed__node_has_input(node, 2) ? "MaskedFillBackward1" : "MaskedFillBackward0";
}

heed_status heed__masked_fill_backward(heed__backward *b) {
  heed_tensor header;
  const heed_tensor *mask = heed__backward_input(b, 1, &header);
  const heed_status status = masked_gradient(b, 0, where_false_slope, NULL, mask);
  return status ? status : masked_gradient(b, 2, where_true_slope, NULL, mask);
}

heed_status heed__dropout_backward(heed__backward *b) {
  heed_tensor kept;
  if (!heed__backward_has(b, 1)) return heed__backward_same(b, 0);
  return masked_gradient(b, 0, dropout_slope, b->values, heed__backward_input(b, 1, &kept));
}

heed_status heed__tril_backward(heed__backward *b) {
  return heed_tril(b->ctx, b->dy[0], *(const int64_t *)b->values, &b->dx[0]);
}

heed_status heed__triu_backward(heed__backward *b) {
  return heed_triu(b->ctx, b->dy[0], *(const int64_t *)b->values, &b->dx[0]);
}

/* ---- clamp ---- */

static double number_in(const heed__saved *saved) {
  const heed_scalar value = heed__load((heed_dtype)saved->dtype, saved->dims);
  return value.dtype == HEED_FLOAT32 ? value.as.number : (double)value.as.integer;
}

/* The gradient of input i where mask holds. */
static heed_status through(heed__backward *b, int i, heed_status status, heed_tensor *mask) {
  if (status == HEED_OK) status = masked_gradient(b, i, where_true_slope, NULL, mask);
  heed_tensor_free(mask);
  return status;
}

typedef heed_status comparison(heed_context *, const heed_tensor *, const heed_tensor *, heed_tensor **);

/* *out = compare_a(a, b) and compare_c(c, d), or `or` */
static heed_status both_hold(heed__backward *b, comparison *compare, const heed_tensor *x,
                             const heed_tensor *y, comparison *join, comparison *other, const heed_tensor *u,
                             const heed_tensor *v, heed_tensor **out) {
  heed_tensor *first = NULL, *second = NULL;
  heed_status status = compare(b->ctx, x, y, &first);
  if (status == HEED_OK) status = other(b->ctx, u, v, &second);
  if (status == HEED_OK) status = join(b->ctx, first, second, out);
  heed_tensor_free(first);
  heed_tensor_free(second);
  return status;
}

static heed_status between_tensors(heed__backward *b, const heed_tensor *x, const heed_tensor *low,
                                   const heed_tensor *high) {
  heed_status status = HEED_OK;
  if (heed__backward_wants(b, 0)) {
    heed_tensor *mask = NULL;
    status = both_hold(b, heed_ge, x, low, heed_logical_and, heed_le, x, high, &mask);
    status = through(b, 0, status, mask);
  }
  if (status == HEED_OK && heed__backward_wants(b, 1)) {
    heed_tensor *mask = NULL;
    status = both_hold(b, heed_lt, x, low, heed_logical_and, heed_lt, low, high, &mask);
    status = through(b, 1, status, mask);
  }
  if (status == HEED_OK && heed__backward_wants(b, 2)) {
    heed_tensor *mask = NULL;
    status = both_hold(b, heed_gt, x, high, heed_logical_or, heed_lt, high, low, &mask);
    status = through(b, 2, status, mask);
  }
  return status;
}

heed_status heed__clamp_backward(heed__backward *b) {
  const heed__saved *saved = b->node->saved;
  heed_tensor headers[3];
  const heed_tensor *x = heed__backward_input(b, 0, &headers[0]), *low = NULL, *high = NULL;
  heed_status status;
  if (saved[1].is_number && saved[2].is_number) {
    const double bounds[] = {number_in(&saved[1]), number_in(&saved[2])};
    return heed__backward_map(b, 0, between_slope, bounds, x, NULL);
  }
  if (heed__backward_has(b, 1)) low = heed__backward_input(b, 1, &headers[1]);
  if (heed__backward_has(b, 2)) high = heed__backward_input(b, 2, &headers[2]);
  if (low != NULL && high != NULL) return between_tensors(b, x, low, high);
  if (high == NULL) {
    status = heed__backward_map(b, 0, at_least_slope, NULL, x, low);
    return status ? status : heed__backward_map(b, 1, below_slope, NULL, x, low);
  }
  status = heed__backward_map(b, 0, at_most_slope, NULL, x, high);
  return status ? status : heed__backward_map(b, 2, above_slope, NULL, x, high);
}
