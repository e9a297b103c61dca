/* Random streams: MT19937, drawn from as by PyTorch; dropout; the state as bytes. philox.c has the other
 * kind.
 *
 * Sources: M. Matsumoto, T. Nishimura, "Mersenne twister" (ACM TOMACS 8, 1998), with the seeding of 2002; Box
 * and Muller (1958) for the normal distribution; P. L'Ecuyer, "Tables of linear congruential generators"
 * (1999) for MCG31m1. */
#include "core.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- Words ---- */

void heed_generator_seed(heed_generator *g, uint64_t seed) {
  if (g == NULL) return;
  g->seed = seed;
  g->offset = 0;
  g->word[0] = (uint32_t)seed;
  for (uint32_t i = 1; i < HEED__MT_WORDS; i++) {
    g->word[i] = 1812433253u * (g->word[i - 1] ^ g->word[i - 1] >> 30) + i;
  }
  g->position = HEED__MT_WORDS;
  g->has_spare = false;
}

/* The new value of a word: the twist of its top bit and the lower bits of `next`, combined with the word
 * `ahead`. */
static inline uint32_t twist(uint32_t word, uint32_t next, uint32_t ahead) {
  const uint32_t mixed = (word & 0x80000000u) | (next & 0x7fffffffu);
  return ahead ^ mixed >> 1 ^ ((next & 1) ? 0x9908b0dfu : 0);
}

static void refill(heed_generator *g) {
  enum { AHEAD = 397, BEHIND = HEED__MT_WORDS - AHEAD };
  uint32_t *w = g->word;
  for (int i = 0; i < BEHIND; i++) w[i] = twist(w[i], w[i + 1], w[i + AHEAD]);
  for (int i = BEHIND; i < HEED__MT_WORDS - 1; i++) w[i] = twist(w[i], w[i + 1], w[i - BEHIND]);
  w[HEED__MT_WORDS - 1] = twist(w[HEED__MT_WORDS - 1], w[0], w[AHEAD - 1]);
  g->position = 0;
}

static inline uint32_t temper(uint32_t y) {
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ y >> 18;
}

/* The words of subsequence 0. */
static uint32_t draw_counted(heed_generator *g) {
  const uint64_t block = g->offset / 4;
  uint32_t out[4];
  heed__philox_block((const uint32_t[]){(uint32_t)block, (uint32_t)(block >> 32), 0, 0},
                     (const uint32_t[]){(uint32_t)g->seed, (uint32_t)(g->seed >> 32)}, out);
  return out[g->offset++ % 4];
}

uint32_t heed__draw32(heed_generator *g) {
  if (g->kind == HEED_PHILOX) return draw_counted(g);
  if (g->position == HEED__MT_WORDS) refill(g);
  return temper(g->word[g->position++]);
}

uint64_t heed__draw64(heed_generator *g) {
  const uint64_t high = heed__draw32(g);
  return high << 32 | heed__draw32(g);
}

/* ---- Numbers ---- */

static inline float unit_float(uint32_t r) {
  return (float)(r & 0xffffff) * 0x1p-24f;
}

float heed__draw_float(heed_generator *g) {
  return unit_float(heed__draw32(g));
}

_Static_assert(HEED__DRAWN_WHOLE % HEED__NORMAL_BLOCK == 0, "normal numbers come in whole blocks");

static int64_t at_once(int64_t left) {
  return left < HEED__DRAWN_WHOLE ? left : HEED__DRAWN_WHOLE;
}

/* The next *count ≤ n words, not yet tempered. */
static const uint32_t *next_words(heed_generator *g, int64_t n, int64_t *count) {
  assert(g->kind == HEED_MT19937);
  if (g->position == HEED__MT_WORDS) refill(g);
  const uint32_t *word = g->word + g->position;
  const int64_t left = HEED__MT_WORDS - g->position;
  *count = n < left ? n : left;
  g->position += (uint32_t)*count;
  return word;
}

