/* The points of a forward pass: their tensors, and how it goes on with changed ones. */
#include <math.h>
#include <string.h>

#include "own_pass.h"

static const heed__attention_module *attention_of(const heed__own_pass *pass) {
  return (const heed__attention_module *)pass->module;
}

/* ---- Views with four dimensions ---- */

/* Queries, keys, values or outputs [..., n, h · d], row-major, as [b, n, h, d]. */
static void view_point_rows(heed_tensor *view, const heed_tensor *x, int64_t head_dim) {
  const int64_t n = x->shape[x->ndim - 2], width = x->shape[x->ndim - 1];
  const int64_t shape[] = {x->ndim == 3 ? x->shape[0] : 1, n, heed__quotient(width, head_dim), head_dim};
  const int64_t stride[] = {n * width, width, head_dim, 1};
  heed__alias_on_stack(view, x);
  view->ndim = 4;
  memcpy(view->shape, shape, sizeof shape);
  memcpy(view->stride, stride, sizeof stride);
}

/* Maps [b, h, n, s], without b or h, row-major, as [b, h, n, s]. */
static void view_point_maps(heed_tensor *view, const heed_tensor *x, bool one_head) {
  const int64_t n = x->shape[x->ndim - 2], s = x->shape[x->ndim - 1];
  const bool batched = x->ndim == (one_head ? 3 : 4);
  const int64_t shape[] = {batched ? x->shape[0] : 1, one_head ? 1 : x->shape[x->ndim - 3], n, s};
  heed__alias_on_stack(view, x);
  view->ndim = 4;
  memcpy(view->shape, shape, sizeof shape);
  view->stride[3] = 1;
  for (int d = 3; d > 0; d--) view->stride[d - 1] = view->stride[d] * shape[d];
}

/* A map of the shape that maps of this pass have, from y [b, h, n, s]: shared if it is row-major. */
static heed_status maps_from(const heed__own_pass *pass, const heed_tensor *y, const heed_tensor *like,
                             heed_tensor **out) {
  heed_tensor view;
  heed_tensor *copy = NULL;
  heed_status status = HEED_OK;
  if (!heed_tensor_is_contiguous(y)) {
    status = heed__stages_copy(&pass->stages, y, &copy);
    y = copy;
  }
  if (status == HEED_OK) {
    heed__alias_on_stack(&view, y);
    view.ndim = like->ndim;
    memcpy(view.shape, like->shape, (size_t)like->ndim * sizeof *view.shape);
    view.stride[like->ndim - 1] = 1;
    for (int d = like->ndim - 1; d > 0; d--) view.stride[d - 1] = view.stride[d] * view.shape[d];
    status = heed__tensor_from_view(pass->context, pass->module->class->name, &view, out);
  }
  heed_tensor_free(copy);
  return status;
}

static void replace_point(heed_tensor **old, heed_tensor *by) {
  heed_tensor_free(*old);
  *old = by;
}

/* ---- Queries, keys and values ---- */

/* The projection (0 to 2) that a point is about. */
static int projection_at(int step) {
  switch (step) {
  case STEP_K:
  case STEP_ROT_K: return HEED__STAGE_KEYS;
  case STEP_V: return HEED__STAGE_VALUES;
  default: return HEED__STAGE_QUERIES;
  }
}

/* Exchanges a projection for another tensor of its shape, which it takes over. */
static void set_projected(heed__own_pass *pass, int which, heed_tensor *fresh) {
  heed__attention_stages *p = &pass->stages;
  replace_point(&p->projected[which], fresh);
  heed__stages_view_heads(&p->view[which], fresh, attention_of(pass));
}

/* A new tensor like x [..., n, h · d] from y, which `view` of it receives. */
static heed_status copy_point_rows(const heed__own_pass *pass, const heed_tensor *x, const heed_tensor *y,
                                   bool heads_first, heed_tensor **out) {
  heed_tensor view;
  heed_tensor *fresh = NULL;
  heed_status status =
      heed__tensor_new(pass->context, pass->module->class->name, HEED_FLOAT32, x->ndim, x->shape, &fresh);
  if (status != HEED_OK) return status;
  if (heads_first)
    heed__stages_view_heads(&view, fresh, attention_of(pass));
  else
    view_point_rows(&view, fresh, attention_of(pass)->head_dim);
  status = heed__copy(pass->context, pass->module->class->name, &view, y);
  if (status == HEED_OK)
    *out = fresh;
  else
    heed_tensor_free(fresh);
  return status;
}

