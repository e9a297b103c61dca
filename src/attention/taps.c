/* Taps: intermediate results of attention, for callers that request them. */
#include "plan.h"

void heed_attention_taps_free(heed_attention_taps *taps) {
  heed_attention_taps theirs = {.size = sizeof theirs};
  if (!taps || taps->size == 0) return;
  heed__struct_move(&theirs, taps, taps->size);
#define X(name) heed_tensor_free(theirs.name);
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
}

static bool is_wanted(const heed__attention_plan *p, heed__tap tap) {
  return p->operands->taps >> tap & 1;
}

/* A new tensor with the dtype and sizes of x, and its elements if `filled`. */
static heed_status new_tap(const heed__attention_plan *p, const heed_tensor *x, bool filled,
                           heed_tensor **out) {
  heed_context *ctx = p->context;
  const char *function = p->operands->function;
  const heed_status status = heed__tensor_new(ctx, function, x->dtype, x->ndim, x->shape, out);
  if (status) return status;
  return !filled || heed__copy_elements(*out, x) ? HEED_OK : heed__stopped(ctx, function);
}

static heed_tensor **tensor_of(heed_attention_taps *taps, heed__tap tap) {
  switch (tap) {
#define X(name)                                                                                              \
  case HEED__TAP_##name: return &taps->name;
    HEED_ATTENTION_TAPS_LIST(X)
#undef X
  default: return NULL;
  }
}

heed_status heed__attention_new_taps(heed__attention_plan *p) {
  heed_attention_taps *taps = &p->taps;
  heed_tensor like = {.dtype = HEED_FLOAT32, .ndim = p->ndim}; /* [..., hq, l, s] */
  heed_status status = HEED_OK;
  taps->size = sizeof *taps;
  for (int i = 0; i < p->ndim; i++) like.shape[i] = p->shape[i];
  like.shape[p->ndim - 1] = p->key_length;
  for (int i = 0; i < HEED__TAP_MAPS; i++) {
    if (!is_wanted(p, (heed__tap)i)) continue;
    heed_tensor **map = tensor_of(taps, (heed__tap)i);
    if ((status = new_tap(p, &like, false, map))) return status;
    p->map[i] = (float *)(void *)(*map)->data;
  }
  if (is_wanted(p, HEED__TAP_present_key) && !p->joined[0])
    status = new_tap(p, p->k, true, &taps->present_key);
  if (!status && is_wanted(p, HEED__TAP_present_value) && !p->joined[1])
    status = new_tap(p, p->v, true, &taps->present_value);
  return status;
}

void heed__attention_tap(heed__attention_task *t, const heed__attention_plan *p, int64_t head) {
  float **const map[HEED__TAP_MAPS] = {
      [HEED__TAP_scores] = &t->scores,
      [HEED__TAP_weights] = &t->weights,
      [HEED__TAP_dropped_weights] = &t->dropped_weights,
      [HEED__TAP_logits] = &t->logits,
      [HEED__TAP_capped_logits] = &t->capped_logits,
      [HEED__TAP_biased_logits] = &t->biased_logits,
  };
  for (int i = 0; i < HEED__TAP_MAPS; i++)
    *map[i] = p->map[i] ? p->map[i] + head * p->query_length * p->key_length : NULL;
}

void heed__attention_end_taps(heed__attention_plan *p, heed_status status) {
  heed_attention_taps *taps = &p->taps;
  if (status) {
    heed_attention_taps_free(taps);
    return;
  }
  if (is_wanted(p, HEED__TAP_present_key) && p->joined[0]) {
    taps->present_key = p->joined[0];
    p->joined[0] = NULL;
  }
  if (is_wanted(p, HEED__TAP_present_value) && p->joined[1]) {
    taps->present_value = p->joined[1];
    p->joined[1] = NULL;
  }
#define X(name)                                                                                              \
  if (taps->name) p->operands->found->name = taps->name;
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
}
