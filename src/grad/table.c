/* The gradients of all operations, by operation. */
#include "grad.h"

#define INPUT(i) HEED__SAVE_INPUT(i)
#define OUTPUT   HEED__SAVE_OUTPUT

static const heed__gradient gradients[HEED__OPS] = {
#define GRADIENT(op, text, view, ...)                                                                        \
  [HEED__OP_##op] = {.name = text,                                                                           \
                     .function = #op,                                                                        \
                     .needs = {__VA_ARGS__},                                                                 \
                     .needs_count = sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t),                    \
                     .is_view = view,                                                                        \
                     .backward = heed__##op##_backward},
#define NAMED(op, view, ...)                                                                                 \
  [HEED__OP_##op] = {.function = #op,                                                                        \
                     .needs = {__VA_ARGS__},                                                                 \
                     .needs_count = sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t),                    \
                     .is_view = view,                                                                        \
                     .backward = heed__##op##_backward,                                                      \
                     .name_of = heed__##op##_name},
#define UNKNOWN(op) [HEED__OP_##op] = {.function = #op},
#include "gradients.def"
};

#undef INPUT
#undef OUTPUT

const heed__gradient *heed__gradient_of(heed__op op) {
  return &gradients[op];
}
