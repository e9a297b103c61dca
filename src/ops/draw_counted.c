/* Random tensors from a PHILOX generator: what torch.cuda draws with a thread for each element. Rows along
 * the last dimension are drawn one by one, since those of a part lie apart in the whole. */
#include "draw.h"

enum { COUNTED_PIECE = 128 }; /* elements that are drawn together */

/* Numbers of one kind: sets n elements from `each` words for each. */
typedef struct counted_kind {
  int each, lanes;
  void (*set)(const struct counted_kind *k, void *out, const uint32_t *words, int64_t n);
  size_t element;
  const heed__kernels *kernels; /* set_normal's */
  double from, to;              /* or mean and standard deviation */
  int64_t low;
  uint64_t range; /* 0: 2^64 */
} counted_kind;

static bool fill_counted(heed_context *ctx, const heed__counted *c, const counted_kind *k,
                         const heed_tensor *x) {
  const int64_t length = c->part && x->ndim > 0 ? x->shape[x->ndim - 1] : x->numel;
  uint32_t words[2 * COUNTED_PIECE];
  int64_t unchecked = 0;
  char *out = x->data;
  if (x->numel == 0) return true;
  for (int64_t row = 0; row < x->numel / length; row++) {
    const uint64_t first = heed__counted_row(c, row);
    for (int64_t i = 0; i < length; i += COUNTED_PIECE) {
      const int64_t n = heed__min(length - i, COUNTED_PIECE);
      heed__counted_words(c, (first + (uint64_t)i) * (uint64_t)k->each, n * k->each, words);
      k->set(k, out, words, n);
      out += (size_t)n * k->element;
      if ((unchecked += n) < HEED__DRAWN_WHOLE) continue;
      if (heed__is_due(&ctx->pace)) return false;
      unchecked = 0;
    }
  }
  return true;
}

static heed_status draw_kind(heed_context *ctx, const char *function, heed_generator *g,
                             const counted_kind *k, const heed_tensor *x) {
  heed__counted c;
  const heed_status status = heed__check_part(ctx, function, "the result", g, x->ndim, x->shape);
  if (status != HEED_OK || x->numel == 0) return status;
  heed__counted_begin(&c, g, k->lanes, x->ndim, x->shape);
  c.kernel = heed__kernels_of(ctx)->philox;
  return fill_counted(ctx, &c, k, x) ? HEED_OK : heed__stopped(ctx, function);
}

/* ---- Kinds ---- */

/* curand's numbers are in (0, 1]; torch.cuda turns the upper bound into the lower one. */
static void set_uniform(const counted_kind *k, void *out, const uint32_t *words, int64_t n) {
  const float low = (float)k->from, high = (float)k->to, span = high - low;
  float *x = out;
  for (int64_t i = 0; i < n; i++) {
    const float value = (float)((double)heed__counted_float(words[i]) * (double)span + (double)low);
    x[i] = value == high ? low : value;
  }
}

static void set_chances(const counted_kind *k, void *out, const uint32_t *words, int64_t n) {
  float *x = out;
  (void)k;
  for (int64_t i = 0; i < n; i++) x[i] = heed__counted_float(words[i]);
}

/* The sine of the pair that curand computes; a GPU's fast functions differ by up to 1e-6. */
static void set_normal(const counted_kind *k, void *out, const uint32_t *words, int64_t n) {
  const float turn = 0x1p-32f * 6.28318530717958647692f;
  float u[COUNTED_PIECE], v[COUNTED_PIECE];
  for (int64_t i = 0; i < n; i++) {
    u[i] = heed__counted_float(words[2 * i]);
    v[i] = (float)words[2 * i + 1] * turn + turn / 2;
  }
  k->kernels->normal_sine(out, u, v, (size_t)n, (float)k->to, (float)k->from);
}

static void set_integers(const counted_kind *k, void *out, const uint32_t *words, int64_t n) {
  int64_t *x = out;
  for (int64_t i = 0; i < n; i++) {
    const uint64_t drawn =
        k->each == 1 ? words[i] : (uint64_t)words[2 * i] << 32 | (uint64_t)words[2 * i + 1];
    x[i] = (int64_t)((uint64_t)k->low + drawn % k->range);
  }
}

heed_status heed__counted_uniform(heed_context *ctx, const char *function, heed_generator *g, double from,
                                  double to, const heed_tensor *x) {
  const counted_kind k = {
      .each = 1, .lanes = 1, .set = set_uniform, .element = sizeof(float), .from = from, .to = to};
  return draw_kind(ctx, function, g, &k, x);
}

heed_status heed__counted_normal(heed_context *ctx, const char *function, heed_generator *g, double mean,
                                 double std, const heed_tensor *x) {
  const counted_kind k = {.each = 2,
                          .lanes = 2,
                          .set = set_normal,
                          .element = sizeof(float),
                          .kernels = heed__kernels_of(ctx),
                          .from = mean,
                          .to = std};
  return draw_kind(ctx, function, g, &k, x);
}

heed_status heed__counted_integers(heed_context *ctx, const char *function, heed_generator *g, int64_t low,
                                   uint64_t range, const heed_tensor *x) {
  const int each = range < UINT64_C(1) << 28 ? 1 : 2;
  const counted_kind k = {.each = each,
                          .lanes = each,
                          .set = set_integers,
                          .element = sizeof(int64_t),
                          .low = low,
                          .range = range};
  return draw_kind(ctx, function, g, &k, x);
}

heed_status heed__counted_chances(heed_context *ctx, const char *function, heed_generator *g,
                                  const heed_tensor *x) {
  const counted_kind k = {.each = 1, .lanes = 4, .set = set_chances, .element = sizeof(float)};
  const uint64_t before = g->offset;
  const heed_status status = draw_kind(ctx, function, g, &k, x);
  if (g->offset > before) g->offset += 8; /* PyTorch reserves 12 words for each thread */
  return status;
}

bool heed__counted_drop(heed_context *ctx, const heed__dropout *d, const heed_tensor *x) {
  const int64_t length = d->words.part && x->ndim > 0 ? x->shape[x->ndim - 1] : x->numel;
  float *out = (float *)(void *)x->data;
  for (int64_t row = 0; row < x->numel / length; row++) {
    const uint64_t first = heed__counted_row(&d->words, row);
    for (int64_t i = 0, n; i < length; i += n, out += n) {
      n = heed__min(length - i, HEED__DRAWN_WHOLE);
      heed__dropout_at(d, out, out, first + (uint64_t)i, n);
      if (heed__is_due(&ctx->pace)) return false;
    }
  }
  return true;
}