static void draw_words(heed_generator *g, uint32_t *out, int64_t n) {
  for (int64_t count; n > 0; out += count, n -= count) {
    const uint32_t *word = next_words(g, n, &count);
    for (int64_t i = 0; i < count; i++) out[i] = temper(word[i]);
  }
}

static void draw_some(heed_generator *g, float *out, int64_t n) {
  for (int64_t count; n > 0; out += count, n -= count) {
    const uint32_t *word = next_words(g, n, &count);
    for (int64_t i = 0; i < count; i++) out[i] = unit_float(temper(word[i]));
  }
}

bool heed__draw_floats(heed_generator *g, float *out, int64_t n) {
  for (int64_t done = 0; done < n; done += HEED__DRAWN_WHOLE) {
    if (done > 0 && heed__is_due(&g->context->pace)) return false;
    draw_some(g, out + done, at_once(n - done));
  }
  return true;
}

double heed__draw_double(heed_generator *g) {
  return (double)(heed__draw64(g) & 0x1fffffffffffff) * 0x1p-53;
}

static double draw_normal_double(heed_generator *g) {
  g->has_spare = !g->has_spare;
  if (!g->has_spare) return g->spare;
  const double u1 = heed__draw_double(g), u2 = heed__draw_double(g);
  const double radius = sqrt(-2.0 * log1p(-u2)), angle = 6.28318530717958647692 * u1;
  g->spare = radius * sin(angle);
  return radius * cos(angle);
}

bool heed__draw_normal(heed_generator *g, heed__normal_transform *transform, double mean, double std,
                       float *out, int64_t n) {
  enum { BLOCK = HEED__NORMAL_BLOCK };
  const bool one_by_one = transform == NULL || n < BLOCK;
  for (int64_t done = 0; done < n; done += HEED__DRAWN_WHOLE) {
    const int64_t count = at_once(n - done);
    if (done > 0 && heed__is_due(&g->context->pace)) return false;
    if (one_by_one) {
      for (int64_t i = done; i < done + count; i++) out[i] = (float)(draw_normal_double(g) * std + mean);
    } else {
      draw_some(g, out + done, count);
      transform(out + done, (size_t)(count - count % BLOCK), (float)std, (float)mean);
    }
  }
  if (!one_by_one &&
      n % BLOCK != 0) { /* redraws the whole last block, like PyTorch; it overlaps the one before */
    draw_some(g, out + n - BLOCK, BLOCK);
    transform(out + n - BLOCK, BLOCK, (float)std, (float)mean);
  }
  return true;
}

/* ---- Generators ---- */

heed_status heed_generator_new(heed_context *ctx, uint64_t seed, heed_generator **out) {
  HEED__ENTER(ctx, "Generator", out);
  heed_generator *g = heed__allocate(ctx, sizeof(*g));
  if (g == NULL) return heed__fail_memory(ctx, "Generator", sizeof(*g));
  memset(g, 0, sizeof *g); /* with its padding: generators are compared as bytes */
  g->context = ctx;
  heed_generator_seed(g, seed);
  *out = g;
  return HEED_OK;
}

void heed_generator_free(heed_generator *g) {
  if (g != NULL && !g->owned_by_context) heed__release(g->context, g);
}

heed_generator *heed_default_generator(heed_context *ctx) {
  return ctx != NULL ? &ctx->generator : NULL;
}

heed_generator *heed__generator(heed_context *ctx, heed_generator *g) {
  return g != NULL ? g : &ctx->generator;
}

/* ---- The state as bytes ---- */

/* Numbers are little-endian. MT19937:
 *   0  8 bytes  "heedmt1" and a zero
 *   8  4        position, 0 to 624
 *  12  4        1 if there is a spare normal value, else 0
 *  16  8        that value as a float64, else 0
 *  24  8        zeros
 *  32  624 · 4  the words
 * PHILOX, followed by zeros:
 *   0  8 bytes  "heedph1" and a zero
 *   8  8        seed
 *  16  8        offset
 *  24  8        dimensions of the part, 0: none
 *  32  16 · 8   sizes of the whole
 * 160  16 · 8   where the part begins, from 1 */
