/* The checks at the entry of every public function of heed.h; in debug builds also for a second thread in a
 * context. Part of core's door. */
#ifndef HEED_ENTER_H
#define HEED_ENTER_H

/* HEED__ENTER(ctx, "matmul", a, b, out); is the first statement of a public function. It returns ARGUMENT,
 * with a message that names the function and the argument, if ctx or an argument is NULL, an object of
 * another context, or an invalid dtype or scalar. For the address of a result, *out is checked as well.
 * HEED__MAY_ENTER, after it, checks arguments that may be NULL. Both are macros so that messages can name the
 * arguments; each argument costs a comparison or two.
 *
 * With HEED_DEBUG it returns BUSY while another thread is between HEED__ENTER and the return of a function of
 * ctx.
 */
#define HEED__ENTER(context, function, ...)                                                                  \
  if ((context) == NULL) return HEED_ARGUMENT;                                                               \
  HEED__GUARD(context, function)                                                                             \
  HEED__EACH(HEED__NEED, context, function, __VA_ARGS__)
#define HEED__MAY_ENTER(context, function, ...) HEED__EACH(HEED__MAY_NEED, context, function, __VA_ARGS__)
/* Both refuse tensors of blocked dtypes, and such dtypes, so that the code behind them can rely on elements.
 * The few functions that take blocked tensors check these arguments by this, after HEED__ENTER of the others.
 */
#define HEED__ENTER_BLOCKED(context, function, ...)                                                          \
  HEED__EACH(HEED__NEED_BLOCKED, context, function, __VA_ARGS__)

#define HEED__NEED(context, function, x)                                                                     \
  if (!HEED__FITS(context, x)) return HEED__REFUSE(context, function, x);
#define HEED__MAY_NEED(context, function, x)                                                                 \
  if ((x) != NULL) HEED__NEED(context, function, x)

