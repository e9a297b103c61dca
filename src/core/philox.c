/* The stream of PyTorch's generators on GPUs: Philox4x32-10, whose words are a function of a counter. The key
 * is the seed; the counter is the offset, in blocks of four words, and the subsequence, a thread of the GPU.
 */
#include "core.h"

#include <inttypes.h>
#include <string.h>

/* ---- Blocks ---- */

/* In local variables, so that the processor overlaps blocks that follow each other: 1.8 ns a word. */
static inline void compute_block(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t key0,
                                 uint32_t key1, uint32_t *out) {
  for (int r = 0; r < HEED__PHILOX_ROUNDS; r++, key0 += HEED__PHILOX_STEP_0, key1 += HEED__PHILOX_STEP_1) {
    const uint64_t a = (uint64_t)HEED__PHILOX_MULTIPLIER_0 * c0, b = (uint64_t)HEED__PHILOX_MULTIPLIER_2 * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ key0;
    c1 = (uint32_t)b;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ key1;
    c3 = (uint32_t)a;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

void heed__philox_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  compute_block(counter[0], counter[1], counter[2], counter[3], key[0], key[1], out);
}

void heed__philox_blocks(uint32_t *restrict out, const uint32_t *key, uint64_t block, uint64_t thread,
                         size_t n) {
  for (size_t i = 0; i < n; i++, thread++)
    compute_block((uint32_t)block, (uint32_t)(block >> 32), (uint32_t)thread, (uint32_t)(thread >> 32),
                  key[0], key[1], out + 4 * i);
}

void heed__counted_words(const heed__counted *c, uint64_t first, int64_t n, uint32_t *out) {
  enum { BATCH = 32 };
  uint64_t thread = first / (uint64_t)c->lanes;
  int64_t skip = (int64_t)(first % (uint64_t)c->lanes);
  while (n > 0) {
    uint32_t block[4 * BATCH];
    const int64_t whole = c->lanes == 4 && skip == 0 ? n / 4 : 0;
    const int64_t count = whole > 0 ? whole : heed__min((skip + n + c->lanes - 1) / c->lanes, BATCH);
    c->kernel(whole > 0 ? out : block, c->key, c->block, thread, (size_t)count);
    thread += (uint64_t)count;
    if (whole > 0) {
      out += 4 * whole;
      n -= 4 * whole;
      continue;
    }
    for (int64_t i = 0; i < count; i++, skip = 0)
      for (; skip < c->lanes && n > 0; skip++, n--) *out++ = block[4 * i + skip];
  }
}

/* ---- Parts ---- */

static heed_status refuse_part(heed_context *ctx, const char *function, const char *argument,
                               const heed_generator *g, int ndim, const int64_t *shape) {
  char own[HEED__SHAPE_TEXT], first[HEED__SHAPE_TEXT], whole[HEED__SHAPE_TEXT];
  int64_t from[HEED_MAX_DIMS];
  for (int d = 0; d < g->part_ndim; d++) from[d] = g->first[d] + 1;
  return heed__fail(ctx, HEED_SHAPE,
                    "%s: %s is %s and the generator draws from %s on in a whole of %s; the part must have as "
                    "many dimensions and lie inside the whole",
                    function, argument, heed__shape_text(own, ndim, shape),
                    heed__shape_text(first, g->part_ndim, from),
                    heed__shape_text(whole, g->part_ndim, g->whole));
}

heed_status heed__check_part(heed_context *ctx, const char *function, const char *argument,
                             const heed_generator *g, int ndim, const int64_t *shape) {
  if (g->part_ndim == 0) return HEED_OK;
  bool fits = ndim == g->part_ndim;
  for (int d = 0; d < ndim && fits; d++) fits = shape[d] <= g->whole[d] - g->first[d];
  return fits ? HEED_OK : refuse_part(ctx, function, argument, g, ndim, shape);
}

heed_status heed__check_no_part(heed_context *ctx, const char *function, const heed_generator *g) {
  char whole[HEED__SHAPE_TEXT];
  if (g->part_ndim == 0) return HEED_OK;
  return heed__fail(
      ctx, HEED_ARGUMENT,
      "%s: the generator draws a part of a whole of %s, and this draw has no parts; it must be a "
      "generator without a part",
      function, heed__shape_text(whole, g->part_ndim, g->whole));
}

heed_status heed_generator_set_part(heed_generator *g, int ndim, const int64_t *whole, const int64_t *first) {
  static const char function[] = "part";
  char text[HEED__SHAPE_TEXT], other[HEED__SHAPE_TEXT];
  heed_context *ctx = g != NULL ? g->context : NULL;
  HEED__ENTER(ctx, function, g);
  heed_status status = heed__check_list(ctx, function, "whole", ndim, whole);
  if (status == HEED_OK) status = heed__check_list(ctx, function, "first", ndim, first);
  if (status != HEED_OK) return status;
  if (ndim > 0 && g->kind != HEED_PHILOX)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: the generator is mt19937, whose numbers have an order; it must be philox",
                      function);
  for (int d = 0; d < ndim; d++)
    if (whole[d] < 1 || first[d] < 1 || first[d] > whole[d])
      return heed__fail(
          ctx, HEED_SHAPE,
          "%s: whole is %s and first is %s; sizes must be 1 or more, and first from 1 to the size "
          "of its dimension",
          function, heed__shape_text(text, ndim, whole), heed__shape_text(other, ndim, first));
  if (heed__numel(ndim, whole, sizeof(float)) < 0)
    return heed__fail(ctx, HEED_SHAPE, "%s: whole is %s, which is too large", function,
                      heed__shape_text(text, ndim, whole));
  g->part_ndim = ndim;
  for (int d = 0; d < HEED_MAX_DIMS; d++) {
    g->whole[d] = d < ndim ? whole[d] : 0;
    g->first[d] = d < ndim ? first[d] - 1 : 0;
  }
  return HEED_OK;
}

