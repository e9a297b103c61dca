/* MultiHeadAttentionWrapper: CausalAttention heads, their outputs side by side. */
#include "../nn.h"

#include <string.h>

static const heed__setting wrapper_settings[] = {
    {"d_in", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_in)},
    {"d_out", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_out)},
    {"context_length", HEED__SETTING_INTEGER, offsetof(heed__attention_module, context_length)},
    {"num_heads", HEED__SETTING_INTEGER, offsetof(heed__attention_module, num_heads)},
    {0},
};

/* ---- Forward ---- */

/* Room for one tensor of each head. */
typedef const heed_tensor *one_of_head;

/* The heads' taps at `offset` of each, stacked to [b, h, …]; NULL if no head has any. A head whose
 * dropout is off lets its weights pass for the dropped ones. */
static heed_status stack(heed_context *ctx, const heed_attention_taps *found, int count, size_t offset,
                         one_of_head *room, heed_tensor **out) {
  bool any = false;
  for (int i = 0; i < count; i++) {
    memcpy(&room[i], (const char *)&found[i] + offset, sizeof room[i]);
    if (room[i] != NULL)
      any = true;
    else
      room[i] = found[i].weights;
  }
  return any ? heed_stack(ctx, count, room, room[0]->ndim - 1, out) : HEED_OK;
}

/* The attn_mask of head i: one that broadcasts to [b, h, n, n], as MultiHeadAttention takes it, is cut along
 * the heads. NULL stays NULL. */
static heed_status mask_of_head(heed_module *m, const heed_tensor **mask, int i, int count,
                                heed_tensor *view) {
  const heed_tensor *all = *mask;
  if (all == NULL || all->ndim < 3) return HEED_OK;
  const int dim = all->ndim - 3;
  const int64_t heads = all->shape[dim];
  if (heads != 1 && heads != count) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(m->context, HEED_SHAPE,
                      "%s: attn_mask is %s and there %s %d head%s; its third to last size must be %s%d",
                      m->class->name, heed__shape_text(text, all->ndim, all->shape), HEED__ARE(count), count,
                      HEED__S(count), count == 1 ? "" : "1 or ", count);
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

static heed_status wrapper_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                   heed_tensor **out, heed_attention_taps *taps) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  const heed_module *list = heed__module_part(m, "heads");
  const int count = list->count;
  heed_context *ctx = m->context;
  heed_generator *g = heed__generator(ctx, options->generator);
  const heed_generator before = *g;
  heed_attention_taps *found = NULL;
  one_of_head *room = NULL;
  heed__result result = {0};
  int64_t shape[3];
  heed_status status = heed__attention_check_input(m, x);
  if (status != HEED_OK) return status;
  memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
  shape[x->ndim - 1] = a->d_out * count;
  /* *out counts as an input, so that it is written last: a head that fails leaves nothing of the others in it
   */
  const heed_tensor *inputs[] = {x, options->attn_mask, options->key_padding_mask, *out};
  status =
      heed__result_begin(ctx, m->class->name, &result, out, HEED_FLOAT32, x->ndim, shape, false, 4, inputs);
  if (status != HEED_OK) return status;
  if (taps != NULL) {
    found = heed__allocate(ctx, (size_t)count * sizeof *found);
    if (found != NULL) memset(found, 0, (size_t)count * sizeof *found);
    room = heed__allocate(ctx, (size_t)count * sizeof *room);
    if (found == NULL || room == NULL) {
      status = heed__fail_memory(ctx, m->class->name, (size_t)count * (sizeof *found + sizeof *room));
      goto done;
    }
  }
  for (int i = 0; found != NULL && i < count; i++) found[i].size = sizeof *found;
  for (int i = 0; i < count; i++) {
    heed_tensor part, *place = &part; /* the columns of head i */
    heed_tensor mask;
    heed_forward_options own = *options;
    if ((status = mask_of_head(m, &own.attn_mask, i, count, &mask)) != HEED_OK) goto done;
    heed__alias_on_stack(&part, result.tensor);
    part.shape[part.ndim - 1] = a->d_out;
    part.numel /= count;
    part.data += i * a->d_out * part.stride[part.ndim - 1] * (int64_t)sizeof(float);
    status = heed_module_forward(list->slots[i].module, x, &own, &place, found != NULL ? &found[i] : NULL);
    if (status != HEED_OK) goto done;
  }
  if (taps == NULL) goto done;
#define X(name)                                                                                              \
  status = stack(ctx, found, count, offsetof(heed_attention_taps, name), room, &taps->name);                 \
  if (status != HEED_OK) goto done;
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
done:
  if (status != HEED_OK) *g = before; /* so that another try draws the same */
  for (int i = 0; found != NULL && i < count; i++) heed_attention_taps_free(&found[i]);
  heed__release(ctx, found);
  heed__release(ctx, room);
  return heed__result_end(ctx, &result, status);
}

/* ---- Making ---- */

/* Each head is a module with parts. More of them are a slip, and would take all memory in small pieces. */
#define MAX_HEADS (1 << 16)

static const heed__class wrapper_class = {.name = "MultiHeadAttentionWrapper",
                                          .settings = wrapper_settings,
                                          .attends = true,
                                          .forward = wrapper_forward};

heed_status heed__wrapper_empty(heed_context *ctx, const heed_attention_config *config, heed_module **out) {
  heed_module *m = NULL, *list = NULL;
  heed_status status = heed__attention_module_new(ctx, &wrapper_class, true, config, &m);
  if (status != HEED_OK) return status;
  if ((status = heed__module_list_new(ctx, config->num_heads, &list)) != HEED_OK) {
    heed_module_release(m);
    return status;
  }
  heed__module_add_module(m, "heads", list);
  *out = m;
  return HEED_OK;
}

heed_status heed_multi_head_attention_wrapper_new(heed_context *ctx, heed_generator *g,
                                                  const heed_attention_config *config, heed_module **out) {
  HEED__ENTER(ctx, wrapper_class.name, config, out);
  HEED__MAY_ENTER(ctx, wrapper_class.name, g);
  heed_module *m = NULL;
  heed__attention_config own;
  heed_status status = heed__attention_config_read(ctx, &wrapper_class, true, config, &own);
  if (status != HEED_OK) return status;
  config = &own.config;
  if ((status = heed__check_positive(ctx, wrapper_class.name, "num_heads", config->num_heads)) != HEED_OK)
    return status;
  if (config->num_heads > MAX_HEADS) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: num_heads is %lld; it must be at most %d", wrapper_class.name,
                      (long long)config->num_heads, MAX_HEADS);
  }
  const int64_t shape[] = {config->num_heads, config->d_out};
  if ((status = heed__check_shape(ctx, wrapper_class.name, 2, shape, HEED_FLOAT32, NULL)) != HEED_OK)
    return status;

  g = heed__generator(ctx, g);
  const heed_generator before = *g;
  if ((status = heed__wrapper_empty(ctx, config, &m)) != HEED_OK) goto done;
  for (int64_t i = 0; i < config->num_heads && status == HEED_OK; i++) {
    heed_module *head = NULL;
    status = heed_causal_attention_new(ctx, g, config, &head);
    if (status == HEED_OK) heed__module_list_add(heed__module_part(m, "heads"), head);
  }
done:
  return heed__module_finish(status, m, g, &before, out);
}
