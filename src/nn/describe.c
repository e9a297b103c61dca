/* Numbers and shapes as Python prints them, for PyTorch's repr. */
#include "nn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fewest digits that identify the number, with an exponent below 1e-4 and from 1e16 on. */
const char *heed__python_number(char text[HEED__NUMBER_TEXT], double value) {
  if (!isfinite(value)) return heed__number_text(text, value);
  const int digits = heed__shortest_digits(value);
  heed__write_number(text, HEED__NUMBER_TEXT, 'e', digits - 1, value);
  const int exponent = atoi(strchr(text, 'e') + 1);
  if (exponent >= -4 && exponent < 16) {
    const int decimals = digits - 1 - exponent;
    heed__write_number(text, HEED__NUMBER_TEXT, 'f', decimals > 1 ? decimals : 1, value);
  }
  return text;
}

const char *heed__python_sizes(char text[HEED__SHAPE_TEXT], const heed__sizes *sizes) {
  heed__shape_text(text, sizes->count, sizes->size);
  const size_t length = strlen(text);
  text[0] = '(';
  memcpy(text + length - 1, sizes->count == 1 ? ",)" : ")", sizes->count == 1 ? 3 : 2);
  return text;
}