enum { AT_POSITION = 8, AT_HAS_SPARE = 12, AT_SPARE = 16, AT_ZEROS = 24, AT_WORDS = 32 };
enum { AT_SEED = 8, AT_OFFSET = 16, AT_NDIM = 24, AT_WHOLE = 32, AT_FIRST = 160, AT_END = 288 };

_Static_assert(AT_WORDS + 4 * HEED__MT_WORDS == HEED_GENERATOR_STATE_BYTES, "the size of a state in heed.h");
_Static_assert(sizeof(double) == sizeof(uint64_t), "the spare value is stored as its bits");

static const char state_mark[AT_POSITION] = "heedmt1", counted_mark[AT_SEED] = "heedph1";

static void put(unsigned char *bytes, uint64_t value, int count) {
  for (int i = 0; i < count; i++) bytes[i] = (unsigned char)(value >> 8 * i & 0xff);
}

static uint64_t get(const unsigned char *bytes, int count) {
  uint64_t value = 0;
  for (int i = 0; i < count; i++) value |= (uint64_t)bytes[i] << 8 * i;
  return value;
}

static void get_counted_state(const heed_generator *g, unsigned char *bytes) {
  memset(bytes, 0, HEED_GENERATOR_STATE_BYTES);
  memcpy(bytes, counted_mark, sizeof(counted_mark));
  put(bytes + AT_SEED, g->seed, 8);
  put(bytes + AT_OFFSET, g->offset, 8);
  put(bytes + AT_NDIM, (uint64_t)g->part_ndim, 8);
  for (int d = 0; d < g->part_ndim; d++) {
    put(bytes + AT_WHOLE + 8 * d, (uint64_t)g->whole[d], 8);
    put(bytes + AT_FIRST + 8 * d, (uint64_t)g->first[d] + 1, 8);
  }
}

void heed_generator_get_state(const heed_generator *g, unsigned char *bytes) {
  uint64_t spare = 0;
  if (g == NULL || bytes == NULL) return;
  if (g->kind == HEED_PHILOX) {
    get_counted_state(g, bytes);
    return;
  }
  if (g->has_spare) memcpy(&spare, &g->spare, sizeof(spare));
  memcpy(bytes, state_mark, sizeof(state_mark));
  put(bytes + AT_POSITION, g->position, 4);
  put(bytes + AT_HAS_SPARE, g->has_spare, 4);
  put(bytes + AT_SPARE, spare, 8);
  put(bytes + AT_ZEROS, 0, 8);
  for (int i = 0; i < HEED__MT_WORDS; i++) put(bytes + AT_WORDS + 4 * i, g->word[i], 4);
}

static heed_status refuse_state(heed_context *ctx) {
  return heed__fail(ctx, HEED_ARGUMENT,
                    "set_state: the bytes are not a generator's state; they must be those of get_state");
}

static heed_status set_counted_state(heed_generator *g, const unsigned char *bytes) {
  const uint64_t ndim = get(bytes + AT_NDIM, 8);
  int64_t whole[HEED_MAX_DIMS] = {0}, first[HEED_MAX_DIMS] = {0};
  bool sound = ndim <= HEED_MAX_DIMS;
  for (int d = 0; d < HEED_MAX_DIMS; d++) {
    whole[d] = (int64_t)get(bytes + AT_WHOLE + 8 * d, 8);
    first[d] = (int64_t)get(bytes + AT_FIRST + 8 * d, 8);
    if ((uint64_t)d >= ndim) sound = sound && whole[d] == 0 && first[d] == 0;
  }
  for (int i = AT_END; i < HEED_GENERATOR_STATE_BYTES; i++) sound = sound && bytes[i] == 0;
  if (!sound || heed_generator_set_part(g, (int)ndim, whole, first) != HEED_OK)
    return refuse_state(g->context);
  g->seed = get(bytes + AT_SEED, 8);
  g->offset = get(bytes + AT_OFFSET, 8);
  return HEED_OK;
}

