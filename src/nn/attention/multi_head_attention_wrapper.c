/* MultiHeadAttentionWrapper: CausalAttention heads, their outputs side by side. */
#include "../nn.h"
#include "stages.h"

#include <string.h>

static const heed__setting wrapper_settings[] = {
    {"d_in", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_in), NULL},
    {"d_out", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_out), NULL},
    {"context_length", HEED__SETTING_INTEGER, offsetof(heed__attention_module, context_length), NULL},
    {"num_heads", HEED__SETTING_INTEGER, offsetof(heed__attention_module, num_heads), NULL},
    {0},
};

/* ---- Forward ---- */

/* The taps at `offset` of the struct, of these heads (NULL: all), stacked to [b, h, …]; left NULL if no head
 * has any. For a head whose dropout is off, the weights stand in for the dropped ones. */
static heed_status stack(heed_context *ctx, const heed_attention_taps *found, int count, const int64_t *heads,
                         size_t offset, const heed_tensor **each, heed_tensor **out) {
  bool any = false;
  for (int i = 0; i < count; i++) {
    const heed_attention_taps *of_head = &found[heads != NULL ? heads[i] : i];
    memcpy(&each[i], (const char *)of_head + offset, sizeof each[i]);
    if (each[i] != NULL)
      any = true;
    else
      each[i] = of_head->weights;
  }
  if (!any) return HEED_OK;
  const bool maps = offset < offsetof(heed_attention_taps, lse);
  return heed_stack(ctx, count, each, maps ? each[0]->ndim - 1 : each[0]->ndim, out);
}

/* Replaces a mask that broadcasts to [b, h, n, n], as MultiHeadAttention takes it, by its part for head i;
 * NULL stays NULL. */
static heed_status wrapper_mask(heed_module *m, const heed_tensor **mask, int i, int count,
                                heed_tensor *view) {
  const heed_tensor *all = *mask;
  if (all == NULL || all->ndim < 3) return HEED_OK;
  const int dim = all->ndim - 3;
  const int64_t heads = all->shape[dim];
  if (heads != 1 && heads != count) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(m->context, HEED_SHAPE,
                      "%s: attn_mask is %s; its third to last size must be %s%d, the number of heads",
                      m->class->name, heed__shape_text(text, all->ndim, all->shape),
                      count == 1 ? "" : "1 or ", count);
  }
  heed__alias_on_stack(view, all);
  if (heads > 1) view->data += i * all->stride[dim] * (int64_t)heed__element_bytes(all->dtype);
  view->numel /= heads;
  view->ndim--;
  for (int d = dim; d < view->ndim; d++) {
    view->shape[d] = all->shape[d + 1];
    view->stride[d] = all->stride[d + 1];
  }
  *mask = view;
  return HEED_OK;
}

/* Whether head i is among those chosen; NULL: all are. */
static bool is_chosen(int64_t i, const int64_t *chosen, int64_t count) {
  bool found = chosen == NULL;
  for (int64_t k = 0; k < count && !found; k++) found = chosen[k] == i;
  return found;
}

static heed_status wrapper_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                   heed_tensor **out, heed_attention_taps *taps) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  heed_module *list = heed__module_part(m, "heads");
  const int count = list->count;
  heed_context *ctx = m->context;
  heed_generator *g = heed__generator(ctx, options->generator);
  const heed_generator before = *g;
  heed_attention_taps *found = NULL;
  const heed_tensor **each = NULL;
  heed_taps_wanted of_heads; /* the choice without heads; with the weights that may stand in */
  int64_t *chosen = NULL, chosen_count = count;
  heed__result result = {0};
  int64_t shape[3];
  heed_status status = heed__attention_check_input(m, x, options);
  if (status != HEED_OK) return status;
  memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
  shape[x->ndim - 1] = a->d_out * count;
  /* *out counts as an input, so that it is written at the end: if a head fails, it stays as it was. */
  const heed_tensor *inputs[] = {x, options->attn_mask, options->key_padding_mask, *out};
  const bool recorded = heed__records(m, x, options); /* each head then makes a tensor, and they are joined */
  heed_tensor **outputs = NULL;
  if (!recorded)
    status =
        heed__result_begin(ctx, m->class->name, &result, out, HEED_FLOAT32, x->ndim, shape, false, 4, inputs);
  if (status != HEED_OK) return status;
  heed_module_retain(list); /* parts of one's own may replace it */
  if (recorded) {
    outputs = heed__allocate(ctx, (size_t)count * sizeof *outputs);
    if (outputs == NULL) {
      status = heed__fail_memory(ctx, m->class->name, (size_t)count * sizeof *outputs);
      goto done;
    }
    memset(outputs, 0, (size_t)count * sizeof *outputs);
  }
  if (taps != NULL) {
    found = heed__allocate(ctx, (size_t)count * sizeof *found);
    if (found != NULL) memset(found, 0, (size_t)count * sizeof *found);
    each = heed__allocate(ctx, (size_t)count * sizeof *each);
    if (found == NULL || each == NULL) {
      status = heed__fail_memory(ctx, m->class->name, (size_t)count * (sizeof *found + sizeof *each));
      goto done;
    }
    status = heed__wanted_heads(ctx, m->class->name, options->wanted, count, &chosen, &chosen_count);
    if (status != HEED_OK) goto done;
  }
  for (int i = 0; found != NULL && i < count; i++) found[i].size = sizeof *found;
  for (int i = 0; i < count; i++) {
    heed_tensor part, *into = &part; /* the columns of head i */
    heed_tensor mask;
    heed_mask *of_head = NULL;
    heed_forward_options own = *options;
    if ((status = wrapper_mask(m, &own.attn_mask, i, count, &mask)) != HEED_OK) goto done;
    if (options->mask != NULL) {
      status = heed__mask_of_head(options->mask, m->class->name, i, count, &of_head);
      if (status != HEED_OK) goto done;
      own.mask = of_head;
    }
    if (!recorded) {
      heed__alias_on_stack(&part, result.tensor);
      part.shape[part.ndim - 1] = a->d_out;
      part.numel /= count;
      part.data += i * a->d_out * part.stride[part.ndim - 1] * (int64_t)sizeof(float);
    }
    if (options->wanted != NULL) {
      of_heads = *options->wanted;
      of_heads.head_list = NULL;
      of_heads.weights |= of_heads.dropped_weights;
      own.wanted = &of_heads;
    }
    status = heed_module_forward(list->slots[i].module, x, &own, recorded ? &outputs[i] : &into,
                                 taps != NULL && is_chosen(i, chosen, chosen_count) ? &found[i] : NULL);
    heed_mask_release(of_head);
    if (status != HEED_OK) goto done;
  }
  if (taps == NULL) goto done;
