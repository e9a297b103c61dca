/* Integer products (kernels.h) of few rows of x, which take the time of reading the weight: its rows are read
 * one after the other, and their codes are multiplied as they are stored, without sign.
 *
 * x is packed row by row: bytes in the order in which codes are unpacked; for dtypes with an offset, what the
 * sums of products begin with, -offset · Σ q; and factors, by which the scales of a step are multiplied. */
#ifndef HEED_VECTOR_REDUCED_FEW_H
#define HEED_VECTOR_REDUCED_FEW_H

#include "reduced_round.h"

enum {
  FEW_TILE = 4,        /* rows of x in a tile at most */
  FEW_COLUMNS = 4,     /* rows of the weight whose sums are joined together */
  FEW_DEPTH = 256,     /* elements to a multiple of which rows of x are filled up with zeros */
  FEW_FACTORS = 16,    /* of FEW_DEPTH elements */
  FEW_AHEAD = 6144,    /* prefetch distance in bytes; rows usually follow each other */
  FEW_CHECK = 1 << 18, /* multiply-adds between cancellation checks */
};

/* What a dtype's products need. Codes of small blocks, of which four are a step, are unpacked in halves. */
V_INLINE bool few_has_minimum(const heed_dtype dtype) {
  return dtype == HEED_Q4_1 || dtype == HEED_Q5_1 || dtype == HEED_Q4_K || dtype == HEED_Q5_K;
}
V_INLINE bool few_is_small(const heed_dtype dtype) {
  return dtype != HEED_INT8 && heed__block_elements(dtype) == BLOCKS_GROUP;
}
V_INLINE int few_offset(const heed_dtype dtype) {
  switch (dtype) {
  case HEED_Q4_0: return 8;
  case HEED_Q5_0: return 16;
  case HEED_Q6_K: return 32;
  case HEED_INT8:
  case HEED_Q8_0: return 128;
  default: return 0;
  }
}

/* Whether the product is one of these. */
V_INLINE bool few_goes(const heed__lowp_task *t) {
  return t->m < REDUCED_FEW && t->k >= HEED_INT8_BLOCK &&
         (t->dtype == HEED_INT8 || heed__is_blocked(t->dtype));
}

/* ---- Packing ---- */

static size_t few_depth(const heed__lowp_task *t) {
  return (t->k + FEW_DEPTH - 1) / FEW_DEPTH * FEW_DEPTH;
}

/* Bytes of a row of x: [depth] bytes, [depth / 4] int32 and [depth / 16] factors */
static size_t few_row_bytes(const heed__lowp_task *t) {
  return few_depth(t) * 2 + few_depth(t) / FEW_DEPTH * FEW_FACTORS * sizeof(float);
}

static size_t few_size(const heed__lowp_task *t, size_t *scratch_bytes) {
  *scratch_bytes = 0;
  return t->m * few_row_bytes(t);
}

typedef struct few_step {
  int8_t q[128];
  int32_t sum[32]; /* of four bytes each */
  float scale[2];
} few_step;

/* Rounds elements p… of a row of x, and orders their bytes. */
static void few_round(const heed__lowp_task *t, const float *x, size_t p, few_step *out) {
  static const uint8_t small[] = {0, 2, 4, 6, 1, 3, 5, 7}, large[] = {0, 1, 4, 5, 2, 3, 6, 7};
  const bool halves = few_is_small(t->dtype), pairs = t->dtype == HEED_Q4_K || t->dtype == HEED_Q5_K;
  int8_t q[128];
  for (size_t i = 0; i < 2; i++) {
    const size_t first = p + i * HEED_INT8_BLOCK,
                 n = first < t->k ? heed__min_size(t->k - first, HEED_INT8_BLOCK) : 0;
    vint line[REDUCED_PARTS];
    reduced_round_bytes(line, x + first, n, &out->scale[i]);
    v_store_words(q + i * HEED_INT8_BLOCK, line[0]);
  }
  for (size_t i = 0; i < 8; i++)
    memcpy(out->q + 16 * i, q + 16 * (halves ? small[i] : pairs ? large[i] : i), 16);
  v_sums_of_bytes(out->sum, out->q);
  v_sums_of_bytes(out->sum + 16, out->q + 64);
}

/* The sum of the bytes of group g of a step of small or K blocks */
static float few_total(const few_step *s, const bool small, size_t g) {
  int32_t total = 0;
  for (size_t i = 0; i < 8; i++)
    total += s->sum[small ? 4 * g + i % 4 + i / 4 * 16 : g % 2 * 16 + g / 2 * 8 + i];
  return s->scale[g / 2] * (float)total;
}

