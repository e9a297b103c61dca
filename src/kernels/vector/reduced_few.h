/* Integer products (kernels.h) of few rows of x, which take the time of reading the weight: its rows are read
 * one after the other, and their codes are multiplied as they are stored, without sign.
 *
 * x is packed row by row: bytes in the order in which codes are unpacked; for dtypes with an offset, what the
 * sums of products begin with, -offset · Σ q; and factors, by which the scales of a step are multiplied. */
#ifndef HEED_VECTOR_REDUCED_FEW_H
#define HEED_VECTOR_REDUCED_FEW_H

#include "reduced_round.h"

enum {
  FEW_TILE = V_REGISTERS >= 32 ? 4 : 2, /* rows of x in a tile at most */
  FEW_COLUMNS = 4,                      /* rows of the weight whose sums are joined together */
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
  case HEED_Q8_0: return V_BYTES_EXCESS;
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
    for (size_t v = 0; v < REDUCED_PARTS; v++)
      v_store_words(q + i * HEED_INT8_BLOCK + v * REDUCED_WIDE, line[v]);
  }
  for (size_t i = 0; i < 8; i++)
    memcpy(out->q + 16 * i, q + 16 * (halves ? small[i] : pairs ? large[i] : i), 16);
  v_store_dots(out->sum, v_sum_bytes(out->q));
  v_store_dots(out->sum + 16, v_sum_bytes(out->q + 64));
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
  vparts sum[FEW_TILE], less[FEW_TILE]; /* the products; those of the minima, in some of the lanes */
} few_tile;

V_INLINE const char *few_bytes(const few_tile *t, int row, size_t p) {
  return t->x + (size_t)row * t->bytes + p;
}
V_INLINE vdots few_start(const heed_dtype dtype, const few_tile *t, int row, size_t vector) {
  return few_offset(dtype) ? v_load_dots(t->x + (size_t)row * t->bytes + t->depth + vector * 64)
                           : v_no_dots();
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
  const bool with_sign = dtype == HEED_Q8_0;
  const vbytes code = vb_load_four(b, at);
  vbytes low = with_sign ? vb_signed(code) : vb_low(code);
  vbytes high = with_sign ? vb_signed(vb_load_four(b, 18)) : vb_high(code);
  if (dtype == HEED_Q5_0 || dtype == HEED_Q5_1) {
    low = vb_add_fifths(low, b, at - 4);
    high = vb_add_fifths(high, b, at - 2);
  }
  const vparts scale = few_has_minimum(dtype) ? vp_load_pairs(b) : vp_load_four(b);
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    const vparts factor = vp_mul_eight(scale, few_factors(t, r, p / 16));
    const char *const q = few_bytes(t, r, p);
    vdots dots = few_start(dtype, t, r, p / 128);
    dots = with_sign ? v_dot_signed(v_dot_signed(dots, low, q), high, q + 64)
                     : v_dot(v_dot(dots, low, q), high, q + 64);
    t->sum[r] = vp_fma(dots, vp_fours(factor, few_has_minimum(dtype) ? 2 : 1), t->sum[r]);
    if (few_has_minimum(dtype)) t->less[r] = vp_add_first(t->less[r], factor); /* odd lanes count */
  }
}

/* A K block: elements p… */
V_INLINE void few_add_large(const heed_dtype dtype, const int rows, few_tile *t, const uint8_t *b, size_t p) {
  vparts scale, factor[FEW_TILE];
  if (dtype == HEED_Q6_K) {
    scale = vp_scale_signed(b + 208, b + 192);
  } else {
    uint8_t six[16];
    blocks_sixes(six, b);
    scale = vp_scale_bytes(b, six);
  }
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    factor[r] = vp_mul(scale, few_factors(t, r, p / 16));
    if (few_has_minimum(dtype)) t->less[r] = vp_add_last(t->less[r], factor[r]);
  }
  V_UNROLL
  for (int i = 0; i < 4; i++) { /* 64 elements */
    const int half = i / 2;
    vbytes code = vb_load(b + (dtype == HEED_Q6_K ? 0 : dtype == HEED_Q5_K ? 48 : 16) + 64 * half);
    code = i % 2 ? vb_high(code) : vb_low(code);
    if (dtype == HEED_Q6_K) code = vb_or_bits(code, b + 128 + 32 * half, i % 2 ? 0 : 4, i % 2 ? -2 : 2, 0x30);
    if (dtype == HEED_Q5_K) code = vb_or_bits(code, b + 16, 4 - 2 * i + i % 2, 2 - 2 * i + i % 2, 0x10);
    V_UNROLL
    for (int r = 0; r < rows; r++) {
      const vdots dots =
          v_dot(few_start(dtype, t, r, p / 64 + (size_t)i), code, few_bytes(t, r, p + 64 * (size_t)i));
      const vparts spread =
          dtype == HEED_Q6_K ? vp_fours_from(factor[r], i) : vp_eights(factor[r], 4 * half + i % 2);
      t->sum[r] = vp_fma(dots, spread, t->sum[r]);
    }
  }
}

