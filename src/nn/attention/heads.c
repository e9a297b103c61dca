/* Single heads that share the weights of a MultiHeadAttention: views of a head's weights, and the module as a
 * wrapper of CausalAttention heads. */
#include "../nn.h"

static heed_status check_class(const heed_module *m, const char *function) {
  if (m->class == &heed__heads_class.base) return heed__refuse_own(m, function);
  return heed__fail(m->context, HEED_ARGUMENT, "%s: the module is a %s; it must be a %s", function,
                    m->class->name, heed__heads_class.base.name);
}

/* Rows first … first + count - 1 (from 0) of a weight [size, d_in] or a bias [size]. */
static void rows_as_view(const heed_tensor *x, int64_t first, int64_t count, heed_tensor *view) {
  heed__alias_on_stack(view, x);
  heed__narrow_on_stack(view, 0, first, count);
}

/* The first row of projection `part` (0 query, 1 key, 2 value) that query head i (from 0) uses. Keys and
 * values are those of its group. */
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
    return heed__fail(m->context, HEED_ARGUMENT,
                      "head: *query, *key or *value is a tensor; they must be NULL");
  if (status != HEED_OK) return status;
  const heed__attention_module *a = (const heed__attention_module *)m;
  const int64_t index = i < 0 ? i + a->num_heads : i - 1;
  if (i == 0 || index < 0 || index >= a->num_heads) {
    return heed__fail(m->context, HEED_INDEX,
                      "head: i is %lld; it must be from 1 to %lld, or from -%lld to -1", (long long)i,
                      (long long)a->num_heads, (long long)a->num_heads);
  }
  heed_tensor *made[3] = {NULL};
  for (int part = 0; part < 3; part++) {
    if (heed__module_slot(m->slots[part].module, HEED__SCALE) == NULL) continue;
    return heed__fail(
        m->context, HEED_DTYPE,
        "head: the weight of %s is int8; it must be float32, bfloat16 or float16; use m:to('float32')",
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

/* A Linear that shares those rows of another one. */
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

/* Replaces the projections of a CausalAttention by those of head i (from 0). */
static heed_status share_head(const heed_module *m, int64_t i, heed_module *head) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  heed_status status = HEED_OK;
  for (int part = 0; part < 3 && status == HEED_OK; part++) {
    heed_module *linear = NULL;
    status = share_rows(m->slots[part].module, first_row(a, part, i), a->head_dim, &linear);
    if (status == HEED_OK) status = heed_module_set_module(head, m->slots[part].name, linear);
    heed_module_release(linear);
  }
  return status;
}

/* What the heads of a wrapper cannot express; NULL: nothing. */
static const char *inexpressible(const heed__attention_module *a) {
  if (!a->causal) return "is not causal";
  if (a->scale != heed__default_scale(a->head_dim)) return "has a scale of its own";
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
                      "split: the module %s; it must be causal, with scale 1/√head_dim and no other option",
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
  const bool skip = heed_skip_init(m->context, true);
  status = heed__attention_make(m->context, NULL, &heed__wrapper_class, &config, &wrapper);
  heed_skip_init(m->context, skip);
  for (int64_t i = 0; i < a->num_heads && status == HEED_OK; i++)
    status = share_head(m, i, heed__module_part(wrapper, "heads")->slots[i].module);
  if (status != HEED_OK) {
    heed_module_release(wrapper);
    return status;
  }
  heed_module_train(wrapper, m->training);
  *out = wrapper;
  return HEED_OK;
}
