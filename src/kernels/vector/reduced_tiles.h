/* The products of a group with AMX: a tile of 16 rows of the weight with a tile of 16 rows of x. Integers
 * give the bits of the other tables, bfloat16 is summed in another order. Part of reduced.h. */
#ifndef HEED_VECTOR_REDUCED_TILES_H
#define HEED_VECTOR_REDUCED_TILES_H

enum { REDUCED_PART = 2048 }; /* words of the depth whose panel stays in the nearer caches */

/* Two by two tiles of sums (numbers 0 to 3), two of the weight (4, 5), two of x (6, 7); `more_*`: whether
 * there are the second ones. */
static __attribute__((noinline)) void reduced_halves_pair(const reduced_step *s, size_t row, size_t vector,
                                                          bool more_rows, bool more_vectors) {
  const size_t stride = REDUCED_ROWS * sizeof(float);
  const char *w = s->w + (s->from / REDUCED_WORDS * REDUCED_GROUP + row) * REDUCED_LINE;
  const char *x = s->x + vector * s->f->vector + s->from * REDUCED_LINE;
  float *sum = s->sum + row * REDUCED_ROWS + vector * REDUCED_WORDS;
  const size_t below = more_rows ? 16 * REDUCED_ROWS : 0, beside = more_vectors ? REDUCED_WORDS : 0;
  if (s->from == 0) {
    V_TILE_ZERO(0);
    V_TILE_ZERO(1);
    V_TILE_ZERO(2);
    V_TILE_ZERO(3);
  } else {
    V_TILE_LOAD(0, sum, stride);
    V_TILE_LOAD(1, sum + beside, stride);
    V_TILE_LOAD(2, sum + below, stride);
    V_TILE_LOAD(3, sum + below + beside, stride);
  }
  const char *w2 = w + (more_rows ? 16 * REDUCED_LINE : 0), *x2 = x + (more_vectors ? s->f->vector : 0);
  for (size_t word = s->from; word < s->to; word += REDUCED_WORDS) {
    V_TILE_LOAD(4, w, REDUCED_LINE);
    V_TILE_LOAD(6, x, REDUCED_LINE);
    V_TILE_HALVES(0, 4, 6);
    if (more_vectors) {
      V_TILE_LOAD(7, x2, REDUCED_LINE);
      V_TILE_HALVES(1, 4, 7);
    }
    if (more_rows) {
      V_TILE_LOAD(5, w2, REDUCED_LINE);
      V_TILE_HALVES(2, 5, 6);
      if (more_vectors) V_TILE_HALVES(3, 5, 7);
    }
    w += REDUCED_GROUP * REDUCED_LINE;
    w2 += REDUCED_GROUP * REDUCED_LINE;
    x += REDUCED_WORDS * REDUCED_LINE;
    x2 += REDUCED_WORDS * REDUCED_LINE;
  }
  if (more_rows && more_vectors) V_TILE_STORE(3, sum + below + beside, stride);
  if (more_rows) V_TILE_STORE(2, sum + below, stride);
  if (more_vectors) V_TILE_STORE(1, sum + beside, stride);
  V_TILE_STORE(0, sum, stride);
}

/* sum [16, 16] += part · the scales of 16 rows of w and of x, for one block */
V_INLINE void reduced_add_block(float *sum, const int32_t *part, const char *side, const reduced_form *f,
                                const float *scale) {
  const vfloat factor = v_from_bits(v_load_words(side));
  const vint start = v_load_words(side + f->blocks * REDUCED_LINE);
  V_UNROLL
  for (size_t r = 0; r < 16; r++) {
    const vint whole = v_add_int(v_load_words(part + r * REDUCED_WORDS), start);
    float *to = sum + r * REDUCED_ROWS;
    v_store(to, v_fma(v_mul(v_to_float(whole), factor), v_set(scale[r * f->groups]), v_load(to)));
  }
}

/* 16 rows of w with 1 to 4 vectors of x. The sums of a block leave the tiles while the next is multiplied. */
static __attribute__((noinline)) void reduced_bytes_row(const reduced_step *s, size_t row, size_t vectors) {
  _Alignas(HEED__ALIGNMENT) int32_t part[REDUCED_VECTORS][16 * REDUCED_WORDS];
  const reduced_form *f = s->f;
  for (size_t block = s->from / REDUCED_WORDS; block < s->to / REDUCED_WORDS; block++) {
    const char *x = s->x + block * REDUCED_WORDS * REDUCED_LINE;
    const char *side = s->x + (f->depth + block) * REDUCED_LINE;
    const float *scale = s->scale + row * f->groups + block;
    float *sum = s->sum + row * REDUCED_ROWS;
    V_TILE_LOAD(4, s->w + (block * REDUCED_GROUP + row) * REDUCED_LINE, REDUCED_LINE);
#define REDUCED_BLOCK(v)                                                                                     \
  if ((v) < vectors) {                                                                                       \
    V_TILE_ZERO(v);                                                                                          \
    V_TILE_LOAD(6, x + (v)*f->vector, REDUCED_LINE);                                                         \
    V_TILE_BYTES(v, 4, 6);                                                                                   \
    V_TILE_STORE(v, part[v], REDUCED_LINE);                                                                  \
  }
    REDUCED_BLOCK(0)
    REDUCED_BLOCK(1)
    REDUCED_BLOCK(2)
    REDUCED_BLOCK(3)
#undef REDUCED_BLOCK
    for (size_t v = 0; v < vectors; v++)
      reduced_add_block(sum + v * REDUCED_WORDS, part[v], side + v * f->vector, f, scale);
  }
}

static void reduced_pass(const reduced_step *s, size_t vectors) {
  if (s->f->bytes) {
    for (size_t row = 0; row < s->rows; row += 16) reduced_bytes_row(s, row, vectors);
    return;
  }
  for (size_t v = 0; v < vectors; v += 2)
    for (size_t row = 0; row < s->rows; row += 32)
      reduced_halves_pair(s, row, v, row + 16 < s->rows, v + 1 < vectors);
}

#define REDUCED_STARTS  1 /* halves need no sums of 0 */
#define REDUCED_BEGIN() v_tiles_begin()
#define REDUCED_END()   v_tiles_end()

#endif
