/* CausalAttention: one head, each token sees itself and those before, dropout on the weights. */
#include "../nn.h"
#include "stages.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static heed_status check_softmax_setting(const heed_module *m, const char *name, heed_scalar value) {
  (void)name;
  const int64_t dim = heed__max(heed__min(value.as.integer, INT_MAX), -INT_MAX);
  return heed__check_softmax_dim(m->context, m->class->name, (int)dim);
}

static const heed__setting causal_settings[] = {
    {"d_in", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_in), NULL},
    {"d_out", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_out), NULL},
    {"scale", HEED__SETTING_SCALE, offsetof(heed__attention_module, scale), heed__check_scale},
    {"context_length", HEED__SETTING_INTEGER, offsetof(heed__attention_module, context_length),
     heed__check_context_length},
    {"softmax_dim", HEED__SETTING_INTEGER, offsetof(heed__attention_module, softmax_dim),
     check_softmax_setting},
    {0},
};

/* ---- Softmax over a dimension other than the keys, which the row-by-row kernels cannot do ---- */

/* out [..., n, d] = weights [..., n, n] · values [..., n, d], all row-major. Hidden positions are skipped:
 * multiplying by 0 would let nan through. */
static void weigh_hidden(const heed_tensor *weights, const heed_tensor *hidden, const heed_tensor *values,
                         const heed_tensor *out) {
  const int64_t n = values->shape[values->ndim - 2], d = values->shape[values->ndim - 1];
  const float *w = (const float *)(const void *)weights->data, *v = (const float *)(const void *)values->data;
  const uint8_t *skip = (const uint8_t *)hidden->data;
  float *to = (float *)(void *)out->data;
  if (out->numel == 0) return;
  memset(to, 0, (size_t)out->numel * sizeof *to);
  for (int64_t row = 0; row < out->numel / d; row++, w += n, skip += n, to += d) {
    const float *value = v + row / n * n * d;
    for (int64_t j = 0; j < n; j++, value += d) {
      for (int64_t c = 0; c < d && !skip[j]; c++) to[c] += w[j] * value[c];
    }
  }
}

/* scores · scale + mask, -inf where hidden. Keys beyond a shorter mask are hidden already. */
static heed_status scale_scores(const heed__attention_module *a, const heed_tensor *scores,
                                const heed_tensor *mask, const heed_tensor *hidden, heed_tensor **out) {
  heed_context *ctx = a->base.context;
  heed__number scale;
  heed_status status = heed_mul(ctx, scores, heed__number_tensor(&scale, heed_number(a->scale)), out);
  if (status != HEED_OK || mask == NULL || mask->dtype != HEED_FLOAT32) return status;
  heed_tensor part, *into = &part; /* the columns that the mask has */
  heed__alias_on_stack(&part, *out);
  int last = part.ndim - 1, mask_last = mask->ndim - 1;
  if (mask_last >= 0 && mask->shape[mask_last] != 1 && mask->shape[mask_last] < part.shape[last]) {
    heed__narrow_on_stack(&part, last, 0, mask->shape[mask_last]);
  }
  if ((status = heed_add(ctx, &part, mask, &into)) != HEED_OK) return status;
  return heed_masked_fill(ctx, *out, hidden, heed_number(-INFINITY), out);
}

/* A mask of fewer columns, with zeros in the others: those are hidden. *out: NULL if it has all, or one. */
static heed_status widen_mask(heed_context *ctx, const heed_tensor *mask, int64_t columns,
                              heed_tensor **out) {
  int64_t shape[HEED_MAX_DIMS];
  const int last = mask->ndim - 1;
  heed_tensor *zeros = NULL;
  if (last < 0 || mask->shape[last] == 1 || mask->shape[last] >= columns) return HEED_OK;
  memcpy(shape, mask->shape, (size_t)mask->ndim * sizeof *shape);
  shape[last] = columns - mask->shape[last];
  heed_status status = heed_full(ctx, HEED_FLOAT32, mask->ndim, shape, heed_number(0), &zeros);
  if (status == HEED_OK) status = heed_cat(ctx, 2, (const heed_tensor *const[]){mask, zeros}, -1, out);
  heed_tensor_free(zeros);
  return status;
}

/* The weighted values by recorded operations, with the elements of `plain`, which was computed from the same
 * operands: their sums have another order. hidden: the positions whose scores are -inf. */