/* ---- Draws ---- */

static int dropout_lanes(const heed__counted *c) {
  int lanes = 4;
  /* the factors of 2 of a product: at most two are needed */
  int64_t elements = 1;
  for (int d = 0; d < c->ndim; d++) elements = elements * ((c->part ? c->whole[d] : c->shape[d]) % 4) % 4;
  while (elements % lanes != 0) lanes /= 2;
  return lanes;
}

void heed__counted_begin(heed__counted *c, heed_generator *g, int lanes, int ndim, const int64_t *shape) {
  const uint64_t block = (g->offset + 3) / 4;
  *c = (heed__counted){.key = {(uint32_t)g->seed, (uint32_t)(g->seed >> 32)},
                       .block = block,
                       .kernel = heed__philox_blocks,
                       .ndim = ndim,
                       .part = g->part_ndim > 0};
  for (int d = 0; d < ndim; d++) {
    c->shape[d] = shape[d];
    c->whole[d] = g->whole[d];
    c->first[d] = g->first[d];
  }
  c->lanes = lanes > 0 ? lanes : dropout_lanes(c);
  g->offset = (block + 1) * 4;
}

uint64_t heed__counted_row(const heed__counted *c, int64_t row) {
  if (c->ndim == 0) return 0;
  const int last = c->ndim - 1;
  if (!c->part) return (uint64_t)row * (uint64_t)c->shape[last];
  uint64_t index = (uint64_t)c->first[last], step = (uint64_t)c->whole[last];
  for (int d = last - 1; d >= 0; d--) {
    const int64_t rest = heed__quotient(row, c->shape[d]);
    index += (uint64_t)(row - rest * c->shape[d] + c->first[d]) * step;
    step *= (uint64_t)c->whole[d];
    row = rest;
  }
  return index;
}

/* ---- Kinds, offsets ---- */

void heed_generator_reset(heed_generator *g, heed_generator_kind kind, uint64_t seed) {
  if (g == NULL || (unsigned)kind > HEED_PHILOX) return;
  g->kind = kind;
  g->part_ndim = 0;
  heed_generator_seed(g, seed);
}

heed_generator_kind heed_generator_kind_of(const heed_generator *g) {
  return g != NULL ? g->kind : HEED_MT19937;
}

heed_status heed_generator_clone(const heed_generator *g, heed_generator **out) {
  heed_context *ctx = g != NULL ? g->context : NULL;
  HEED__ENTER(ctx, "clone", out);
  heed_generator *made = heed__allocate(ctx, sizeof *made);
  if (made == NULL) return heed__fail_memory(ctx, "clone", sizeof *made);
  *made = *g;
  made->owned_by_context = false;
  *out = made;
  return HEED_OK;
}

uint64_t heed_generator_offset(const heed_generator *g) {
  return g != NULL && g->kind == HEED_PHILOX ? g->offset : 0;
}

heed_status heed_generator_set_offset(heed_generator *g, uint64_t offset) {
  heed_context *ctx = g != NULL ? g->context : NULL;
  HEED__ENTER(ctx, "set_offset", g);
  if (g->kind != HEED_PHILOX)
    return heed__fail(ctx, HEED_ARGUMENT, "set_offset: the generator is mt19937; it must be philox");
  if (offset % 4 != 0)
    return heed__fail(ctx, HEED_ARGUMENT, "set_offset: offset is %" PRIu64 "; it must be a multiple of 4",
                      offset);
  g->offset = offset;
  return HEED_OK;
}
