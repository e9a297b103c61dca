/* MultiHeadAttention: one projection each for queries, keys and values, split into heads; then an output
 * projection. */
#include "../nn.h"

#include <math.h>

static const heed__setting heads_settings[] = {
    {"d_in", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_in)},
    {"d_out", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_out)},
    {"context_length", HEED__SETTING_INTEGER, offsetof(heed__attention_module, context_length)},
    {"num_heads", HEED__SETTING_INTEGER, offsetof(heed__attention_module, num_heads)},
    {"num_kv_heads", HEED__SETTING_INTEGER, offsetof(heed__attention_module, num_kv_heads)},
    {"head_dim", HEED__SETTING_INTEGER, offsetof(heed__attention_module, head_dim)},
    {"scale", HEED__SETTING_NUMBER, offsetof(heed__attention_module, scale)},
    {"causal", HEED__SETTING_BOOLEAN, offsetof(heed__attention_module, causal)},
    {"kdim", HEED__SETTING_INTEGER, offsetof(heed__attention_module, kdim)},
    {"vdim", HEED__SETTING_INTEGER, offsetof(heed__attention_module, vdim)},
    {"softcap", HEED__SETTING_NUMBER, offsetof(heed__attention_module, softcap)},
    {"alibi", HEED__SETTING_BOOLEAN, offsetof(heed__attention_module, alibi)},
    {"qk_norm", HEED__SETTING_BOOLEAN, offsetof(heed__attention_module, qk_norm)},
    {0},
};

static const heed__class heads_class = {.name = "MultiHeadAttention",
                                        .settings = heads_settings,
                                        .attends = true,
                                        .takes_keys = true,
                                        .staged = true,
                                        .forward = heed__attention_forward};

static double default_scale(int64_t head_dim) {
  return 1 / sqrt((double)head_dim);
}

/* ---- Making ---- */

/* Sizes of keys' and values' tokens, and what is done to queries, keys and scores. */
static heed_status check_variant(heed_context *ctx, heed_attention_config *c) {
  heed_status status;
  if (c->kdim == 0) c->kdim = c->d_in;
  if (c->vdim == 0) c->vdim = c->d_in;
  if ((status = heed__check_positive(ctx, heads_class.name, "kdim", c->kdim)) != HEED_OK) return status;
  if ((status = heed__check_positive(ctx, heads_class.name, "vdim", c->vdim)) != HEED_OK) return status;
  const heed_window *w = &c->window;
  if ((w->has_left && w->left < 0) || (w->has_right && w->right < 0)) {
    const bool left = w->has_left && w->left < 0;
    return heed__fail(ctx, HEED_ARGUMENT, "%s: the window's %s is %lld; it must be at least 0",
                      heads_class.name, left ? "left" : "right", (long long)(left ? w->left : w->right));
  }
  if (!(c->softcap >= 0) || !isfinite(c->softcap)) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: softcap is %s; it must be above 0, or 0 for none",
                      heads_class.name, HEED__G(c->softcap));
  }
  if (c->qk_norm && (!(c->qk_norm_eps >= 0) || !isfinite(c->qk_norm_eps))) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: qk_norm's eps is %s; it must be at least 0, and finite",
                      heads_class.name, HEED__G(c->qk_norm_eps));
  }
  return c->rope != NULL ? heed__check_rope(ctx, heads_class.name, c->rope, c->head_dim) : HEED_OK;
}

/* Fills in what the config leaves open. */
static heed_status complete(heed_context *ctx, heed_attention_config *c) {
  heed_status status;
  if ((status = heed__check_positive(ctx, heads_class.name, "num_heads", c->num_heads)) != HEED_OK)
    return status;
  if (c->num_kv_heads == 0) c->num_kv_heads = c->num_heads;
  if ((status = heed__check_positive(ctx, heads_class.name, "num_kv_heads", c->num_kv_heads)) != HEED_OK)
    return status;
  if (c->num_heads % c->num_kv_heads != 0) {
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: num_heads is %lld and num_kv_heads is %lld; num_kv_heads must divide num_heads",
                      heads_class.name, (long long)c->num_heads, (long long)c->num_kv_heads);
  }
  if (c->head_dim == 0) {
    if (c->d_out % c->num_heads != 0) {
      return heed__fail(ctx, HEED_ARGUMENT,
                        "%s: d_out is %lld and num_heads is %lld; num_heads must divide d_out",
                        heads_class.name, (long long)c->d_out, (long long)c->num_heads);
    }
    c->head_dim = c->d_out / c->num_heads;
  }
  if ((status = heed__check_positive(ctx, heads_class.name, "head_dim", c->head_dim)) != HEED_OK)
    return status;
  if (!isfinite(c->scale)) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: scale is %s; it must be finite", heads_class.name,
                      HEED__G(c->scale));
  }
  if (c->scale == 0) c->scale = default_scale(c->head_dim);
  const int64_t inner[] = {c->num_heads, c->head_dim};
  if ((status = heed__check_shape(ctx, heads_class.name, 2, inner, HEED_FLOAT32, NULL)) != HEED_OK)
    return status;
  return check_variant(ctx, c);
}