static heed_status recorded_along(heed_module *m, int dim, double p, heed_generator *g,
                                  const heed_tensor *mask, heed_tensor *const *projected,
                                  const heed_tensor *hidden, const heed_tensor *plain, heed_tensor **out) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  heed_context *ctx = m->context;
  heed_tensor *keys = NULL, *scores = NULL, *scaled = NULL, *wide = NULL, *masked = NULL, *visible = NULL,
              *weights = NULL, *shown = NULL, *dropped = NULL, *y = NULL;
  heed__number scale;
  heed_status status = heed_transpose(ctx, projected[1], -2, -1, &keys);
  if (status == HEED_OK) status = heed_matmul(ctx, projected[0], keys, &scores);
  if (status == HEED_OK)
    status = heed_mul(ctx, scores, heed__number_tensor(&scale, heed_number(a->scale)), &scaled);
  if (status == HEED_OK && mask != NULL && mask->dtype == HEED_FLOAT32) {
    status = widen_mask(ctx, mask, scaled->shape[scaled->ndim - 1], &wide);
    if (status == HEED_OK) status = heed_add(ctx, scaled, wide != NULL ? wide : mask, &masked);
  }
  if (status == HEED_OK)
    status =
        heed_masked_fill(ctx, masked != NULL ? masked : scaled, hidden, heed_number(-INFINITY), &visible);
  if (status == HEED_OK) status = heed_softmax(ctx, visible, dim, &weights);
  if (status == HEED_OK) status = heed_masked_fill(ctx, weights, hidden, heed_number(0), &shown);
  if (status == HEED_OK && p > 0) status = heed__drop(ctx, m->class->name, g, p, shown, &dropped);
  if (status == HEED_OK) status = heed_matmul(ctx, dropped != NULL ? dropped : shown, projected[2], &y);
  if (status == HEED_OK && plain->numel > 0)
    memcpy(y->data, plain->data, (size_t)plain->numel * sizeof(float));
  if (status == HEED_OK)
    status = *out != NULL ? heed_copy(ctx, *out, y) : heed__tensor_from_view(ctx, m->class->name, y, out);
  heed_tensor *const made[] = {keys, scores, scaled, wide, masked, visible, weights, shown, dropped, y};
  for (size_t i = 0; i < sizeof made / sizeof *made; i++) heed_tensor_free(made[i]);
  return status;
}

static heed_status forward_along(heed_module *m, int dim, const heed_tensor *x,
                                 const heed_forward_options *options, heed_tensor **out,
                                 heed_attention_taps *taps) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  const double p = heed__dropout_active(heed__module_part(m, "dropout"));
  heed_context *ctx = m->context;
  heed_generator *g = heed__generator(ctx, options->generator);
  const heed_generator before = *g;
  heed_tensor *projected[3] = {NULL}, *unused = NULL, *hidden = NULL, *scaled = NULL;
  heed_tensor *weights = NULL, *dropped = NULL, *plain = NULL;
  const heed__recorder *recorder = ctx->recorder;
  const bool recorded = heed__records(m, x, options);
  heed_attention_taps found = {.size = sizeof found};
  heed__number least;
  heed__result result = {0};
  int64_t shape[3];
  heed_status status;
  for (int i = 0; i < 3; i++) { /* W_query, W_key, W_value */
    status = heed__linear_apply(m->slots[i].module, m->class->name, x, &projected[i]);
    if (status != HEED_OK) goto done;
  }
  const int ndim = x->ndim;
  memcpy(shape, x->shape, (size_t)ndim * sizeof *shape);
  shape[ndim - 1] = shape[ndim - 2];
  heed_tensor **const made[] = {&scaled, &weights, &hidden}; /* made here, so that messages name the module */
  for (int i = 0; i < 3; i++) {
    const heed_dtype dtype = made[i] == &hidden ? HEED_BOOL : HEED_FLOAT32;
    if ((status = heed__tensor_new(ctx, m->class->name, dtype, ndim, shape, made[i])) != HEED_OK) goto done;
  }

  /* Computes the masked scores; its output is not used. */
  const heed__attention_operands operands = {
      .function = m->class->name,
      .q = projected[0],
      .k = projected[1],
      .v = projected[2],
      .options = {.attn_mask = options->attn_mask,
                  .mask = options->mask,
                  .is_causal = true,
                  .scale = a->scale,
                  .kv_lengths = options->kv_lengths},
      .no_heads = true,
      .same_tokens = true,
      .key_padding_mask = options->key_padding_mask,
      .taps = 1u << HEED__TAP_scores,
      .found = &found,
  };
  heed__pause_recording(ctx);
  if ((status = heed__attention(ctx, &operands, &unused)) != HEED_OK) goto done;
  const heed_tensor *scores = found.scores;
  const heed_tensor *minus_infinity = heed__number_tensor(&least, heed_number(-INFINITY));
  if ((status = heed_eq(ctx, scores, minus_infinity, &hidden)) != HEED_OK) goto done;
  if ((status = scale_scores(a, scores, options->attn_mask, hidden, &scaled)) != HEED_OK) goto done;
  if ((status = heed_softmax(ctx, scaled, dim, &weights)) != HEED_OK) goto done;
  if ((status = heed_masked_fill(ctx, weights, hidden, heed_number(0), &weights)) != HEED_OK) goto done;
  if (p > 0 && (status = heed__drop(ctx, m->class->name, g, p, weights, &dropped)) != HEED_OK) goto done;

  if (!recorded) heed__resume_recording(ctx, recorder);
  status = heed__result_begin_row_major(ctx, m->class->name, &result, recorded ? &plain : out, HEED_FLOAT32,
                                        ndim, projected[2]->shape, 0, NULL);
  if (status != HEED_OK) goto done;
  weigh_hidden(dropped != NULL ? dropped : weights, hidden, projected[2], result.tensor);
  status = heed__result_end(ctx, &result, status);
  heed__resume_recording(ctx, recorder);
  if (status == HEED_OK && recorded) {
    heed_generator again = before; /* the dropout mask of the plain result */
    status = recorded_along(m, dim, p, &again, options->attn_mask, projected, hidden, plain, out);
  }
  if (status != HEED_OK || taps == NULL) goto done;
  *taps = (heed_attention_taps){.size = sizeof *taps,
                                .scores = found.scores,
                                .weights = weights,
                                .dropped_weights = dropped,
                                .queries = projected[0],
                                .keys = projected[1],
                                .values = projected[2]};
  found.scores = weights = dropped = projected[0] = projected[1] = projected[2] = NULL;
  status = heed__wanted_select(ctx, m->class->name, options->wanted, true, taps);