#define HEED__NEED_BLOCKED(context, function, x)                                                             \
  if (!heed__is_tensor_of(context, x)) return heed__refuse_pointer(context, function, #x, x);

#define HEED__EACH_1(do, c, f, x)                                                                            \
  do (c, f, x)
#define HEED__EACH_2(do, c, f, x, ...)                                                                       \
  do (c, f, x) HEED__EACH_1(do, c, f, __VA_ARGS__)
#define HEED__EACH_3(do, c, f, x, ...)                                                                       \
  do (c, f, x) HEED__EACH_2(do, c, f, __VA_ARGS__)
#define HEED__EACH_4(do, c, f, x, ...)                                                                       \
  do (c, f, x) HEED__EACH_3(do, c, f, __VA_ARGS__)
#define HEED__EACH_5(do, c, f, x, ...)                                                                       \
  do (c, f, x) HEED__EACH_4(do, c, f, __VA_ARGS__)
#define HEED__EACH_6(do, c, f, x, ...)                                                                       \
  do (c, f, x) HEED__EACH_5(do, c, f, __VA_ARGS__)
#define HEED__EACH_7(do, c, f, x, ...)                                                                       \
  do (c, f, x) HEED__EACH_6(do, c, f, __VA_ARGS__)
#define HEED__EIGHTH(a, b, c, d, e, f, g, h, ...) h
#define HEED__EACH(do, c, f, ...)                                                                            \
  HEED__EIGHTH(__VA_ARGS__, HEED__EACH_7, HEED__EACH_6, HEED__EACH_5, HEED__EACH_4, HEED__EACH_3,            \
               HEED__EACH_2, HEED__EACH_1, )                                                                 \
  (do, c, f, __VA_ARGS__)

/* Selected by the type of the argument. */
#define HEED__FITS(context, x)                                                                               \
  _Generic((x),                                                                                              \
      heed_tensor *: heed__has_elements,                                                                     \
      const heed_tensor *: heed__has_elements,                                                               \
      heed_tensor **: heed__is_result_of,                                                                     \
      heed_generator *: heed__is_generator_of,                                                               \
      const heed_generator *: heed__is_generator_of,                                                         \
      heed_module *: heed__is_module_of,                                                                     \
      heed_kv_cache *: heed__is_cache_of,                                                                    \
      heed_mask *: heed__is_mask_of,                                                                         \
      const heed_mask *: heed__is_mask_of,                                                                   \
      heed_mask **: heed__is_given,                                                                          \
      heed_dtype: heed__is_dtype,                                                                            \
      heed_scalar: heed__is_scalar,                                                                          \
      default: heed__is_given)(context, x)
#define HEED__REFUSE(context, function, x)                                                                   \
  _Generic((x), heed_dtype                                                                                   \
           : heed__refuse_dtype, heed_scalar                                                                 \
           : heed__refuse_scalar, heed_tensor *                                                              \
           : heed__refuse_tensor, const heed_tensor *                                                        \
           : heed__refuse_tensor, default                                                                    \
           : heed__refuse_pointer)(context, function, #x, x)

static inline bool heed__is_given(const heed_context *ctx, const void *x) {
  (void)ctx;
  return x != NULL;
}
/* Tensors without a storage are ours, on the stack. */
static inline bool heed__is_tensor_of(const heed_context *ctx, const heed_tensor *x) {
  return x != NULL && (x->storage == NULL || x->storage->context == ctx);
}
static inline bool heed__has_elements(const heed_context *ctx, const heed_tensor *x) {
  return heed__is_tensor_of(ctx, x) && !heed__is_blocked(x->dtype);
}
static inline bool heed__is_result_of(const heed_context *ctx, heed_tensor *const *out) {
  return out != NULL && (*out == NULL || heed__is_tensor_of(ctx, *out));
}
static inline bool heed__is_generator_of(const heed_context *ctx, const heed_generator *g) {
  return g != NULL && g->context == ctx;
}
static inline bool heed__is_module_of(const heed_context *ctx, const heed_module *m) {
  return m != NULL && heed_module_context(m) == ctx;
}
static inline bool heed__is_cache_of(const heed_context *ctx, const heed_kv_cache *cache) {
  return cache != NULL && heed_kv_cache_context(cache) == ctx;
}
static inline bool heed__is_mask_of(const heed_context *ctx, const heed_mask *mask) {
  return mask != NULL && heed_mask_context(mask) == ctx;
}
static inline bool heed__is_dtype(const heed_context *ctx, heed_dtype dtype) {
  (void)ctx;
  return (unsigned)dtype <= HEED_INT8;
}
/* The dtypes of heed_number, heed_integer and heed_boolean. */
static inline bool heed__is_scalar(const heed_context *ctx, heed_scalar value) {
  (void)ctx;
  return (unsigned)value.dtype <= HEED_FLOAT32;
}

heed_status heed__refuse_pointer(heed_context *ctx, const char *function, const char *argument,
                                 const void *x);
/** Of another context, missing, or blocked. */
heed_status heed__refuse_tensor(heed_context *ctx, const char *function, const char *argument,
                                const heed_tensor *x);
heed_status heed__refuse_dtype(heed_context *ctx, const char *function, const char *argument,
                               heed_dtype dtype);
heed_status heed__refuse_scalar(heed_context *ctx, const char *function, const char *argument,
                                heed_scalar value);

/** Checks a list of n dimensions or sizes: n from 0 to HEED_MAX_DIMS, NULL only if n is 0. Errors: SHAPE,
 * ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_list(heed_context *ctx, const char *function, const char *argument, int64_t n,
                             const void *list);
/** Checks a list of `count` tensors of ctx, up to the first error. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_any_tensors(heed_context *ctx, const char *function, const char *argument,
                                    int64_t count, const heed_tensor *const *tensors);
/** The same, and that none is of a blocked dtype. Errors: ARGUMENT, DTYPE. */
HEED_MUST_USE
heed_status heed__check_tensors(heed_context *ctx, const char *function, const char *argument, int64_t count,
                                const heed_tensor *const *tensors);

/** Checks that two results of one call are not the same tensor or address; the second is optional. Errors:
 * ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_apart(heed_context *ctx, const char *function, heed_tensor **a, heed_tensor **b);

/* ---- Two threads in one context ---- */

#if defined(HEED_DEBUG)
/** Makes this thread the owner of ctx, if there is no other; *entered is for heed__leave. */
bool heed__try_enter(heed_context *ctx, const char *function, heed_context **entered);
void heed__leave(heed_context **entered);
#define HEED__GUARD(context, function)                                                                       \
  heed_context *heed__entered __attribute__((cleanup(heed__leave))) = NULL;                                  \
  if (!heed__try_enter(context, function, &heed__entered)) return HEED_BUSY;
/** The message of this thread's last refusal, if it was by ctx; else NULL. */
const char *heed__busy_message(const heed_context *ctx);
#else
#define HEED__GUARD(context, function)
static inline const char *heed__busy_message(const heed_context *ctx) {
  (void)ctx;
  return NULL;
}
#endif

#endif
