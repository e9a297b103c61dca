/* Gradients of elementwise operations, reductions and selections: in every table, near those of plain code in
 * double precision, which are found by differences; with failing allocators; cancelled; with threads. */
#include "tables.h"

#include <math.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { ROWS = 4, COLUMNS = 6, N = ROWS * COLUMNS };

static uint32_t seed;

/* ---- Operations, and the same in double ---- */

typedef heed_status operation(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,
                              heed_tensor **out);
typedef double elements(double a, double b);                      /* of an elementwise operation */
typedef void twin(double *out, const double *a, const double *b); /* of others */

#define UNARY(name, expression)                                                                              \
  static heed_status call_##name(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,              \
                                 heed_tensor **out) {                                                        \
    (void)b;                                                                                                 \
    return heed_##name(ctx, a, out);                                                                         \
  }                                                                                                          \
  static double double_##name(double a, double b) {                                                          \
    (void)b;                                                                                                 \
    return expression;                                                                                       \
  }
UNARY(exp, exp(a))
UNARY(log, log(a))
UNARY(sqrt, sqrt(a))
UNARY(rsqrt, 1 / sqrt(a))
UNARY(abs, fabs(a))
UNARY(neg, -a)
UNARY(sin, sin(a))
UNARY(cos, cos(a))
UNARY(tanh, tanh(a))
UNARY(sigmoid, 1 / (1 + exp(-a)))
UNARY(relu, fmax(a, 0))
UNARY(square, a *a)
UNARY(reciprocal, 1 / a)
UNARY(exp2, exp2(a))
UNARY(expm1, expm1(a))
UNARY(log2, log2(a))
UNARY(log10, log10(a))
UNARY(log1p, log1p(a))
UNARY(erf, erf(a))
UNARY(floor, floor(a))
UNARY(sign, (a > 0) - (a < 0))

#define BINARY(name, call, expression)                                                                       \
  static heed_status call_##name(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,              \
                                 heed_tensor **out) {                                                        \
    return call;                                                                                             \
  }                                                                                                          \
  static double double_##name(double a, double b) {                                                          \
    return expression;                                                                                       \
  }
BINARY(add, heed_add(ctx, a, b, out), a + b)
BINARY(sub, heed_sub(ctx, a, b, out), a - b)
BINARY(mul, heed_mul(ctx, a, b, out), a *b)
BINARY(div, heed_div(ctx, a, b, out), a / b)
BINARY(pow, heed_pow(ctx, a, b, out), pow(a, b))
BINARY(remainder, heed_remainder(ctx, a, b, out), a - b * floor(a / b))
BINARY(fmod, heed_fmod(ctx, a, b, out), fmod(a, b))
BINARY(maximum, heed_maximum(ctx, a, b, out), fmax(a, b))
BINARY(minimum, heed_minimum(ctx, a, b, out), fmin(a, b))
BINARY(add_scaled, heed_add_scaled(ctx, a, b, heed_number(-0.75), out), a - 0.75 * b)
BINARY(addcmul, heed_addcmul(ctx, a, b, a, heed_number(0.5), out), a + 0.5 * b * a)
BINARY(addcdiv, heed_addcdiv(ctx, b, b, a, 0.5, out), b + 0.5 * b / a)
BINARY(lerp, heed_lerp(ctx, a, b, a, out), a + a * (b - a))
BINARY(clamp, heed_clamp(ctx, a, b, NULL, out), fmax(a, b))

#define WHOLE(name, call, body)                                                                              \
  static heed_status call_##name(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,              \
                                 heed_tensor **out) {                                                        \
    (void)b;                                                                                                 \
    return call;                                                                                             \
  }                                                                                                          \
  static void twin_##name(double *out, const double *a, const double *b) {                                   \
    (void)b;                                                                                                 \
    body                                                                                                     \
  }
#define EACH_ROW(...)                                                                                        \
  for (int r = 0; r < ROWS; r++) {                                                                           \
    const double *x = a + r * COLUMNS;                                                                       \
    __VA_ARGS__                                                                                              \
  }
static const int second[] = {2};
WHOLE(sum, heed_sum(ctx, a, 0, NULL, false, out), *out = 0; for (int i = 0; i < N; i++) *out += a[i];)
WHOLE(mean, heed_mean(ctx, a, 1, second, false, out),
      EACH_ROW(out[r] = 0; for (int i = 0; i < COLUMNS; i++) out[r] += x[i] / COLUMNS;))