static void few_pack_row(const heed__lowp_task *t, const float *x, char *out) {
  const size_t depth = few_depth(t);
  const bool small = few_is_small(t->dtype);
  const int offset = few_offset(t->dtype);
  int32_t *start = (int32_t *)(void *)(out + depth);
  float *factor = (float *)(void *)(out + 2 * depth);
  for (size_t p = 0; p < depth; p += 128) {
    few_step s;
    few_round(t, x, p, &s);
    memcpy(out + p, s.q, sizeof s.q);
    for (size_t i = 0; i < 16; i++) {
      if (small) {
        start[p / 8 + i] = -offset * (s.sum[i] + s.sum[16 + i]);
      } else {
        start[p / 4 + i] = -offset * s.sum[i];
        start[p / 4 + 16 + i] = -offset * s.sum[16 + i];
      }
    }
    for (size_t g = 0; g < 4; g++) {
      const float scale = s.scale[g / 2];
      if (t->dtype == HEED_INT8) {
        factor[p / 64 + g / 2] = scale;
      } else if (t->dtype == HEED_Q6_K) {
        factor[p / 16 + 2 * g] = factor[p / 16 + 2 * g + 1] = scale;
      } else if (!small) {
        factor[p / 256 * FEW_FACTORS + p % 256 / 32 + g] = scale;
        factor[p / 256 * FEW_FACTORS + 8 + p % 256 / 32 + g] = few_total(&s, false, g);
      } else if (few_has_minimum(t->dtype)) {
        factor[p / 16 + 2 * g] = scale;
        factor[p / 16 + 2 * g + 1] = few_total(&s, true, g);
      } else {
        factor[p / 16 + g] = scale;
        factor[p / 16 + 4 + g] = 0.0f;
      }
    }
  }
}

static void few_pack(const heed__reduced_task *task) {
  const heed__lowp_task *t = &task->whole;
  for (size_t i = task->row; i < task->row + task->rows; i++)
    few_pack_row(t, t->x + (ptrdiff_t)i * t->x_row, (char *)task->packed + i * few_row_bytes(t));
}

/* ---- Products ---- */

/* The operands of a tile: `bytes` from a row of x to the next; depth as above */
typedef struct few_tile {
  const char *x;
  size_t bytes, depth;
  vfloat sum[FEW_TILE], less[FEW_TILE]; /* the products; those of the minima, in some of the lanes */
} few_tile;

V_INLINE const char *few_bytes(const few_tile *t, int row, size_t p) {
  return t->x + (size_t)row * t->bytes + p;
}
V_INLINE vint few_start(const few_tile *t, int row, size_t vector) {
  return v_load_words(t->x + (size_t)row * t->bytes + t->depth + vector * 64);
}
V_INLINE const float *few_factors(const few_tile *t, int row, size_t factor) {
  return (const float *)(const void *)(t->x + (size_t)row * t->bytes + 2 * t->depth) + factor;
}

V_INLINE void few_fetch(const uint8_t *p, size_t bytes) {
  V_UNROLL
  for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(p + FEW_AHEAD + line, 0, 2);
}

/* Four small blocks: the step p / 128 */
V_INLINE void few_add_small(const heed_dtype dtype, const int rows, few_tile *t, const uint8_t *const *b,
                            size_t p) {
  const size_t at = dtype == HEED_Q4_0 || dtype == HEED_Q8_0 ? 2
                    : dtype == HEED_Q4_1                     ? 4
                    : dtype == HEED_Q5_0                     ? 6
                                                             : 8;
  vint low = v_load_quarters(b[0] + at, b[1] + at, b[2] + at, b[3] + at), high;
  if (dtype == HEED_Q8_0) {
    high = v_flip_bytes(v_load_quarters(b[0] + 18, b[1] + 18, b[2] + 18, b[3] + 18));
    low = v_flip_bytes(low);
  } else {
    high = v_high_nibbles(low);
    low = v_byte_nibbles(low);
  }
  if (dtype == HEED_Q5_0 || dtype == HEED_Q5_1) {
    low = v_add_fifths(low, b[0] + at - 4, b[1] + at - 4, b[2] + at - 4, b[3] + at - 4);
    high = v_add_fifths(high, b[0] + at - 2, b[1] + at - 2, b[2] + at - 2, b[3] + at - 2);
  }
  const vfloat scale = few_has_minimum(dtype) ? v_load_four_pairs(b[0], b[1], b[2], b[3])
                                              : v_load_four_halves(b[0], b[1], b[2], b[3]);
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    const vfloat factor = v_mul_eight(scale, few_factors(t, r, p / 16));
    vint dot = few_offset(dtype) ? few_start(t, r, p / 128) : v_set_int(0);
    dot = v_dot_bytes(dot, low, v_load_words(few_bytes(t, r, p)));
    dot = v_dot_bytes(dot, high, v_load_words(few_bytes(t, r, p + 64)));
    t->sum[r] = v_fma(v_to_float(dot), v_spread_fours(factor, few_has_minimum(dtype) ? 2 : 1), t->sum[r]);
    if (few_has_minimum(dtype)) t->less[r] = v_add(t->less[r], factor); /* odd lanes count */
  }
}

