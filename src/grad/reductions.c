/* Gradients of reductions. */
#include <math.h>

#include "grad.h"

heed_status heed__with_reduced_dims(heed__backward *b, const heed_tensor *x, uint32_t dims,
                                    heed_tensor **out) {
  const heed__saved *input = &b->node->saved[0];
  int64_t shape[HEED_MAX_DIMS];
  for (int d = 0; d < input->ndim; d++) shape[d] = dims >> d & 1 ? 1 : input->dims[d];
  return heed__reshape(b->ctx, b->function, x, input->ndim, shape, out);
}

static uint32_t dims_of(const heed__backward *b) {
  return ((const heed__reduction_values *)b->values)->dims;
}

/* dy with the reduced dimensions. */
static heed_status whole_dy(heed__backward *b, heed_tensor **out) {
  return heed__with_reduced_dims(b, b->dy[0], dims_of(b), out);
}

/* How many elements of the input each result is made of. */
static double count_of(const heed__backward *b) {
  const heed__saved *x = &b->node->saved[0];
  double count = 1;
  for (int d = 0; d < x->ndim; d++) count *= dims_of(b) >> d & 1 ? (double)x->dims[d] : 1;
  return count;
}

static bool covers_all(const heed__node *node) {
  return ((const heed__reduction_values *)node->values)->all;
}
const char *heed__sum_name(const heed__node *node) {
  return covers_all(node) ? "SumBackward0" : "SumBackward1";
}
const char *heed__mean_name(const heed__node *node) {
  return covers_all(node) ? "MeanBackward0" : "MeanBackward1";
}

/* ---- sum, mean ---- */

/* b->dx[0] = share (freed), expanded to the input's shape */
static heed_status spread_to_input(heed__backward *b, heed_status status, heed_tensor *share) {
  const heed__saved *x = &b->node->saved[0];
  heed_tensor view;
  if (status == HEED_OK) {
    heed__expand_on_stack(&view, share, x->ndim, x->dims);
    status = heed__tensor_from_view(b->ctx, b->function, &view, &b->dx[0]);
  }
  heed_tensor_free(share);
  return status;
}

heed_status heed__sum_backward(heed__backward *b) {
  heed_tensor *dy = NULL;
  const heed_status status = whole_dy(b, &dy);
  return spread_to_input(b, status, dy);
}

heed_status heed__mean_backward(heed__backward *b) {
  heed_tensor *dy = NULL, *share = NULL;
  heed__number count;
  heed_status status = whole_dy(b, &dy);
  if (status == HEED_OK)
    status = heed_div(b->ctx, dy, heed__number_tensor(&count, heed_number(count_of(b))), &share);
  heed_tensor_free(dy);
  return spread_to_input(b, status, share);
}

/* ---- var, std ---- */

/* numbers: 2 / (n - correction); a and c: x less its mean, and what rounding the mean left */
static void spread_slope(float *dx, const float *dy, const void *a, const void *c, const double *numbers,
                         size_t n) {
  const float *centred = a, *rest = c;
  const float scale = (float)*numbers;
  for (size_t i = 0; i < n; i++) dx[i] = scale * dy[i] * (centred[i] - rest[i]);
}

/* dy has sizes of 1 where dimensions were reduced. */
static heed_status variance_gradient(heed__backward *b, const heed_tensor *dy) {
  const heed__reduction_values *values = b->values;
  heed_tensor header, *mean = NULL, *centred = NULL, *rest = NULL;
  const heed_tensor *x = heed__backward_input(b, 0, &header);
  int dims[HEED_MAX_DIMS], count = 0;
  for (int d = 0; d < x->ndim; d++) {
    if (values->dims >> d & 1) dims[count++] = d + 1;
  }
  const double freedom = count_of(b) - values->number, scale = 2 / freedom;
  heed_status status = heed_mean(b->ctx, x, count, dims, true, &mean);
  if (status == HEED_OK) status = heed_sub(b->ctx, x, mean, &centred);
  /* where the mean is much larger than the differences, its rounding would show */
  if (status == HEED_OK) status = heed_mean(b->ctx, centred, count, dims, true, &rest);
  if (status == HEED_OK)
    status = heed__map_gradient(b->ctx, b->function, spread_slope, &scale, dy, centred, rest, &b->dx[0]);
  heed_tensor_free(mean);
  heed_tensor_free(centred);
  heed_tensor_free(rest);
  return status;
}

heed_status heed__var_backward(heed__backward *b) {
  heed_tensor *dy = NULL;
  heed_status status = whole_dy(b, &dy);
  if (status == HEED_OK) status = variance_gradient(b, dy);
  heed_tensor_free(dy);
  return status;
}

/* The gradient of y² instead of that of y; 0 where y is 0. */
static void root_slope(float *dx, const float *y, const float *dy, size_t n) {
  for (size_t i = 0; i < n; i++) dx[i] = y[i] == 0.0f ? 0.0f : dy[i] / (2.0f * y[i]);
}

