/* Characters that Hugging Face's tokenizers treat differently from current Unicode: its tables are in part
 * those of Unicode 8 and 9, so later characters, including marks and punctuation, are unknown letters. */
#include "text.h"

typedef struct older_range {
  int32_t first, last, category;
} older_range;

#define OTHER_CATEGORY(first, last, category) {first, last, category},
#define NOT_NORMALISED(first, last)
static const older_range recategorised[] = {
#include "older_unicode.def"
};
#undef OTHER_CATEGORY
#undef NOT_NORMALISED
#define OTHER_CATEGORY(first, last, category)
#define NOT_NORMALISED(first, last) {first, last, 0},
static const older_range not_normalised[] = {
#include "older_unicode.def"
};
#undef OTHER_CATEGORY
#undef NOT_NORMALISED

/* The range of a character; NULL: none. */
static const older_range *range_of(const older_range *ranges, size_t count, int32_t c) {
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (ranges[middle].last < c)
      low = middle + 1;
    else
      high = middle;
  }
  return low < count && ranges[low].first <= c ? &ranges[low] : NULL;
}

heed__category heed__older_category(int32_t c) {
  const size_t count = sizeof(recategorised) / sizeof(*recategorised);
  const older_range *range = c < recategorised[0].first ? NULL : range_of(recategorised, count, c);
  return range != NULL ? range->category : heed__category_of(c);
}

bool heed__is_normalised(int32_t c) {
  const size_t count = sizeof(not_normalised) / sizeof(*not_normalised);
  return c < not_normalised[0].first || range_of(not_normalised, count, c) == NULL;
}
