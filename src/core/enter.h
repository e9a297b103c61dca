/* The threshold of heed.h: what every public function looks at before it does anything, and who is inside of
 * a context at the moment. Part of core's door. */
#ifndef HEED_ENTER_H
#define HEED_ENTER_H

/* HEED__ENTER(ctx, "matmul", a, b, out); is the first statement of a public function: it returns ARGUMENT,
 * with a message that begins with the name, if ctx or one of the arguments is NULL, or an object of another
 * context, or a dtype or a scalar that is none. Of out, a place for a result, *out is looked at as well.
 * HEED__MAY_ENTER is for those that may be NULL, after it. Both are macros for the arguments' names; what is
 * computed is a comparison or two for each.
 *
 * With HEED_DEBUG it returns BUSY while another thread is inside of ctx, from HEED__ENTER to the function's
 * return. */
#define HEED__ENTER(context, function, ...)                                                                  \
  if ((context) == NULL) return HEED_ARGUMENT;                                                               \
  HEED__GUARD(context, function)                                                                             \
  HEED__EACH(HEED__NEED, context, function, __VA_ARGS__)
#define HEED__MAY_ENTER(context, function, ...) HEED__EACH(HEED__MAY_NEED, context, function, __VA_ARGS__)

#define HEED__NEED(context, function, x)                                                                     \
  if (!HEED__FITS(context, x)) return HEED__REFUSE(context, function, x);
#define HEED__MAY_NEED(context, function, x)                                                                 \
  if ((x) != NULL) HEED__NEED(context, function, x)

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

/* By the type of the argument. */
#define HEED__FITS(context, x)                                                                               \
  _Generic((x),                                                                                              \
      heed_tensor *: heed__is_tensor_of,                                                                     \
      const heed_tensor *: heed__is_tensor_of,                                                               \
      heed_tensor **: heed__is_place_of,                                                                     \
      heed_generator *: heed__is_generator_of,                                                               \
      const heed_generator *: heed__is_generator_of,                                                         \
      heed_module *: heed__is_module_of,                                                                     \
      heed_kv_cache *: heed__is_cache_of,                                                                    \
      heed_dtype: heed__is_dtype,                                                                            \
      heed_scalar: heed__is_scalar,                                                                          \
      default: heed__is_given)(context, x)
#define HEED__REFUSE(context, function, x)                                                                   \
  _Generic((x), heed_dtype                                                                                   \
           : heed__refuse_dtype, heed_scalar                                                                 \
           : heed__refuse_scalar, default                                                                    \
           : heed__refuse_pointer)(context, function, #x, x)

static inline bool heed__is_given(const heed_context *ctx, const void *x) {
  (void)ctx;
  return x != NULL;
}
/* A tensor without a storage is one of our own, on the stack. */
static inline bool heed__is_tensor_of(const heed_context *ctx, const heed_tensor *x) {
  return x != NULL && (x->storage == NULL || x->storage->context == ctx);
}
static inline bool heed__is_place_of(const heed_context *ctx, heed_tensor *const *out) {
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
static inline bool heed__is_dtype(const heed_context *ctx, heed_dtype dtype) {
  (void)ctx;
  return (unsigned)dtype <= HEED_INT8;
}
/* What heed_number, heed_integer and heed_boolean make. */
static inline bool heed__is_scalar(const heed_context *ctx, heed_scalar value) {
  (void)ctx;
  return (unsigned)value.dtype <= HEED_FLOAT32;
}

heed_status heed__refuse_pointer(heed_context *ctx, const char *function, const char *argument,
                                 const void *x);
heed_status heed__refuse_dtype(heed_context *ctx, const char *function, const char *argument,
                               heed_dtype dtype);
heed_status heed__refuse_scalar(heed_context *ctx, const char *function, const char *argument,
                                heed_scalar value);

/** A list of n dimensions or sizes: n from 0 to HEED_MAX_DIMS, and not NULL unless n is 0. Errors: SHAPE,
 * ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_list(heed_context *ctx, const char *function, const char *argument, int64_t n,
                             const void *list);
/** A list of `count` tensors of ctx; what is behind the first that is wrong is not read. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_tensors(heed_context *ctx, const char *function, const char *argument, int64_t count,
                                const heed_tensor *const *tensors);

/** Two results of one call; the second may be NULL, or not wanted. Errors: ARGUMENT (they are one place). */
HEED_MUST_USE
heed_status heed__check_apart(heed_context *ctx, const char *function, heed_tensor **a, heed_tensor **b);

/* ---- Two threads at once ---- */

#if defined(HEED_DEBUG)
/** Whether this thread may be inside of ctx now; *entered is then what heed__leave gets. */
bool heed__try_enter(heed_context *ctx, const char *function, heed_context **entered);
void heed__leave(heed_context **entered);
#define HEED__GUARD(context, function)                                                                       \
  heed_context *heed__entered __attribute__((cleanup(heed__leave))) = NULL;                                  \
  if (!heed__try_enter(context, function, &heed__entered)) return HEED_BUSY;
/** Why this thread was refused last, if it was on ctx; else NULL. */
const char *heed__busy_message(const heed_context *ctx);
#else
#define HEED__GUARD(context, function)
static inline const char *heed__busy_message(const heed_context *ctx) {
  (void)ctx;
  return NULL;
}
#endif

#endif
