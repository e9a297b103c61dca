/* The work and progress of the stages of a forward pass, for heed_steps. */
#include "stages.h"

/* The keys of a query; of packed sequences, about as many on average. */
static double keys_of_query(const heed__attention_stages *p) {
  if (p->spans) return (double)p->span.length;
  const double keys = (double)p->operands.k->shape[p->operands.k->ndim - 2];
  return p->operands.lengths != NULL ? keys / (double)heed__max(p->operands.lengths->numel, 1) : keys;
}

double heed__attention_stage_work(const heed__attention_stages *p, int stage) {
  switch (stage) {
  case HEED__STAGE_SHAPE:
    return heed__stages_has_shaping(p) ? 16 * (double)(p->view[0].numel + p->view[1].numel) : 0;
  case HEED__STAGE_CACHE: return p->spans ? 16 * (double)(p->view[1].numel + p->view[2].numel) : 0;
  case HEED__STAGE_ATTENTION: /* a causal module does half of it, but each takes longer than in a product */
    return 2 * (double)p->view[0].numel * keys_of_query(p);
  case HEED__STAGE_OUT:
    return p->out_proj == NULL ? 0
                               : (double)p->heads->numel * (double)p->out_proj->slots[0].parameter->shape[0];
  default:
    return (double)p->projected[stage]->numel * (double)p->from[stage]->shape[p->from[stage]->ndim - 1];
  }
}

double heed__attention_stage_progress(const heed__attention_stages *p, int stage) {
  if (stage == HEED__STAGE_ATTENTION) return heed__attention_plan_progress(&p->plan);
  if (stage == HEED__STAGE_OUT) return p->out_proj != NULL ? heed__linear_progress(&p->linear[3]) : 0;
  if (stage <= HEED__STAGE_VALUES) return heed__linear_progress(&p->linear[stage]);
  return heed__stages_pieces_progress(p, stage);
}