heed_status heed__own_put_heads(heed__own_pass *pass, int which, const heed_tensor *y) {
  heed__attention_stages *p = &pass->stages;
  heed_tensor *fresh = NULL;
  const heed_status status = copy_point_rows(pass, p->projected[which], y, true, &fresh);
  if (status != HEED_OK) return status;
  set_projected(pass, which, fresh);
  heed_module_release(p->norm[which]); /* it is done */
  p->norm[which] = NULL;
  return HEED_OK;
}

/* ---- Maps ---- */

/* Begins the maps of these taps, in place of the stage ATTENTION. */
static heed_status begin_maps(heed__own_pass *pass, unsigned taps) {
  heed__attention_operands *operands = &pass->map_operands;
  *operands = pass->stages.operands;
  operands->options.dropout_p = 0;
  operands->maps_only = true;
  operands->wanted = NULL;
  operands->taps = taps;
  operands->found = &pass->taps;
  return heed__attention_plan_begin(pass->context, &pass->stages.plan, operands, NULL, &pass->unused);
}

heed_status heed__own_maps_begin(heed__own_pass *pass) {
  unsigned taps = 0;
  if ((pass->listened & HEED_POINT_PATTERN) != 0 || pass->dropout != NULL) taps |= 1u << HEED__TAP_weights;
  if ((pass->listened & HEED_POINT_ATTN_SCORES) != 0) taps |= 1u << HEED__TAP_biased_logits;
  if (pass->wants_taps) {
    taps |= heed__wanted_bits(pass->wanted, 1u << HEED__TAP_scores | 1u << HEED__TAP_weights);
    if (pass->wanted != NULL && pass->wanted->lse) taps |= 1u << HEED__TAP_biased_logits;
  }
  return begin_maps(pass, taps);
}

heed_status heed__own_maps_end(heed__own_pass *pass, heed_status status) {
  status = heed__attention_plan_end(&pass->stages.plan, status);
  replace_point(&pass->unused, NULL);
  return status;
}

/* softmax of a row of scores with an optional sink behind it; a row without visible keys gives zeros. */
static void softmax_row(const heed__kernels *kernels, float *out, const float *scores, float *x, int64_t s,
                        const float *sink) {
  if (sink == NULL) {
    if (kernels->max(scores, (size_t)s) == -INFINITY)
      memset(out, 0, (size_t)s * sizeof *out);
    else
      kernels->softmax(out, scores, (size_t)s);
    return;
  }
  memcpy(x, scores, (size_t)s * sizeof *x);
  x[s] = *sink;
  kernels->softmax(x, x, (size_t)s + 1);
  memcpy(out, x, (size_t)s * sizeof *x);
}

/* The weights of changed scores. */
static heed_status weights_of_scores(heed__own_pass *pass) {
  const heed_tensor *scores = pass->taps.biased_logits;
  const heed_tensor *sinks = pass->stages.operands.options.sinks;
  heed_context *ctx = pass->context;
  const char *name = pass->module->class->name;
  heed_tensor *weights = NULL, *row = NULL;
  const int64_t s = scores->shape[scores->ndim - 1], n = scores->shape[scores->ndim - 2], floats = s + 1;
  const heed__kernels *kernels = heed__kernels_of(ctx);
  heed_status status = heed__tensor_new(ctx, name, HEED_FLOAT32, scores->ndim, scores->shape, &weights);
  if (status == HEED_OK) status = heed__tensor_new(ctx, name, HEED_FLOAT32, 1, &floats, &row);
  for (int64_t r = 0; status == HEED_OK && s > 0 && r < scores->numel / s; r++) {
    const float *sink = NULL;
    if (sinks != NULL)
      sink =
          (const float *)(const void *)sinks->data + r / n % attention_of(pass)->num_heads * sinks->stride[0];
    softmax_row(kernels, (float *)(void *)weights->data + r * s,
                (const float *)(const void *)scores->data + r * s, (float *)(void *)row->data, s, sink);
    if (heed__is_due(&ctx->pace)) status = heed__stopped(ctx, name);
  }
  if (status == HEED_OK) {
    replace_point(&pass->taps.weights, weights);
    weights = NULL;
  }
  heed_tensor_free(weights);
  heed_tensor_free(row);
  return status;
}

/* ---- The output of changed weights ---- */

static bool is_finite(const heed_tensor *x) {
  const uint32_t exponent = 0x7f800000;
  const uint32_t *bits = (const uint32_t *)(const void *)x->data;
  int64_t found = 0;
  for (int64_t i = 0; i < x->numel; i++) found += (bits[i] & exponent) == exponent;
  return found == 0;
}

/* The values of all keys as float32 in *view, [b, kv heads, s, d]; *made, which the caller frees, holds them
 * if they are stored in another dtype, or a row-major copy is needed. */
