/* Shared by the files of regular expressions. */
#ifndef HEED_REGEX_H
#define HEED_REGEX_H

#include "text.h"

#define HEED__REGEX_UNLIMITED UINT32_MAX

typedef struct heed__class_range {
  int32_t first, last;
} heed__class_range;

/* A set of characters. */
typedef struct heed__char_class {
  uint32_t ascii[4];   /* with `negated` applied */
  uint32_t categories; /* the rest is of characters from U+0080 on */
  uint32_t range, ranges;
  bool negated, space, not_space, word, not_word;
} heed__char_class;

typedef enum heed__regex_op {
  HEED__OP_SET,   /* a class, from `min` to `max` times */
  HEED__OP_SPLIT, /* go on at `to`; if that fails, at `other` */
  HEED__OP_JUMP,  /* to `to` */
  HEED__OP_LOOK,  /* lookahead: the part after this must match (or not: negated) up to END; then `to` */
  HEED__OP_END,   /* of a lookahead, of the pattern */
  HEED__OP_START, /* of the text */
  HEED__OP_FINISH /* the end of the text */
} heed__regex_op;

typedef enum heed__greed { HEED__GREEDY, HEED__LAZY, HEED__POSSESSIVE } heed__greed;

typedef struct heed__instruction {
  heed__regex_op op;
  bool negated;
  heed__greed greed;
  uint32_t class, min, max, to, other;
} heed__instruction;

#define HEED__ALTERNATIVES 32

struct heed__regex {
  heed_context *ctx;
  heed__bytes code, classes, ranges; /* heed__instruction, heed__char_class, heed__class_range */
  uint32_t starts[HEED__ALTERNATIVES];
  uint32_t alternatives;  /* of the whole pattern */
  uint32_t first[128];    /* by ASCII character: which alternatives can begin with it */
  uint32_t first_other;   /* with another character, or match nothing */
  heed__bytes stack;      /* of the matcher */
  int64_t steps, charged; /* steps so far, and those taken off the budget of work */
};

/** Whether a character is in the class. */
bool heed__class_has(const heed__regex *r, const heed__char_class *class, int32_t c);

#endif
