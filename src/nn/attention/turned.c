/* Caches in int4 hold keys and values that a Hadamard matrix has turned: queries are turned as well, which
 * keeps the scores, and the output is turned back. */
#include <string.h>

#include "stages.h"

enum { TURNED = 256 }; /* rows between cancellation checks */

heed_status heed__stages_begin_turned(heed__attention_stages *p) {
  const heed_tensor *q = p->projected[0];
  return heed__tensor_new(p->m->context, p->m->class->name, HEED_FLOAT32, q->ndim, q->shape, &p->turned);
}

/* Turns rows [head_dim] of row-major x, copied from `from` unless that is NULL. */
static void turn_rows(heed__attention_stages *p, heed_tensor *x, const heed_tensor *from, bool *done) {
  const int64_t d = ((const heed__attention_module *)p->m)->head_dim, rows = x->numel / d;
  *done = false;
  while (p->turned_rows < rows) {
    float *row = (float *)(void *)x->data + p->turned_rows * d;
    if (from != NULL)
      memcpy(row, (const float *)(const void *)from->data + p->turned_rows * d, (size_t)d * sizeof *row);
    heed__kv_turn(row, d);
    if (++p->turned_rows % TURNED == 0 && p->turned_rows < rows && heed__is_due(&p->m->context->pace)) return;
  }
  *done = true;
}

void heed__stages_turn_queries(heed__attention_stages *p, bool *done) {
  turn_rows(p, p->turned, p->projected[0], done);
}

void heed__stages_turn_output(heed__attention_stages *p, bool *done) {
  turn_rows(p, p->out_proj != NULL ? p->heads : p->result.tensor, NULL, done);
}