/* 64 elements of int8, or the last n */
V_INLINE void few_add_bytes(const int rows, few_tile *t, const uint8_t *w, size_t p, const bool whole,
                            size_t n, const float *scale) {
  const vbytes code = vb_signed(whole ? vb_load(w + p) : vb_load_first(w + p, n));
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    const vdots dots = v_dot_signed(few_start(HEED_INT8, t, r, p / 64), code, few_bytes(t, r, p));
    t->sum[r] = vp_fma_two(dots, *few_factors(t, r, p / 64), scale[p / 64], t->sum[r]);
  }
}

/* Row j of the weight */
V_INLINE void few_row(const heed_dtype dtype, const int rows, const heed__lowp_task *task, few_tile *t,
                      size_t j) {
  const size_t k = task->k;
  const uint8_t *w = (const uint8_t *)task->w + heed__row_bytes(dtype, (ptrdiff_t)j * task->w_row);
  size_t p = 0;
  V_UNROLL
  for (int r = 0; r < rows; r++) t->sum[r] = t->less[r] = vp_zero();
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
      for (int r = 0; r < rows; r++)
        sum[r][c] = !few_has_minimum(dtype) ? vp_join(t.sum[r])
                    : few_is_small(dtype)   ? vp_join_odd(t.sum[r], t.less[r])
                                            : vp_join_last(t.sum[r], t.less[r]);
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
#if V_REGISTERS >= 32
#define FEW_DTYPE(dtype, ...) FEW_PRODUCT(dtype, 1) FEW_PRODUCT(dtype, 2) FEW_PRODUCT(dtype, 4)
#define FEW_NAMES(dtype, ...)                                                                                \
  [HEED_##dtype] = {V_NAME(few_##dtype##_1), V_NAME(few_##dtype##_2), V_NAME(few_##dtype##_4)},
#else
#define FEW_DTYPE(dtype, ...) FEW_PRODUCT(dtype, 1) FEW_PRODUCT(dtype, 2)
#define FEW_NAMES(dtype, ...) [HEED_##dtype] = {V_NAME(few_##dtype##_1), V_NAME(few_##dtype##_2)},
#endif
FEW_DTYPE(INT8)
HEED_BLOCK_DTYPE_LIST(FEW_DTYPE)

/* As the kernel reduced; a step is some rows of the weight. */
static bool few_multiply(const heed__reduced_task *task, const heed__pace *pace, int64_t *position) {
  static few_product *const products[][3] = {FEW_NAMES(INT8) HEED_BLOCK_DTYPE_LIST(FEW_NAMES)};
  few_product *const *const product = products[task->whole.dtype];
  const size_t last = task->column + task->columns, end = task->row + task->rows;
  const size_t step = (1 + FEW_CHECK / (task->rows * task->whole.k + 1)) * FEW_COLUMNS;
  size_t j = task->column + (position ? (size_t)*position : 0);
  const size_t tile = task->rows >= FEW_TILE ? FEW_TILE : task->rows >= 2 ? 2 : 1;
  while (j < last) {
    const size_t stop = heed__min_size(last, j + step);
    /* further tiles find what the first one reads in the cache */
    for (size_t to = stop; j < stop; j = to) {
      if (task->rows != tile) to = heed__min_size(stop, j + FEW_COLUMNS);
      for (size_t i = task->row, rows; i < end; i += rows) {
        rows = end - i >= FEW_TILE ? FEW_TILE : end - i >= 2 ? 2 : 1;
        product[rows / 2](task, i, j, to);
      }
    }
    if (j < last && heed__should_yield(pace)) {
      *position = (int64_t)(j - task->column);
      return false;
    }
  }
  return true;
}

#endif