done:
  heed__resume_recording(ctx, recorder);
  if (status != HEED_OK) *g = before;
  for (int i = 0; i < 3; i++) heed_tensor_free(projected[i]);
  heed_attention_taps_free(&found);
  heed_tensor_free(plain);
  heed_tensor_free(unused);
  heed_tensor_free(hidden);
  heed_tensor_free(scaled);
  heed_tensor_free(weights);
  heed_tensor_free(dropped);
  return status;
}

static heed_status causal_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                  heed_tensor **out, heed_attention_taps *taps) {
  const int64_t wanted = ((const heed__attention_module *)m)->softmax_dim;
  heed_status status = heed__attention_check_input(m, x, options);
  if (status != HEED_OK) return status;
  if (wanted > x->ndim || wanted < -x->ndim) {
    return heed__fail(m->context, HEED_INDEX,
                      "%s: softmax_dim is %d; it must be from 1 to %d, or from -%d to -1", m->class->name,
                      (int)wanted, x->ndim, x->ndim);
  }
  if (wanted != -1 && wanted != x->ndim && (status = heed__refuse_own(m, "softmax_dim")) != HEED_OK)
    return status;
  const int dim = (int)(wanted < 0 ? wanted + x->ndim + 1 : wanted);
  if (dim != x->ndim && options->lengths != NULL)
    return heed__fail(m->context, HEED_ARGUMENT,
                      "%s: lengths are given and softmax_dim is %d; it must be that of the keys, -1 or %d",
                      m->class->name, (int)wanted, x->ndim);
  return dim == x->ndim ? heed__attention_forward(m, x, options, out, taps)
                        : forward_along(m, dim, x, options, out, taps);
}

/* ---- Constructor ---- */

static heed_status complete_causal(heed_context *ctx, heed_attention_config *config) {
  heed__one_head(config, true);
  return heed__check_softmax_dim(ctx, heed__causal_class.base.name, config->softmax_dim);
}

const heed__attention_class heed__causal_class = {.base = {.name = "CausalAttention",
                                                           .settings = causal_settings,
                                                           .attends = true,
                                                           .staged = true,
                                                           .forward = causal_forward,
                                                           .describe = heed__describe_one_head},
                                                  .one_head = true,
                                                  .drops = true,
                                                  .complete = complete_causal};

heed_status heed_causal_attention_new(heed_context *ctx, heed_generator *g,
                                      const heed_attention_config *config, heed_module **out) {
  return heed__attention_new(ctx, g, &heed__causal_class, config, out);
}