WHOLE(prod, heed_prod(ctx, a, 1, second, false, out),
      EACH_ROW(out[r] = 1; for (int i = 0; i < COLUMNS; i++) out[r] *= x[i];))
WHOLE(norm, heed_norm(ctx, a, 3, 1, second, false, out),
      EACH_ROW(out[r] = 0; for (int i = 0; i < COLUMNS; i++) out[r] += pow(fabs(x[i]), 3);
               out[r] = cbrt(out[r]);))
WHOLE(amax, heed_amax(ctx, a, 1, second, false, out),
      EACH_ROW(out[r] = x[0]; for (int i = 0; i < COLUMNS; i++) out[r] = fmax(out[r], x[i]);))
WHOLE(max, heed_max(ctx, a, 2, false, out, NULL), twin_amax(out, a, b);)
WHOLE(all_max, heed_max(ctx, a, 0, false, out, NULL), *out = a[0];
      for (int i = 0; i < N; i++) *out = fmax(*out, a[i]);)

static double variance(const double *x) {
  double mean = 0, squares = 0;
  for (int i = 0; i < COLUMNS; i++) mean += x[i] / COLUMNS;
  for (int i = 0; i < COLUMNS; i++) squares += (x[i] - mean) * (x[i] - mean);
  return squares / (COLUMNS - 1);
}
WHOLE(var, heed_var(ctx, a, 1, second, 1, false, out), EACH_ROW(out[r] = variance(x);))
WHOLE(std, heed_std(ctx, a, 1, second, 1, false, out), EACH_ROW(out[r] = sqrt(variance(x));))
WHOLE(cumsum, heed_cumsum(ctx, a, 2, out),
      EACH_ROW(double s = 0; for (int i = 0; i < COLUMNS; i++) out[r * COLUMNS + i] = s += x[i];))
WHOLE(cumprod, heed_cumprod(ctx, a, 2, out),
      EACH_ROW(double s = 1; for (int i = 0; i < COLUMNS; i++) out[r * COLUMNS + i] = s *= x[i];))
WHOLE(tril, heed_tril(ctx, a, 1, out),
      EACH_ROW(for (int i = 0; i < COLUMNS; i++) out[r * COLUMNS + i] = i <= r + 1 ? x[i] : 0;))

static int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
WHOLE(sort, heed_sort(ctx, a, 2, false, out, NULL), memcpy(out, a, N * sizeof *a);
      for (int r = 0; r < ROWS; r++) qsort(out + r * COLUMNS, COLUMNS, sizeof *out, compare_doubles);)
WHOLE(topk, heed_topk(ctx, a, 2, 2, true, out, NULL), double sorted[N]; twin_sort(sorted, a, b);
      for (int r = 0; r < ROWS; r++) for (int i = 0; i < 2; i++)
          out[2 * r + i] = sorted[(r + 1) * COLUMNS - 1 - i];)

static heed_status call_where(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,
                              heed_tensor **out) {
  heed_tensor *mask = NULL;
  heed_status status = heed_gt(ctx, a, b, &mask);
  if (status == HEED_OK) status = heed_where(ctx, mask, b, a, out);
  heed_tensor_free(mask);
  return status;
}
static double double_where(double a, double b) {
  return a > b ? b : a;
}

static heed_status call_masked_fill(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,
                                    heed_tensor **out) {
  heed_tensor *mask = NULL;
  heed_status status = heed_gt(ctx, a, b, &mask);
  if (status == HEED_OK) status = heed_masked_fill(ctx, a, mask, heed_number(3), out);
  heed_tensor_free(mask);
  return status;
}
static double double_masked_fill(double a, double b) {
  return a > b ? 3 : a;
}

static heed_status call_between(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,
                                heed_tensor **out) {
  heed_tensor *low = NULL;
  heed_status status = heed_neg(ctx, b, &low);
  if (status == HEED_OK) status = heed_clamp(ctx, a, low, b, out);
  heed_tensor_free(low);
  return status;
}
static double double_between(double a, double b) {
  return fmin(fmax(a, -b), b);
}

/* Drawn once; the factors are the same for every element's difference. */
static heed_status call_dropout(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,
                                heed_tensor **out) {
  (void)b;
  heed_generator *g = NULL;
  heed_status status = heed_generator_new(ctx, 7, &g);
  if (status == HEED_OK) status = heed_dropout(ctx, g, 0.5, a, out);
  heed_generator_free(g);
  return status;
}