heed_status heed__std_backward(heed__backward *b) {
  heed_tensor header, *of_square = NULL, *dy = NULL;
  heed_status status = heed__unary_gradient(b->ctx, b->function, root_slope,
                                            heed__backward_output(b, 0, &header), b->dy[0], &of_square);
  if (status == HEED_OK) status = heed__with_reduced_dims(b, of_square, dims_of(b), &dy);
  if (status == HEED_OK) status = variance_gradient(b, dy);
  heed_tensor_free(of_square);
  heed_tensor_free(dy);
  return status;
}

/* ---- The largest and the smallest ---- */

static inline float sign_of_float(float x) {
  return (float)((x > 0.0f) - (x < 0.0f));
}

/* d: the share of each equal element; u and v: x and the extreme. All are nan where that is nan. */
static void equal_slope(float *dx, const float *share, const void *a, const void *c, const double *numbers,
                        size_t n) {
  const float *x = a, *extreme = c;
  (void)numbers;
  for (size_t i = 0; i < n; i++) {
    const float s = share[i], e = extreme[i], given = x[i] == e ? s : 0.0f;
    dx[i] = e != e ? NAN : given;
  }
}

/* The same for magnitudes: an infinity norm. */
static void magnitude_slope(float *dx, const float *share, const void *a, const void *c,
                            const double *numbers, size_t n) {
  const float *x = a, *norm = c;
  (void)numbers;
  for (size_t i = 0; i < n; i++) {
    const float s = share[i] * sign_of_float(x[i]), e = norm[i], given = fabsf(x[i]) == e ? s : 0.0f;
    dx[i] = e != e ? NAN : given;
  }
}

/* dx = dy, divided evenly among the elements that equal the extreme one. */
static heed_status even_gradient(heed__backward *b, bool magnitudes) {
  heed_tensor x_header, y_header, *dy = NULL, *y = NULL, *sizes = NULL, *equal = NULL, *count = NULL,
                                  *share = NULL;
  const heed_tensor *x = heed__backward_input(b, 0, &x_header), *compared = x;
  int dims[HEED_MAX_DIMS], ndims = 0;
  for (int d = 0; d < x->ndim; d++) {
    if (dims_of(b) >> d & 1) dims[ndims++] = d + 1;
  }
  heed_status status = whole_dy(b, &dy);
  if (status == HEED_OK)
    status = heed__with_reduced_dims(b, heed__backward_output(b, 0, &y_header), dims_of(b), &y);
  if (status == HEED_OK && magnitudes) {
    status = heed_abs(b->ctx, x, &sizes);
    compared = sizes;
  }
  if (status == HEED_OK) status = heed_eq(b->ctx, compared, y, &equal);
  if (status == HEED_OK) status = heed_sum(b->ctx, equal, ndims, dims, true, &count);
  if (status == HEED_OK) status = heed_div(b->ctx, dy, count, &share); /* dy has other readers */
  if (status == HEED_OK)
    status = heed__map_gradient(b->ctx, b->function, magnitudes ? magnitude_slope : equal_slope, NULL, share,
                                x, y, &b->dx[0]);
  heed_tensor_free(dy);
  heed_tensor_free(share);
  heed_tensor_free(y);
  heed_tensor_free(sizes);
  heed_tensor_free(equal);
  heed_tensor_free(count);
  return status;
}

heed_status heed__amax_backward(heed__backward *b) {
  return even_gradient(b, false);
}

heed_status heed__amin_backward(heed__backward *b) {
  return even_gradient(b, false);
}

/* ---- norm ---- */

/* u and v: x and the norm; numbers: p, which is neither 0 nor infinite */
static void norm_slope(float *dx, const float *dy, const void *a, const void *c, const double *numbers,
                       size_t n) {
  const float *x = a, *norm = c;
  const double p = *numbers;
  if (p == 2) {
    for (size_t i = 0; i < n; i++) {
      const float e = norm[i], given = dy[i] * (x[i] / e);
      dx[i] = e == 0.0f ? 0.0f : given;
    }
  } else if (p == 1) {
    for (size_t i = 0; i < n; i++) dx[i] = dy[i] * sign_of_float(x[i]);
  } else {
    for (size_t i = 0; i < n; i++) {
      const double size = fabs((double)x[i]), ratio = pow(size / (double)norm[i], p - 1);
      const bool is_pole = p < 1 ? x[i] == 0.0f : norm[i] == 0.0f;
      dx[i] = is_pole ? 0.0f * dy[i] : dy[i] * (float)((double)sign_of_float(x[i]) * ratio);
    }
  }
}

heed_status heed__norm_backward(heed__backward *b) {
  const double p = ((const heed__reduction_values *)b->values)->number;
  heed_tensor x_header, y_header, *dy = NULL, *y = NULL;
  if (p == 0) return heed__backward_zero(b, 0);
  if (isinf(p)) return even_gradient(b, true);
  heed_status status = whole_dy(b, &dy);
  if (status == HEED_OK)
    status = heed__with_reduced_dims(b, heed__backward_output(b, 0, &y_header), dims_of(b), &y);
  if (status == HEED_OK)
    status = heed__map_gradient(b->ctx, b->function, norm_slope, &p, dy,
                                heed__backward_input(b, 0, &x_header), y, &b->dx[0]);
  heed_tensor_free(dy);
  heed_tensor_free(y);
  return status;
}
