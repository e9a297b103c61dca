/* Parts of tensors as x[{…}] selects them in Lua, and how they are recorded. */
#include "ops.h"

void heed__part_begin(heed__part *part) {
  if (part == NULL) return;
  part->name = "AliasBackward0";
  part->items = 0;
}

void heed__part_add(heed__part *part, heed__part_kind kind, int64_t first, int64_t step, int64_t count) {
  if (part == NULL) return;
  part->item[part->items++] = (struct heed__part_item){kind, first, step, count};
  if (kind == HEED__PART_DROPPED) part->name = "SelectBackward0";
  if (kind == HEED__PART_NEW) part->name = "UnsqueezeBackward0";
}

void heed__part_on_stack(heed_tensor *view, const heed_tensor *x, const heed__part *part) {
  int d = 0; /* of x */
  heed__alias_on_stack(view, x);
  view->ndim = 0;
  view->numel = 1;
  for (int i = 0; i < part->items; i++) {
    const struct heed__part_item *item = &part->item[i];
    const int64_t stride = item->kind == HEED__PART_NEW ? 0 : x->stride[d++];
    if (item->count > 0) view->data += heed__row_bytes(x->dtype, item->first * stride);
    if (item->kind == HEED__PART_DROPPED) continue;
    view->shape[view->ndim] = item->count;
    view->stride[view->ndim++] = item->count > 1 ? stride * item->step : stride;
    view->numel *= item->count;
  }
}

heed_status heed__give_part(heed_context *ctx, const char *function, const heed_tensor *x,
                            const heed_tensor *view, const heed__part *part, heed_tensor **out) {
  const heed_status status = heed__tensor_from_view(ctx, function, view, out);
  if (part == NULL) return status;
  return heed__recorded1(ctx, status, HEED__OP_part, x, part, heed__part_bytes(part), out);
}

heed_status heed__record_assign(heed_context *ctx, heed_tensor *x, const heed__part *part,
                                const heed_tensor *value, int count, const heed_tensor *const *indices) {
  const heed_tensor *inputs[HEED_MAX_DIMS + 2] = {x, value};
  for (int i = 0; i < count; i++) inputs[i + 2] = indices[i];
  return heed__recorded(ctx, HEED_OK, HEED__OP_assign, count + 2, inputs, part, heed__part_bytes(part), &x);
}