/* A K block: elements p… */
V_INLINE void few_add_large(const heed_dtype dtype, const int rows, few_tile *t, const uint8_t *b, size_t p) {
  vfloat scale, factor[FEW_TILE];
  if (dtype == HEED_Q6_K) {
    scale = v_mul(v_set_float16(b + 208), v_load_int8((const int8_t *)b + 192));
  } else {
    uint8_t six[16];
    blocks_sixes(six, b);
    scale = v_mul(v_spread_pair(b), v_to_float(v_load_bytes(six)));
  }
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    factor[r] = v_mul(scale, v_load(few_factors(t, r, p / 16)));
    if (few_has_minimum(dtype)) t->less[r] = v_add(t->less[r], factor[r]); /* the upper lanes count */
  }
  V_UNROLL
  for (int i = 0; i < 4; i++) { /* 64 elements */
    const int half = i / 2;
    vint code;
    if (dtype == HEED_Q6_K) {
      code = v_load_words(b + 64 * half);
      code = i % 2 ? v_high_nibbles(code) : v_byte_nibbles(code);
      code = v_or_bits(code, b + 128 + 32 * half, i % 2 ? 0 : 4, i % 2 ? -2 : 2, 0x30);
    } else {
      code = v_load_words(b + (dtype == HEED_Q5_K ? 48 : 16) + 64 * half);
      code = i % 2 ? v_high_nibbles(code) : v_byte_nibbles(code);
      if (dtype == HEED_Q5_K) code = v_or_bits(code, b + 16, 4 - 2 * i + i % 2, 2 - 2 * i + i % 2, 0x10);
    }
    V_UNROLL
    for (int r = 0; r < rows; r++) {
      vint dot = few_offset(dtype) ? few_start(t, r, p / 64 + (size_t)i) : v_set_int(0);
      dot = v_dot_bytes(dot, code, v_load_words(few_bytes(t, r, p + 64 * (size_t)i)));
      const vfloat spread =
          dtype == HEED_Q6_K ? v_spread_four(factor[r], 4 * i) : v_spread_two(factor[r], 4 * half + i % 2, 2);
      t->sum[r] = v_fma(v_to_float(dot), spread, t->sum[r]);
    }
  }
}

/* 64 elements of int8, or the last n */
V_INLINE void few_add_bytes(const int rows, few_tile *t, const uint8_t *w, size_t p, const bool whole,
                            size_t n, const float *scale) {
  const vint code = v_flip_bytes(whole ? v_load_words(w + p) : v_load_first_bytes(w + p, n));
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    const vint dot = v_dot_bytes(few_start(t, r, p / 64), code, v_load_words(few_bytes(t, r, p)));
    const vfloat product = v_mul(v_to_float(dot), v_set(*few_factors(t, r, p / 64)));
    t->sum[r] = v_fma(product, v_set(scale[p / 64]), t->sum[r]);
  }
}

/* The lanes of both that count */
V_INLINE vfloat few_joined(const heed_dtype dtype, vfloat sum, vfloat less) {
  if (!few_has_minimum(dtype)) return sum;
  if (few_is_small(dtype)) return v_add(sum, v_clear(v_mask_from_bits(0x5555), less));
  return v_sub(sum, v_clear(v_mask_from_bits(0xff), less));
}