typedef struct row {
  const char *name;
  operation *call;
  elements *each;
  twin *whole;
  float low, high; /* of a; b is from 0.5 to 2.5 */
} row;

#define ELEMENTS(name, low, high)                                                                            \
  { #name, call_##name, double_##name, NULL, low, high }
#define TWIN(name)                                                                                           \
  { #name, call_##name, NULL, twin_##name, -2, 2 }
static const row rows[] = {
    ELEMENTS(exp, -2, 2),
    ELEMENTS(log, 0.1f, 4),
    ELEMENTS(sqrt, 0.1f, 4),
    ELEMENTS(rsqrt, 0.1f, 4),
    ELEMENTS(abs, -2, 2),
    ELEMENTS(neg, -2, 2),
    ELEMENTS(sin, -4, 4),
    ELEMENTS(cos, -4, 4),
    ELEMENTS(tanh, -3, 3),
    ELEMENTS(sigmoid, -4, 4),
    ELEMENTS(relu, -2, 2),
    ELEMENTS(square, -2, 2),
    ELEMENTS(reciprocal, 1, 3),
    ELEMENTS(exp2, -3, 3),
    ELEMENTS(expm1, -2, 2),
    ELEMENTS(log2, 0.1f, 4),
    ELEMENTS(log10, 0.1f, 4),
    ELEMENTS(log1p, -0.5f, 3),
    ELEMENTS(erf, -2, 2),
    ELEMENTS(floor, -3, 3),
    ELEMENTS(sign, -2, 2),
    ELEMENTS(add, -2, 2),
    ELEMENTS(sub, -2, 2),
    ELEMENTS(mul, -2, 2),
    ELEMENTS(div, -2, 2),
    ELEMENTS(pow, 0.2f, 2),
    ELEMENTS(remainder, -5, 5),
    ELEMENTS(fmod, -5, 5),
    ELEMENTS(maximum, 0, 3),
    ELEMENTS(minimum, 0, 3),
    ELEMENTS(add_scaled, -2, 2),
    ELEMENTS(addcmul, -2, 2),
    ELEMENTS(addcdiv, 1, 2),
    ELEMENTS(lerp, 0, 1),
    ELEMENTS(clamp, 0, 3),

    ELEMENTS(where, 0, 3),
    ELEMENTS(masked_fill, 0, 3),
    ELEMENTS(between, -4, 4),
    TWIN(sum),
    TWIN(mean),
    TWIN(prod),
    TWIN(norm),
    TWIN(amax),
    TWIN(max),
    TWIN(all_max),
    TWIN(var),
    TWIN(std),
    TWIN(cumsum),
    TWIN(cumprod),
    TWIN(tril),
    TWIN(sort),
    TWIN(topk),
    {"dropout", call_dropout, NULL, NULL, 1, 2},
};
enum { DROPOUT = COUNT(rows) - 1 };

/* ---- Leaves ---- */

static heed_tensor *draw(heed_context *ctx, int64_t rows_of, int64_t columns, float low, float high) {
  heed_tensor *x = NULL;
  if (heed_tensor_new(ctx, HEED_FLOAT32, 2, SHAPE(rows_of, columns), &x) != HEED_OK) return NULL;
  float *data = heed_tensor_data(x);
  for (int64_t i = 0; i < rows_of * columns; i++) {
    next_random(&seed);
    data[i] = low + (high - low) * ((float)(seed >> 8) * 0x1p-24f);
  }
  return x;
}

typedef struct case_of {
  heed_tensor *a, *b, *dy, *y;
} case_of;

static void free_case(case_of *c) {
  heed_tensor_free(c->a);
  heed_tensor_free(c->b);
  heed_tensor_free(c->dy);
  heed_tensor_free(c->y);
}

/* The result of a row, recorded for leaves that already have a gradient of ones, and a gradient for it. */
static heed_status begin_case(heed_context *ctx, const row *r, int64_t rows_of, int64_t columns, case_of *c) {
  seed = 11;
  heed_tensor *ones = NULL;
  *c = (case_of){.a = draw(ctx, rows_of, columns, r->low, r->high),
                 .b = draw(ctx, rows_of, columns, 0.5f, 2.5f)};
  if (c->a == NULL || c->b == NULL) return HEED_MEMORY;
  heed_status status = heed_tensor_require_grad(c->a, true);
  if (status == HEED_OK) status = heed_tensor_require_grad(c->b, true);
  if (status == HEED_OK)
    status = heed_full(ctx, HEED_FLOAT32, 2, SHAPE(rows_of, columns), heed_number(1), &ones);
  if (status == HEED_OK) status = heed_tensor_set_grad(c->a, ones);
  if (status == HEED_OK) status = heed_tensor_set_grad(c->b, ones);
  heed_tensor_free(ones);
  heed_set_recording(ctx, true);
  if (status == HEED_OK) status = r->call(ctx, c->a, c->b, &c->y);
  heed_set_recording(ctx, false);
  if (status != HEED_OK) return status;
  c->dy = draw(ctx, 1, c->y->numel, -1, 1);
  if (c->dy == NULL) return HEED_MEMORY;
  heed_tensor *shaped = NULL;
  status = heed_view(ctx, c->dy, c->y->ndim, c->y->shape, &shaped);
  heed_tensor_free(c->dy);
  c->dy = shaped;
  return status;
}

static heed_status backward(heed_context *ctx, const case_of *c) {
  return heed_backward(ctx, 1, (const heed_tensor *const[]){c->y}, (const heed_tensor *const[]){c->dy}, NULL);
}

static const float *gradient_of(const heed_tensor *x) {
  const heed_tensor *grad = heed_tensor_grad(x);
  return grad != NULL ? (const float *)(const void *)grad->data : NULL;
}

static void assert_untouched(const heed_tensor *x) {
  const float *grad = gradient_of(x);
  for (int64_t i = 0; grad != NULL && i < x->numel; i++) assert_true(grad[i] == 1.0f);
}

/* ---- Values ---- */

static double loss_of(const row *r, const double *a, const double *b, const float *dy, int64_t n) {
  double out[N], loss = 0;
  for (int i = 0; i < N && r->each != NULL; i++) out[i] = r->each(a[i], b[i]);
  if (r->whole != NULL) r->whole(out, a, b);
  for (int64_t i = 0; i < n; i++) loss += out[i] * (double)dy[i];
  return loss;
}

static void check_values(heed_context *ctx) {
  for (size_t k = 0; k < DROPOUT; k++) {
    case_of c;
    double in[2][N], wanted[2][N], largest[2] = {0, 0};
    assert_ok(begin_case(ctx, &rows[k], ROWS, COLUMNS, &c));
    assert_ok(backward(ctx, &c));
    heed_tensor *leaf[] = {c.a, c.b};
    for (int s = 0; s < 2; s++) {
      for (int i = 0; i < N; i++) in[s][i] = (double)((const float *)(const void *)leaf[s]->data)[i];
    }
    const float *dy = (const float *)(const void *)c.dy->data;
    for (int s = 0; s < 2; s++) {
      for (int i = 0; i < N; i++) {
        const double x = in[s][i], h = 1e-6;
        in[s][i] = x + h;
        const double above = loss_of(&rows[k], in[0], in[1], dy, c.dy->numel);
        in[s][i] = x - h;
        const double below = loss_of(&rows[k], in[0], in[1], dy, c.dy->numel);
        in[s][i] = x;
        wanted[s][i] = (above - below) / (2 * h);
        largest[s] = fmax(largest[s], fabs(wanted[s][i]));
      }
      const float *got = gradient_of(leaf[s]);
      for (int i = 0; i < N; i++) {
        const double off = fabs((double)got[i] - 1 - wanted[s][i]);
        if (!(off <= 2e-6 * fmax(largest[s], 1)))
          fail_msg("%s, leaf %d, element %d: %g, not %g", rows[k].name, s, i, (double)got[i] - 1,
                   wanted[s][i]);
      }
    }
    free_case(&c);
  }
}

static void gradients_are_near_double(void **state) {
  (void)state;
  with_every_table(check_values);
}

/* ---- All or nothing ---- */

static const row *failing;

static heed_status failing_row(heed_context *ctx) {
  case_of c;
  heed_status status = begin_case(ctx, failing, ROWS, COLUMNS, &c);
  if (status == HEED_OK) {
    status = backward(ctx, &c);
    if (status != HEED_OK) {
      assert_untouched(c.a);
      assert_untouched(c.b);
    }
  }
  free_case(&c);
  return status;
}

static void gradients_survive_every_failing_allocation(void **state) {
  (void)state;
  for (size_t k = 0; k < COUNT(rows); k++) {
    failing = &rows[k];
    survives_every_failing_allocation(failing_row);
  }
}

static void a_cancelled_pass_can_be_repeated(void **state) {
  test_context *t = *state;
  for (size_t k = 0; k < COUNT(rows); k++) {
    case_of c, other;
    assert_ok(begin_case(t->ctx, &rows[k], ROWS, COLUMNS, &c));
    assert_ok(begin_case(t->ctx, &rows[k], ROWS, COLUMNS, &other));
    const int64_t blocks = t->memory.blocks;
    heed_cancel(t->ctx);
    assert_int_equal(backward(t->ctx, &c), HEED_CANCELLED);
    assert_int_equal(t->memory.blocks, blocks);
    assert_untouched(c.a);
    assert_untouched(c.b);
    assert_ok(backward(t->ctx, &c));
    assert_ok(backward(t->ctx, &other));
    assert_memory_equal(gradient_of(c.a), gradient_of(other.a), N * sizeof(float));
    free_case(&c);
    free_case(&other);
  }
}

static void threads_change_no_bit(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (size_t k = 0; k < COUNT(rows); k++) {
    case_of alone, together;
    assert_ok(heed_set_num_threads(ctx, 1));
    assert_ok(begin_case(ctx, &rows[k], 700, 600, &alone));
    assert_ok(backward(ctx, &alone));
    assert_ok(heed_set_num_threads(ctx, 3));
    assert_ok(begin_case(ctx, &rows[k], 700, 600, &together));
    assert_ok(backward(ctx, &together));
    assert_memory_equal(gradient_of(alone.a), gradient_of(together.a), 700 * 600 * sizeof(float));
    assert_memory_equal(gradient_of(alone.b), gradient_of(together.b), 700 * 600 * sizeof(float));
    free_case(&alone);
    free_case(&together);
  }
}

/* ---- In place ---- */

static void writing_over_an_input_changes_no_gradient(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed__number one;
  const heed_tensor *unit = heed__number_tensor(&one, heed_number(1));
  for (size_t k = 0; k < DROPOUT && rows[k].each != NULL; k++) {
    case_of fresh, same;
    assert_ok(begin_case(ctx, &rows[k], ROWS, COLUMNS, &fresh));
    assert_ok(backward(ctx, &fresh));
    assert_ok(begin_case(ctx, &rows[k], ROWS, COLUMNS, &same));
    heed_tensor_free(same.y);
    same.y = NULL;
    heed_set_recording(ctx, true);
    assert_ok(heed_mul(ctx, same.a, unit, &same.y));
    assert_ok(rows[k].call(ctx, same.y, same.b, &same.y));
    heed_set_recording(ctx, false);
    assert_ok(backward(ctx, &same));
    assert_memory_equal(fresh.y->data, same.y->data, N * sizeof(float));
    assert_memory_equal(gradient_of(fresh.a), gradient_of(same.a), N * sizeof(float));
    assert_memory_equal(gradient_of(fresh.b), gradient_of(same.b), N * sizeof(float));
    free_case(&fresh);
    free_case(&same);
  }
}

/* Neither the elements nor the history of a tensor change if the call fails: it can be repeated. */
static heed_status failing_in_place(heed_context *ctx) {
  case_of c;
  float before[N];
  heed_tensor *y = NULL;
  heed_status status = begin_case(ctx, failing, ROWS, COLUMNS, &c);
  heed_set_recording(ctx, true);
  if (status == HEED_OK) status = heed_exp(ctx, c.a, &y);
  if (status == HEED_OK) {
    memcpy(before, y->data, sizeof before);
    status = failing->call(ctx, y, c.b, &y);
    if (status != HEED_OK) {
      assert_memory_equal(y->data, before, sizeof before);
      assert_string_equal(heed_tensor_grad_fn(y), "ExpBackward0");
    }
  }
  heed_set_recording(ctx, false);
  heed_tensor_free(y);
  free_case(&c);
  return status;
}

static void failing_in_place_changes_nothing(void **state) {
  (void)state;
  for (size_t k = 0; k < DROPOUT && rows[k].each != NULL; k++) {
    failing = &rows[k];
    survives_every_failing_allocation(failing_in_place);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_are_near_double),
      cmocka_unit_test(gradients_survive_every_failing_allocation),
      TEST(a_cancelled_pass_can_be_repeated),
      TEST(threads_change_no_bit),
      TEST(writing_over_an_input_changes_no_gradient),
      cmocka_unit_test(failing_in_place_changes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