/* q_norm, k_norm and sinks, which are nobody's draw. */
static heed_status add_variant(heed_module *m, const heed_attention_config *c) {
  heed_status status = HEED_OK;
  for (int i = 0; i < 2 && c->qk_norm && status == HEED_OK; i++) {
    heed_module *norm = NULL;
    const double epsilon = c->qk_norm_eps > 0 ? c->qk_norm_eps : 1e-6;
    status = heed_rms_norm_new(m->context, 1, &c->head_dim, epsilon, true, &norm);
    if (status == HEED_OK) heed__module_add_module(m, i == 0 ? "q_norm" : "k_norm", norm);
  }
  if (c->sinks && status == HEED_OK) {
    heed_tensor *sinks = NULL;
    status = heed__filled_parameter(m->context, heads_class.name, 0, 1, &c->num_heads, &sinks);
    if (status == HEED_OK) heed__module_add_parameter(m, "sinks", sinks);
  }
  float *slopes = ((heed__attention_module *)m)->slopes;
  if (c->alibi && status == HEED_OK && !heed__alibi_slopes(&m->context->pace, c->num_heads, slopes))
    status = heed__stopped(m->context, heads_class.name);
  return status;
}

heed_status heed_multi_head_attention_new(heed_context *ctx, heed_generator *g,
                                          const heed_attention_config *config, heed_module **out) {
  HEED__ENTER(ctx, heads_class.name, config, out);
  HEED__MAY_ENTER(ctx, heads_class.name, g);
  heed_module *m = NULL;
  heed__attention_config own;
  heed_status status = heed__attention_config_read(ctx, &heads_class, true, config, &own);
  if (status != HEED_OK) return status;
  heed_attention_config *c = &own.config;
  if ((status = complete(ctx, c)) != HEED_OK) return status;

  g = heed__generator(ctx, g);
  const heed_generator before = *g;
  if ((status = heed__attention_module_new(ctx, &heads_class, false, c, &m)) != HEED_OK) goto done;
  if ((status = heed__add_projections(m, g, c->qkv_bias)) != HEED_OK) goto done;
  if (c->out_proj) {
    status = heed__add_linear(m, g, "out_proj", c->num_heads * c->head_dim, c->d_out, c->out_bias);
    if (status != HEED_OK) goto done;
  }
  if ((status = heed__add_dropout(m, c->dropout)) != HEED_OK) goto done;
  status = add_variant(m, c);
done:
  return heed__module_finish(status, m, g, &before, out);
}

/* ---- Heads of their own ---- */

static heed_status check_class(const heed_module *m, const char *function) {
  if (m->class == &heads_class) return HEED_OK;
  return heed__fail(m->context, HEED_ARGUMENT, "%s: the module is a %s; it must be a %s", function,
                    m->class->name, heads_class.name);
}

/* Rows first … first + count - 1 (from 0) of a weight [size, d_in] or a bias [size]. */
static void rows_as_view(const heed_tensor *x, int64_t first, int64_t count, heed_tensor *view) {
  heed__alias_on_stack(view, x);
  heed__narrow_on_stack(view, 0, first, count);
}

/* The rows of projection `part` (0 query, 1 key, 2 value) that query head i (from 0) uses: the key and value
 * of its group. */
static int64_t first_row(const heed__attention_module *a, int part, int64_t i) {
  return (part == 0 ? i : i * a->num_kv_heads / a->num_heads) * a->head_dim;
}

heed_status heed_module_head(heed_module *m, int64_t i, heed_tensor **query, heed_tensor **key,
                             heed_tensor **value) {
  HEED__ENTER(heed_module_context(m), "head", query, key, value);
  heed_status status = check_class(m, "head");
  if (status == HEED_OK) status = heed__check_apart(m->context, "head", query, key);
  if (status == HEED_OK) status = heed__check_apart(m->context, "head", query, value);
  if (status == HEED_OK) status = heed__check_apart(m->context, "head", key, value);
  if (status == HEED_OK && (*query != NULL || *key != NULL || *value != NULL))
    return heed__fail(m->context, HEED_ARGUMENT, "head: a result is a tensor already; all must be NULL");
  if (status != HEED_OK) return status;
  const heed__attention_module *a = (const heed__attention_module *)m;
  const int64_t index = i < 0 ? i + a->num_heads : i - 1;
  if (i == 0 || index < 0 || index >= a->num_heads) {
    return heed__fail(m->context, HEED_INDEX, "head: i is %lld and there %s %lld head%s, counted from 1",
                      (long long)i, HEED__ARE(a->num_heads), (long long)a->num_heads, HEED__S(a->num_heads));
  }
  heed_tensor *made[3] = {NULL};
  for (int part = 0; part < 3; part++) {
    if (heed__module_slot(m->slots[part].module, HEED__SCALE) == NULL) continue;
    return heed__fail(
        m->context, HEED_DTYPE,
        "head: the weight of %s is int8, of which no view can be had; m:to('float32') widens it",
        m->slots[part].name);
  }
  for (int part = 0; part < 3 && status == HEED_OK; part++) {
    heed_tensor rows, view;
    rows_as_view(m->slots[part].module->slots[0].parameter, first_row(a, part, index), a->head_dim, &rows);
    heed__alias_on_stack(&view, &rows);
    for (int d = 0; d < 2; d++) {
      view.shape[d] = rows.shape[1 - d];
      view.stride[d] = rows.stride[1 - d];
    }
    status = heed__tensor_from_view(m->context, "head", &view, &made[part]);
  }
  if (status != HEED_OK) {
    for (int part = 0; part < 3; part++) heed_tensor_free(made[part]);
    return status;
  }
  *query = made[0];
  *key = made[1];
  *value = made[2];
  return HEED_OK;
}

