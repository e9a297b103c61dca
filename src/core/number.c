/* Floating-point numbers as text, with a point whatever decimal separator the host's locale has. The only
 * place that lets the C library write one (make lint checks that), since that asks the locale. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is neither digit, sign, exponent nor a letter of inf and nan is the separator, of one byte or more. */
static int set_point(char *text) {
  static const char others[] = "+-0123456789einfa";
  char *p = text + strspn(text, others);
  if (*p != '\0') {
    char *rest = p + strcspn(p, others);
    *p = '.';
    memmove(p + 1, rest, strlen(rest) + 1);
  }
  return (int)strlen(text);
}

int heed__write_number(char *text, size_t size, char form, int precision, double value) {
  const char *const format = form == 'e' ? "%.*e" : form == 'f' ? "%.*f" : "%.*g";
  snprintf(text, size, format, precision, value);
  return set_point(text);
}

const char *heed__number_text(char text[HEED__NUMBER_TEXT], double value) {
  heed__write_number(text, HEED__NUMBER_TEXT, 'g', 6, value);
  return text;
}

int heed__shortest_digits(double value) {
  char text[HEED__NUMBER_TEXT]; /* read back under the locale that it is written under */
  int digits = 1;
  for (; digits < 17; digits++) {
    snprintf(text, sizeof(text), "%.*e", digits - 1, value);
    if (strtod(text, NULL) == value) break;
  }
  return digits;
}
