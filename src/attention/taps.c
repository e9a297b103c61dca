/* Taps: intermediate results of attention, for callers that request them. */
#include "plan.h"

#include <math.h>

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

/* A new tensor with the dtype and sizes of x. */
static heed_status new_tap(const heed__attention_plan *p, const heed_tensor *x, heed_tensor **out) {
  return heed__tensor_new(p->context, p->operands->function, x->dtype, x->ndim, x->shape, out);
}

/* The tap of an input: a view, or a copy if the output may be written to the input. */
static heed_status new_present(const heed__attention_plan *p, const heed_tensor *x, bool shares,
                               heed_tensor **out) {
  heed_context *ctx = p->context;
  const char *function = p->operands->function;
  if (shares) return heed__tensor_from_view(ctx, function, x, out);
  const heed_status status = new_tap(p, x, out);
  if (status) return status;
  return heed__copy_elements(*out, x) ? HEED_OK : heed__stopped(ctx, function);
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

/* The heads and queries of the maps. */
static heed_status choose_map_rows(heed__attention_plan *p) {
  const heed__attention_operands *operands = p->operands;
  const heed_taps_wanted *wanted = operands->wanted;
  const heed_status status = heed__wanted_heads(p->context, operands->function, wanted, p->query_heads,
                                                &p->map_heads, &p->map_head_count);
  if (status) return status;
  return heed__wanted_queries(p->context, operands->function, wanted, p->query_length, &p->map_queries,
                              &p->map_query_count);
}

/* Items may have fewer keys and queries. */
static heed_status fill_map(const heed__attention_plan *p, heed_tensor *map, int tap) {
  const double none = tap == HEED__TAP_scores || tap == HEED__TAP_biased_logits ? -INFINITY : 0;
  return heed__fill(p->context, p->operands->function, map, heed_number(none));
}

heed_status heed__attention_new_taps(heed__attention_plan *p, bool shares) {
  heed_attention_taps *taps = &p->taps;
  heed_tensor like = {.dtype = HEED_FLOAT32, .ndim = p->ndim}; /* [..., hq, l, s] */
  heed_status status = HEED_OK;
  taps->size = sizeof *taps;
  for (int i = 0; i < p->ndim; i++) like.shape[i] = p->shape[i];
  if (is_wanted(p, HEED__TAP_lse)) {
    like.ndim--;
    if ((status = new_tap(p, &like, &taps->lse))) return status;
    p->lse = (float *)(void *)taps->lse->data;
    like.ndim++;
    for (int64_t i = 0; i < taps->lse->numel; i++) p->lse[i] = -INFINITY; /* without keys nothing else does */
  }
  if ((status = choose_map_rows(p))) return status;
  like.shape[p->ndim - 1] = p->key_length;
  like.shape[p->ndim - 2] = p->map_query_count;
  if (p->ndim > p->batch_ndim + 2) like.shape[p->ndim - 3] = p->map_head_count;
  for (int i = 0; i < HEED__TAP_MAPS; i++) {
    if (!is_wanted(p, (heed__tap)i)) continue;
    heed_tensor **map = tensor_of(taps, (heed__tap)i);
    if ((status = new_tap(p, &like, map))) return status;
    p->map[i] = (float *)(void *)(*map)->data;
    if (p->items && (status = fill_map(p, *map, i))) return status;
  }
  if (is_wanted(p, HEED__TAP_present_key) && !p->joined[0])
    status = new_present(p, p->k, shares, &taps->present_key);
  if (!status && is_wanted(p, HEED__TAP_present_value) && !p->joined[1])
    status = new_present(p, p->v, shares, &taps->present_value);
  return status;
}

bool heed__attention_tap(heed__attention_task *t, const heed__attention_plan *p, int64_t head) {
  int64_t row = 0;
  if (p->map_heads || p->packed) {
    const int64_t item = heed__quotient(head, p->query_heads), of_item = head - item * p->query_heads;
    int64_t i = p->map_heads ? 0 : of_item;
    while (i < p->map_head_count && p->map_heads && p->map_heads[i] != of_item) i++;
    if (i == p->map_head_count) return false;
    head = (p->packed ? 0 : item) * p->map_head_count + i;
    if (p->packed && !p->map_queries) row = p->items[item].first_query;
  }
  float **const map[HEED__TAP_MAPS] = {
      [HEED__TAP_scores] = &t->scores,
      [HEED__TAP_weights] = &t->weights,
      [HEED__TAP_dropped_weights] = &t->dropped_weights,
      [HEED__TAP_logits] = &t->logits,
      [HEED__TAP_capped_logits] = &t->capped_logits,
      [HEED__TAP_biased_logits] = &t->biased_logits,
  };
  for (int i = 0; i < HEED__TAP_MAPS; i++)
    *map[i] = p->map[i] ? p->map[i] + (head * p->map_query_count + row) * p->key_length : NULL;
  return true;
}

void heed__attention_end_taps(heed__attention_plan *p, heed_status status) {
  heed_attention_taps *taps = &p->taps;
  heed__release(p->context, p->map_heads);
  heed__release(p->context, p->map_queries);
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