/* A Linear on those rows of another one. */
static heed_status share_rows(const heed_module *linear, int64_t first, int64_t count, heed_module **out) {
  static const char *const names[] = {HEED__WEIGHT, HEED__SCALE, "bias"};
  heed_tensor *part[3] = {NULL};
  heed_status status = HEED_OK;
  for (int i = 0; i < 3 && status == HEED_OK; i++) {
    const heed__slot *slot = heed__module_slot(linear, names[i]);
    heed_tensor view;
    if (slot == NULL) continue;
    rows_as_view(slot->parameter, first, count, &view);
    status = heed__tensor_from_view(linear->context, "split", &view, &part[i]);
  }
  if (status == HEED_OK) return heed__linear_from(linear->context, part[0], part[1], part[2], out);
  for (int i = 0; i < 3; i++) heed_tensor_free(part[i]);
  return status;
}

/* Head i (from 0) as a CausalAttention. */
static heed_status share_head(const heed_module *m, const heed_attention_config *config, int64_t i,
                              heed_module **out) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  heed_module *head = NULL;
  heed_status status = heed__causal_attention_empty(m->context, config, &head);
  for (int part = 0; part < 3 && status == HEED_OK; part++) {
    heed_module *linear = NULL;
    status = share_rows(m->slots[part].module, first_row(a, part, i), a->head_dim, &linear);
    if (status == HEED_OK) heed__module_add_module(head, m->slots[part].name, linear);
  }
  if (status == HEED_OK) status = heed__add_dropout(head, config->dropout);
  if (status == HEED_OK) {
    *out = head;
  } else {
    heed_module_release(head);
  }
  return status;
}

/* What a wrapper's heads have not; NULL if it is nothing. */
static const char *inexpressible(const heed__attention_module *a) {
  if (!a->causal) return "is not causal";
  if (a->scale != default_scale(a->head_dim)) return "has a scale of its own";
  if (a->kdim != a->d_in || a->vdim != a->d_in) return "makes keys or values from other tokens";
  if (a->window.has_left || a->window.has_right) return "has a window";
  if (a->softcap > 0) return "has a softcap";
  if (a->alibi) return "has alibi";
  if (a->sinks) return "has sinks";
  if (a->qk_norm) return "has qk_norm";
  return a->rotary ? "has rope" : NULL;
}

heed_status heed_module_split(heed_module *m, heed_module **out) {
  HEED__ENTER(heed_module_context(m), "split", out);
  heed_status status = check_class(m, "split");
  if (status != HEED_OK) return status;
  const heed__attention_module *a = (const heed__attention_module *)m;
  const char *other = inexpressible(a);
  if (other != NULL) {
    return heed__fail(m->context, HEED_ARGUMENT,
                      "split: the module %s; the heads of a MultiHeadAttentionWrapper are causal, with scale "
                      "1/√head_dim",
                      other);
  }
  heed_scalar p;
  heed_module_setting(heed__module_part(m, "dropout"), "p", &p);
  heed_attention_config config;
  heed_attention_config_init(&config, sizeof config);
  config.d_in = a->d_in;
  config.d_out = a->head_dim;
  config.context_length = a->context_length;
  config.num_heads = a->num_heads;
  config.dropout = p.as.number;
  heed_module *wrapper = NULL;
  status = heed__wrapper_empty(m->context, &config, &wrapper);
  for (int64_t i = 0; i < a->num_heads && status == HEED_OK; i++) {
    heed_module *head = NULL;
    status = share_head(m, &config, i, &head);
    if (status == HEED_OK) heed__module_list_add(heed__module_part(wrapper, "heads"), head);
  }
  if (status != HEED_OK) {
    heed_module_release(wrapper);
    return status;
  }
  heed_module_train(wrapper, m->training);
  *out = wrapper;
  return HEED_OK;
}