heed_status heed_generator_set_state(heed_generator *g, const unsigned char *bytes, size_t count) {
  heed_context *ctx = g != NULL ? g->context : NULL;
  HEED__ENTER(ctx, "set_state", bytes);
  if (count != HEED_GENERATOR_STATE_BYTES) {
    return heed__fail(ctx, HEED_ARGUMENT,
                      "set_state: the state has %zu byte%s; it must have %d, like those of get_state", count,
                      HEED__S(count), HEED_GENERATOR_STATE_BYTES);
  }
  const bool is_counted = memcmp(bytes, counted_mark, sizeof(counted_mark)) == 0;
  if (is_counted != (g->kind == HEED_PHILOX) &&
      (is_counted || memcmp(bytes, state_mark, sizeof(state_mark)) == 0))
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "set_state: the state is of a %s generator and this one is %s; both must be of one kind",
        is_counted ? "philox" : "mt19937", is_counted ? "mt19937" : "philox");
  if (is_counted) return set_counted_state(g, bytes);
  const uint64_t position = get(bytes + AT_POSITION, 4), has_spare = get(bytes + AT_HAS_SPARE, 4);
  const uint64_t bits = get(bytes + AT_SPARE, 8);
  double spare;
  memcpy(&spare, &bits, sizeof(spare));
  const bool sound = memcmp(bytes, state_mark, sizeof(state_mark)) == 0 && position <= HEED__MT_WORDS &&
                     has_spare <= 1 && (has_spare == 1 ? isfinite(spare) : bits == 0) &&
                     get(bytes + AT_ZEROS, 8) == 0 && g->kind == HEED_MT19937;
  if (!sound) return refuse_state(ctx);
  g->position = (uint32_t)position;
  g->has_spare = has_spare == 1;
  g->spare = spare;
  for (int i = 0; i < HEED__MT_WORDS; i++) g->word[i] = (uint32_t)get(bytes + AT_WORDS + 4 * i, 4);
  return HEED_OK;
}

/* ---- Dropout ---- */

#define MCG_MODULUS    0x7fffffffu /* 2^31 - 1, a prime */
#define MCG_MULTIPLIER 1132489760u

void heed_set_dropout_stream(heed_context *ctx, heed_dropout_stream stream) {
  if (ctx != NULL) ctx->dropout_stream = stream;
}

/* The smallest state whose quotient by the modulus is at least `keep`. */
static uint64_t least_dropped_by_mkl(double keep) {
  uint64_t state = (uint64_t)(keep * MCG_MODULUS);
  while (state > 0 && (double)(state - 1) / MCG_MODULUS >= keep) state--;
  while ((double)state / MCG_MODULUS < keep) state++;
  return state;
}