static heed_status values_of(heed__own_pass *pass, bool row_major, heed_tensor *view, heed_tensor **made) {
  heed__attention_stages *p = &pass->stages;
  const heed_tensor *v = p->operands.v;
  const char *name = p->m->class->name;
  heed_status status = HEED_OK;
  if (v->dtype != HEED_FLOAT32 || p->ragged) {
    const int64_t of_items[] = {p->operands.item_count, v->shape[0], p->span.length, v->shape[v->ndim - 1]};
    status = heed__tensor_new(pass->context, name, HEED_FLOAT32, p->ragged ? 4 : v->ndim,
                              p->ragged ? of_items : v->shape, made);
    if (status == HEED_OK && !heed__kv_span_read(&p->span, HEED__KV_VALUES, *made))
      status = heed__stopped(pass->context, name);
  } else if (row_major) {
    status = heed__stages_copy(p, v, made);
  }
  if (status != HEED_OK) return status;
  if (*made != NULL) v = *made;
  const int missing = 4 - v->ndim; /* no batch, or one head */
  const bool one_head = attention_of(pass)->one_head;
  heed__alias_on_stack(view, v);
  view->ndim = 4;
  for (int d = 0; d < 4; d++) view->shape[d] = 1, view->stride[d] = v->stride[v->ndim - 2];
  for (int d = 0; d < v->ndim; d++) {
    const int to = d < v->ndim - 2 && one_head ? 0 : d + missing;
    view->shape[to] = v->shape[d];
    view->stride[to] = v->stride[d];
  }
  return HEED_OK;
}

/* Keys whose scores are -inf and whose weights are 0 are skipped, so that nan in them goes nowhere. For
 * values of which some are not finite; otherwise 0 times the value is 0. */
static heed_status weigh_rows(const heed__own_pass *pass, const heed_tensor *weights,
                              const heed_tensor *scores, const heed_tensor *values, heed_tensor *out) {
  const int64_t d = out->shape[3], n = out->shape[2], s = weights->shape[3];
  const int64_t group = heed__quotient(weights->shape[1], values->shape[1]);
  const float *w = (const float *)(const void *)weights->data,
              *seen = (const float *)(const void *)scores->data;
  float *to = (float *)(void *)out->data;
  memset(to, 0, (size_t)out->numel * sizeof *to);
  for (int64_t row = 0; row < out->numel / d; row++, to += d, w += s, seen += s) {
    const float *from = (const float *)(const void *)values->data + row / n / group * s * d;
    for (int64_t j = 0; j < s; j++, from += d) {
      if (w[j] == 0.0f && seen[j] == -INFINITY) continue;
      for (int64_t c = 0; c < d; c++) to[c] += w[j] * from[c];
    }
    if (heed__is_due(&pass->context->pace)) {
      const heed_status status = heed__stopped(pass->context, pass->module->class->name);
      if (status != HEED_OK) return status;
    }
  }
  return HEED_OK;
}

/* The scores, for their -inf. */
static heed_status find_hidden(heed__own_pass *pass) {
  if (pass->taps.biased_logits != NULL) return HEED_OK;
  heed_status status = begin_maps(pass, 1u << HEED__TAP_biased_logits);
  if (status != HEED_OK) return status;
  while (status == HEED_OK && !heed__attention_plan_run(&pass->stages.plan))
    status = heed__stopped(pass->context, pass->module->class->name);
  return heed__own_maps_end(pass, status);
}

/* out [b, h, n, d] = weights · values, row by row. */
static heed_status weigh_by_rows(heed__own_pass *pass, const heed_tensor *weights, const int64_t *shape,
                                 heed_tensor **out) {
  heed_tensor w, v, scores;
  heed_tensor *values = NULL, *product = NULL;
  heed_status status = values_of(pass, true, &v, &values);
  if (status == HEED_OK) status = find_hidden(pass);
  if (status == HEED_OK)
    status = heed__tensor_new(pass->context, pass->module->class->name, HEED_FLOAT32, 4, shape, &product);
  if (status == HEED_OK) {
    view_point_maps(&w, weights, attention_of(pass)->one_head);
    view_point_maps(&scores, pass->taps.biased_logits, attention_of(pass)->one_head);
    status = weigh_rows(pass, &w, &scores, &v, product);
  }
  if (status == HEED_OK) {
    *out = product;
    product = NULL;
  }
  heed_tensor_free(product);
  heed_tensor_free(values);
  return status;
}

/* The same; the query heads of a group are rows of one product. A value that is not finite shows in it, even
 * if its weight is 0. */