/* Row j of the weight */
V_INLINE void few_row(const heed_dtype dtype, const int rows, const heed__lowp_task *task, few_tile *t,
                      size_t j) {
  const size_t k = task->k;
  const uint8_t *w = (const uint8_t *)task->w + heed__row_bytes(dtype, (ptrdiff_t)j * task->w_row);
  size_t p = 0;
  V_UNROLL
  for (int r = 0; r < rows; r++) t->sum[r] = t->less[r] = v_zero();
  if (dtype == HEED_INT8) {
    const float *scale = task->scale + (ptrdiff_t)j * task->scale_row;
    for (; p + 64 <= k; p += 64) {
      few_fetch(w + p, 64);
      few_add_bytes(rows, t, w, p, true, 0, scale);
    }
    if (p < k) few_add_bytes(rows, t, w, p, false, k - p, scale);
    return;
  }
  const size_t bytes = heed__block_bytes(dtype);
  if (!few_is_small(dtype)) {
    for (; p < k; p += FEW_DEPTH, w += bytes) {
      few_fetch(w, bytes);
      few_add_large(dtype, rows, t, w, p);
    }
    return;
  }
  for (; p + 128 <= k; p += 128, w += 4 * bytes) {
    few_fetch(w, 4 * bytes);
    few_add_small(dtype, rows, t, (const uint8_t *const[]){w, w + bytes, w + 2 * bytes, w + 3 * bytes}, p);
  }
  if (p == k) return;
  static const uint8_t nothing[34];
  const size_t left = (k - p) / BLOCKS_GROUP;
  few_add_small(dtype, rows, t,
                (const uint8_t *const[]){w, left > 1 ? w + bytes : nothing,
                                         left > 2 ? w + 2 * bytes : nothing, nothing},
                p);
}

/* Rows j…last-1 of the weight with `rows` rows of x, from row i on */
V_INLINE void few_columns(const heed_dtype dtype, const int rows, const heed__reduced_task *task, size_t i,
                          size_t j, size_t last) {
  const heed__lowp_task *w = &task->whole;
  few_tile t = {.bytes = few_row_bytes(w), .depth = few_depth(w)};
  t.x = (const char *)task->packed + i * t.bytes;
  for (; j < last; j += FEW_COLUMNS) {
    const size_t columns = heed__min_size(last - j, FEW_COLUMNS);
    vfloat sum[FEW_TILE][FEW_COLUMNS];
    V_UNROLL
    for (size_t c = 0; c < FEW_COLUMNS; c++) {
      if (c < columns) few_row(dtype, rows, w, &t, j + c);
      V_UNROLL
      for (int r = 0; r < rows; r++) sum[r][c] = few_joined(dtype, t.sum[r], t.less[r]);
    }
    V_UNROLL
    for (int r = 0; r < rows; r++) {
      float total[FEW_COLUMNS], *to = w->c + ((ptrdiff_t)i + r) * w->c_row + j;
      v_sum_four(total, sum[r]);
      for (size_t c = 0; c < columns; c++) to[c] = w->bias ? total[c] + w->bias[j + c] : total[c];
    }
  }
}

typedef void few_product(const heed__reduced_task *task, size_t i, size_t j, size_t last);
#define FEW_PRODUCT(dtype, rows)                                                                             \
  static __attribute__((noinline)) void V_NAME(few_##dtype##_##rows)(const heed__reduced_task *task,         \
                                                                     size_t i, size_t j, size_t last) {      \
    few_columns(HEED_##dtype, rows, task, i, j, last);                                                       \
  }
#define FEW_DTYPE(dtype, ...) FEW_PRODUCT(dtype, 1) FEW_PRODUCT(dtype, 2) FEW_PRODUCT(dtype, 4)
FEW_DTYPE(INT8)
HEED_BLOCK_DTYPE_LIST(FEW_DTYPE)

/* As the kernel reduced; a step is some rows of the weight. */
static bool few_multiply(const heed__reduced_task *task, const heed__pace *pace, int64_t *position) {
#define X(dtype, ...)                                                                                        \
  [HEED_##dtype] = {V_NAME(few_##dtype##_1), V_NAME(few_##dtype##_2), V_NAME(few_##dtype##_4)},
  static few_product *const products[][3] = {X(INT8) HEED_BLOCK_DTYPE_LIST(X)};
#undef X
  few_product *const *const product = products[task->whole.dtype];
  const size_t last = task->column + task->columns, end = task->row + task->rows;
  const size_t step = (1 + FEW_CHECK / (task->rows * task->whole.k + 1)) * FEW_COLUMNS;
  size_t j = task->column + (position ? (size_t)*position : 0);
  while (j < last) {
    const size_t stop = heed__min_size(last, j + step);
    /* the rows of a tile share what they read; the next tile finds it in the cache */
    for (; j < stop; j += FEW_COLUMNS) {
      const size_t to = task->rows == 1 || task->rows == 2 || task->rows == 4
                            ? stop
                            : heed__min_size(stop, j + FEW_COLUMNS);
      for (size_t i = task->row; i < end;) {
        const size_t rows = end - i >= 4 ? 4 : end - i >= 2 ? 2 : 1;
        product[rows / 2](task, i, j, to);
        i += rows;
      }
      if (to == stop) break;
    }
    j = stop;
    if (j < last && heed__should_yield(pace)) {
      *position = (int64_t)(j - task->column);
      return false;
    }
  }
  return true;
}

#endif