/* The smallest word that is not below `keep` as a float, as torch.cuda compares it. */
static uint64_t least_dropped_by_counter(double keep) {
  uint64_t low = 0, high = UINT64_C(1) << 32;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    if (heed__counted_float((uint32_t)middle) < (float)keep)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void heed__dropout_begin(heed__dropout *d, heed_context *ctx, heed_generator *g, double p, int ndim,
                         const int64_t *shape) {
  const double keep = 1 - p;
  g = heed__generator(ctx, g);
  d->generator = g;
  d->counted = g->kind == HEED_PHILOX;
  d->stream = ctx->dropout_stream;
  d->least = 0;
  d->scale = 0;
  const uint64_t offset = g->offset;
  if (d->counted) heed__counted_begin(&d->words, g, 0, ndim, shape);
  if (keep == 0) { /* drops all elements without drawing */
    g->offset = offset;
    return;
  }
  d->scale = 1.0f / (float)keep;
  if (d->counted) {
    d->least = least_dropped_by_counter(keep);
  } else if (d->stream == HEED_DROPOUT_MKL) {
    d->least = least_dropped_by_mkl(keep);
    d->state = heed__draw32(d->generator) % MCG_MODULUS;
    if (d->state == 0) d->state = 1;
  } else {
    d->least = (uint64_t)ceil(keep * 0x1p53);
  }
}

/* x times the float with the bits `scale`, or times 0; branch-free, since the branch would be unpredictable.
 */
static inline float dropped(float x, uint64_t drawn, uint64_t least, uint32_t scale) {
  const uint32_t keeps = 0 - (uint32_t)((drawn - least) >> 63);
  return x * heed__float_of_bits(scale & keeps);
}

static void drop_native(heed__dropout *d, float *out, const float *x, int64_t n) {
  enum { PIECE = 256 };
  const uint64_t least = d->least;
  const uint32_t scale = heed__bits_of_float(d->scale);
  uint32_t word[2 * PIECE];
  for (int64_t count; n > 0; out += count, x += count, n -= count) {
    count = n < PIECE ? n : PIECE;
    draw_words(d->generator, word, 2 * count);
    for (int64_t i = 0; i < count; i++)
      out[i] = dropped(x[i], (uint64_t)(word[2 * i] & 0x1fffff) << 32 | word[2 * i + 1], least, scale);
  }
}

/* Runs MCG_CHAINS interleaved chains, since in one chain each state depends on the last. */
static void drop_mkl(heed__dropout *d, float *out, const float *x, int64_t n) {
  enum { MCG_CHAINS = 8 };
  const uint64_t least = d->least;
  const uint32_t scale = heed__bits_of_float(d->scale);
  uint64_t state[MCG_CHAINS], multiplier = 1;
  for (int j = 0; j < MCG_CHAINS; j++) {
    state[j] = d->state * multiplier % MCG_MODULUS;
    multiplier = multiplier * MCG_MULTIPLIER % MCG_MODULUS;
  }
  int64_t i = 0;
  for (; n - i >= MCG_CHAINS; i += MCG_CHAINS) {
    for (int j = 0; j < MCG_CHAINS; j++) {
      out[i + j] = dropped(x[i + j], state[j], least, scale);
      state[j] = state[j] * multiplier % MCG_MODULUS;
    }
  }
  for (int j = 0; i + j < n; j++) out[i + j] = dropped(x[i + j], state[j], least, scale);
  d->state = state[n - i];
}

static void drop_some(heed__dropout *d, float *out, const float *x, int64_t n) {
  if (d->least == 0) {
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * 0.0f;
  } else {
    (d->stream == HEED_DROPOUT_MKL ? drop_mkl : drop_native)(d, out, x, n);
  }
}

bool heed__dropout_apply(heed__dropout *d, float *out, const float *x, int64_t n) {
  for (int64_t done = 0; done < n; done += HEED__DRAWN_WHOLE) {
    if (done > 0 && heed__is_due(&d->generator->context->pace)) return false;
    drop_some(d, out + done, x + done, at_once(n - done));
  }
  return true;
}

void heed__dropout_at(const heed__dropout *d, float *out, const float *x, uint64_t first, int64_t n) {
  enum { PIECE = 512 };
  const uint32_t kept = (uint32_t)(d->least - 1), scale = heed__bits_of_float(d->scale);
  uint32_t word[PIECE];
  for (int64_t i = 0; d->least == 0 && i < n; i++) out[i] = x[i] * 0.0f;
  if (d->least == 0) return;
  for (int64_t count; n > 0; out += count, x += count, first += (uint64_t)count, n -= count) {
    count = n < PIECE ? n : PIECE;
    heed__counted_words(&d->words, first, count, word);
    for (int64_t i = 0; i < count; i++) out[i] = x[i] * heed__float_of_bits(word[i] <= kept ? scale : 0);
  }
}
