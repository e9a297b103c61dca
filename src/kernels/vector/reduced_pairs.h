/* Products of two rows of the weight with two rows of x by one instruction: x is packed in vectors of two
 * rows of 8 bytes. Part of reduced.h. */
#ifndef HEED_VECTOR_REDUCED_PAIRS_H
#define HEED_VECTOR_REDUCED_PAIRS_H

V_INLINE void reduced_add_bytes(vint part[][REDUCED_WIDEST], const int rows, const int vectors, const char *w,
                                const char *x, size_t pitch, const size_t words, const bool codes) {
  (void)codes;
  for (size_t word = 0; word < words; word += 2, w += 2 * REDUCED_WORD, x += 2 * REDUCED_WIDE) {
    V_UNROLL
    for (int r = 0; r < rows; r += 2) {
      const vint b = v_set_rows(w + r * REDUCED_LINE, w + (r + 1) * REDUCED_LINE);
      V_UNROLL
      for (int v = 0; v < vectors; v++) {
        const char *y = x + (size_t)v * pitch;
        part[r][v] = v_dot_byte_rows(part[r][v], v_load_words(y), b);
        part[r + 1][v] = v_dot_byte_rows(part[r + 1][v], v_load_words(y + REDUCED_WIDE), b);
      }
    }
  }
  V_UNROLL
  for (int r = 0; r < rows; r += 2) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) v_unmix(&part[r][v], &part[r + 1][v]);
  }
}

V_INLINE void reduced_add_halves(vfloat sum[][REDUCED_WIDEST], const int rows, const int vectors,
                                 const char *w, const char *x, size_t pitch) {
  for (size_t word = 0; word < REDUCED_WORDS; word += 2, w += 2 * REDUCED_WORD, x += 2 * REDUCED_WIDE) {
    V_UNROLL
    for (int r = 0; r < rows; r += 2) {
      const vint b = v_set_rows(w + r * REDUCED_LINE, w + (r + 1) * REDUCED_LINE);
      V_UNROLL
      for (int v = 0; v < vectors; v++) {
        const char *y = x + (size_t)v * pitch;
        sum[r][v] = v_dot_half_rows(sum[r][v], v_load_words(y), b);
        sum[r + 1][v] = v_dot_half_rows(sum[r + 1][v], v_load_words(y + REDUCED_WIDE), b);
      }
    }
  }
}

/* The sums of a tile, each of a row of w with four rows of x, as those of two rows with two, and back */
V_INLINE void reduced_turn_halves(vfloat sum[][REDUCED_WIDEST], const int rows, const int vectors,
                                  const bool back) {
  V_UNROLL
  for (int r = 0; r < rows; r += 2) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      vint a = v_bits(sum[r][v]), b = v_bits(sum[r + 1][v]);
      if (back)
        v_unmix(&a, &b);
      else
        v_mix(&a, &b);
      sum[r][v] = v_from_bits(a);
      sum[r + 1][v] = v_from_bits(b);
    }
  }
}

#endif