static heed_status weigh_point(heed__own_pass *pass, const heed_tensor *weights, heed_tensor **out) {
  heed_tensor w, v, grouped;
  heed_tensor *values = NULL, *product = NULL;
  heed_status status = values_of(pass, false, &v, &values);
  if (status != HEED_OK) return status;
  view_point_maps(&w, weights, attention_of(pass)->one_head);
  const int64_t shape[] = {w.shape[0], w.shape[1], w.shape[2], attention_of(pass)->head_dim};
  heed__alias_on_stack(&grouped, &w);
  grouped.shape[1] = v.shape[1];
  grouped.shape[2] = heed__quotient(w.shape[1], v.shape[1]) * w.shape[2];
  grouped.stride[1] = grouped.shape[2] * w.shape[3];
  grouped.stride[0] = grouped.stride[1] * grouped.shape[1];
  status = heed_matmul(pass->context, &grouped, &v, &product);
  if (status == HEED_OK && !is_finite(product)) {
    status = weigh_by_rows(pass, weights, shape, out);
  } else if (status == HEED_OK) {
    heed__alias_on_stack(&grouped, product);
    memcpy(grouped.shape, shape, sizeof shape);
    grouped.stride[3] = 1;
    for (int d = 3; d > 0; d--) grouped.stride[d - 1] = grouped.stride[d] * shape[d];
    status = heed__tensor_from_view(pass->context, pass->module->class->name, &grouped, out);
  }
  heed_tensor_free(product);
  heed_tensor_free(values);
  return status;
}

/* The tap lse of the scores, changed or not. */
static heed_status lse_of_scores(heed__own_pass *pass) {
  const heed_tensor *scores = pass->taps.biased_logits, *sinks = pass->stages.operands.options.sinks;
  const int64_t s = scores->shape[scores->ndim - 1], n = scores->shape[scores->ndim - 2];
  const char *name = pass->module->class->name;
  heed_tensor *lse = NULL;
  heed_status status =
      heed__tensor_new(pass->context, name, HEED_FLOAT32, scores->ndim - 1, scores->shape, &lse);
  const float *x = (const float *)(const void *)scores->data;
  for (int64_t r = 0; status == HEED_OK && r < lse->numel; r++, x += s) {
    const float *sink = NULL;
    if (sinks != NULL) {
      const int64_t head = r / n % attention_of(pass)->num_heads;
      sink = (const float *)(const void *)sinks->data + head * sinks->stride[0];
    }
    double most = -INFINITY, sum = 0;
    bool seen = false; /* the sink alone is no key */
    for (int64_t j = 0; j < s; j++) {
      most = x[j] > most ? x[j] : most;
      seen |= x[j] != -INFINITY;
    }
    if (sink != NULL && *sink > most) most = *sink;
    for (int64_t j = 0; j < s; j++) sum += exp(x[j] - most);
    if (sink != NULL) sum += exp(*sink - most);
    ((float *)(void *)lse->data)[r] = !seen ? -INFINITY : (float)(most + log(sum));
    if (heed__is_due(&pass->context->pace)) status = heed__stopped(pass->context, name);
  }
  if (status == HEED_OK)
    replace_point(&pass->taps.lse, lse);
  else
    heed_tensor_free(lse);
  return status;
}

heed_status heed__own_weigh(heed__own_pass *pass) {
  heed__attention_stages *p = &pass->stages;
  heed_tensor *dropped = NULL, *heads = NULL, *rows = NULL, view;
  const heed_tensor *weights = pass->taps.dropped_weights;
  heed_status status = HEED_OK;
  if (weights == NULL && p->dropout > 0) {
    status = heed__drop(pass->context, pass->module->class->name, p->options.generator, p->dropout,
                        pass->taps.weights, &dropped);
    weights = dropped;
  }
  if (status == HEED_OK) status = weigh_point(pass, weights != NULL ? weights : pass->taps.weights, &heads);
  if (status == HEED_OK) {
    heed__permute_on_stack(&view, heads, (const int[]){0, 2, 1, 3});
    status = copy_point_rows(pass, p->projected[0], &view, false, &rows);
  }
  if (status == HEED_OK && pass->wants_taps) {
    status = heed__stages_tap_inputs(p);
    if (status == HEED_OK && pass->wanted != NULL && pass->wanted->lse) status = lse_of_scores(pass);
  }
  if (status == HEED_OK) {
    replace_point(p->out_proj != NULL ? &p->heads : &pass->y, rows);
    rows = NULL;
    if (dropped != NULL) replace_point(&pass->taps.dropped_weights, dropped);
    dropped = NULL;
  }
  heed_tensor_free(dropped);
  heed_tensor_free(heads);
  heed_tensor_free(rows);
  return status;
}