#define X(name)                                                                                              \
  if (options->wanted == NULL || options->wanted->name)                                                      \
    status = stack(ctx, found, (int)chosen_count, chosen, offsetof(heed_attention_taps, name), each,         \
                   &taps->name);                                                                             \
  if (status != HEED_OK) goto done;
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
done:
  if (status != HEED_OK) *g = before; /* so that a retry draws the same numbers */
  for (int i = 0; found != NULL && i < count; i++) heed_attention_taps_free(&found[i]);
  heed__release(ctx, chosen);
  heed__release(ctx, found);
  heed__release(ctx, each);
  heed_module_release(list);
  if (!recorded) return heed__result_end(ctx, &result, status);
  if (status == HEED_OK) status = heed_cat(ctx, count, (const heed_tensor *const *)outputs, -1, out);
  if (status != HEED_OK) *g = before;
  for (int i = 0; outputs != NULL && i < count; i++) heed_tensor_free(outputs[i]);
  heed__release(ctx, outputs);
  return status;
}

/* ---- Constructor ---- */

/* Each head is a module with parts; a larger number is most likely a mistake and would exhaust memory. */
#define MAX_HEADS (1 << 16)

static heed_status complete_wrapper(heed_context *ctx, heed_attention_config *config) {
  static const char name[] = "MultiHeadAttentionWrapper";
  heed_status status = heed__check_positive(ctx, name, "num_heads", config->num_heads);
  if (status != HEED_OK) return status;
  if (config->num_heads > MAX_HEADS) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: num_heads is %lld; it must be at most %d", name,
                      (long long)config->num_heads, MAX_HEADS);
  }
  config->num_kv_heads = config->num_heads;
  config->head_dim = config->d_out;
  const int64_t shape[] = {config->num_heads, config->d_out};
  status = heed__check_shape(ctx, name, 2, shape, HEED_FLOAT32, NULL);
  return status == HEED_OK ? heed__check_softmax_dim(ctx, name, config->softmax_dim) : status;
}

static heed_status add_heads(heed_module *m, heed_generator *g, const heed_attention_config *config,
                             heed_module **out) {
  heed_context *ctx = m->context;
  heed_attention_config of_head = *config;
  heed_module *list = NULL;
  g = heed__generator(ctx, g);
  const heed_generator before = *g;
  heed_status status = heed__module_list_new(ctx, config->num_heads, &list);
  if (status == HEED_OK) heed__module_add_module(m, "heads", list);
  heed__one_head(&of_head, true);
  for (int64_t i = 0; i < config->num_heads && status == HEED_OK; i++) {
    heed_module *head = NULL;
    status = heed__attention_make(ctx, g, &heed__causal_class, &of_head, &head);
    if (status == HEED_OK) heed__module_list_add(list, head);
  }
  if (status == HEED_OK) {
    *out = m;
  } else {
    *g = before;
    heed_module_release(m);
  }
  return status;
}

const heed__attention_class heed__wrapper_class = {.base = {.name = "MultiHeadAttentionWrapper",
                                                            .settings = wrapper_settings,
                                                            .attends = true,
                                                            .forward = wrapper_forward},
                                                   .one_head = true,
                                                   .complete = complete_wrapper,
                                                   .add_entries = add_heads};

heed_status heed_multi_head_attention_wrapper_new(heed_context *ctx, heed_generator *g,
                                                  const heed_attention_config *config, heed_module **out) {
  return heed__attention_new(ctx, g, &heed__wrapper_class, config, out);
}
