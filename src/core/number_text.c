/* Floating-point numbers as text, always with a decimal point. Only this file formats them with the C library
 * (make lint checks that), which uses the decimal separator of the host's locale. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The separator, of one or more bytes, is whatever is not a digit, sign, exponent or letter of inf and nan.
 */
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
  if (value != value)
    snprintf(text, size, "nan"); /* without the sign that some systems print */
  else
    snprintf(text, size, format, precision, value);
  return set_point(text);
}

const char *heed__number_text(char text[HEED__NUMBER_TEXT], double value) {
  heed__write_number(text, HEED__NUMBER_TEXT, 'g', 6, value);
  return text;
}

int heed__shortest_digits(double value) {
  char text[HEED__NUMBER_TEXT]; /* written and read back in the same locale */
  int digits = 1;
  for (; digits < 17; digits++) {
    snprintf(text, sizeof(text), "%.*e", digits - 1, value);
    if (strtod(text, NULL) == value) break;
  }
  return digits;
}