/* ---- Points ---- */

/* Whether a later stage writes to the queries or keys that a point shows. */
static bool is_overwritten(const heed__own_pass *pass) {
  const heed__attention_stages *p = &pass->stages;
  if (pass->step != STEP_Q && pass->step != STEP_K) return false;
  return p->rotary || p->norm[projection_at(pass->step)] != NULL;
}

heed_status heed__own_point_make(heed__own_pass *pass) {
  heed__attention_stages *p = &pass->stages;
  const heed__attention_module *a = attention_of(pass);
  const unsigned edited = pass->edited;
  heed_status status = HEED_OK;
  bool copies = is_overwritten(pass);
  heed_tensor view;
  switch (pass->step) {
  case STEP_SCORES: view_point_maps(&view, pass->taps.biased_logits, a->one_head); break;
  case STEP_PATTERN:
    if (pass->taps.weights == NULL && (status = weights_of_scores(pass)) != HEED_OK) return status;
    view_point_maps(&view, pass->taps.weights, a->one_head);
    break;
  case STEP_Z:
  case STEP_RESULT:
    view_point_rows(&view, p->out_proj != NULL ? p->heads : pass->y, a->head_dim);
    copies = (edited & HEED_POINT_Z) != 0;
    break;
  default: {
    const int which = projection_at(pass->step);
    view_point_rows(&view, p->projected[which], a->head_dim);
    copies = copies || edited != 0;
  }
  }
  if (copies) return heed__stages_copy(p, &view, &pass->point);
  return heed__tensor_from_view(pass->context, pass->module->class->name, &view, &pass->point);
}

/* y [b, n, d_out] in place of out_proj's result. */
static heed_status put_result(heed__own_pass *pass, const heed_tensor *y) {
  heed_tensor view, *copy = NULL;
  heed__alias_on_stack(&view, y);
  if (pass->stages.projected[0]->ndim == 2) {
    view.ndim = 2;
    for (int d = 0; d < 2; d++) view.shape[d] = y->shape[d + 1], view.stride[d] = y->stride[d + 1];
  }
  const heed_status status = heed__stages_copy(&pass->stages, &view, &copy);
  if (status == HEED_OK) replace_point(&pass->y, copy);
  return status;
}

heed_status heed__own_point_put(heed__own_pass *pass, const heed_tensor *y) {
  heed__attention_stages *p = &pass->stages;
  heed_tensor *fresh = NULL;
  heed_status status = HEED_OK;
  switch (pass->step) {
  case STEP_SCORES:
    status = maps_from(pass, y, pass->taps.biased_logits, &fresh);
    if (status != HEED_OK) return status;
    replace_point(&pass->taps.biased_logits, fresh);
    pass->changed = true;
    return weights_of_scores(pass);
  case STEP_PATTERN:
    status = maps_from(pass, y, pass->taps.weights, &fresh);
    if (status != HEED_OK) return status;
    replace_point(&pass->taps.weights, fresh);
    pass->changed = true;
    return HEED_OK;
  case STEP_RESULT: return put_result(pass, y);
  case STEP_Z: {
    heed_tensor **heads = p->out_proj != NULL ? &p->heads : &pass->y;
    status = copy_point_rows(pass, *heads, y, false, &fresh);
    if (status == HEED_OK) replace_point(heads, fresh);
    return status;
  }
  default: {
    const int which = projection_at(pass->step);
    status = copy_point_rows(pass, p->projected[which], y, false, &fresh);
    if (status == HEED_OK) set_projected(pass, which, fresh);
    return status;
  }
  }
}

/* ---- The host's hook ---- */

heed_status heed_attention_set_hook(heed_module *m, unsigned points, heed_hook_function *hook, void *user) {
  static const char function[] = "attention_set_hook";
  HEED__ENTER(heed_module_context(m), function, m);
  const unsigned all = HEED_POINT_RESULT - 1;
  if (!m->class->staged)
    return heed__fail(m->context, HEED_ARGUMENT,
                      "%s: the module is a %s; it must be a MultiHeadAttention, a SelfAttention or a "
                      "CausalAttention",
                      function, m->class->name);
  if ((points & ~all) != 0)
    return heed__fail(m->context, HEED_ARGUMENT,
                      "%s: points is %u; it must be a sum of HEED_POINT_Q … HEED_POINT_Z", function, points);
  const bool none = hook == NULL || points == 0;
  ((heed__attention_module *)m)->hook =
      none ? (heed__attention_hook){0}
           : (heed__attention_hook){.callback = hook, .user = user, .points = points};
  return HEED_OK;
}
