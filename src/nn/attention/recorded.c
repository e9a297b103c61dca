/* The forward pass of attention modules whose gradients are wanted: the stages, each of them recorded as one
 * operation, with the same bits. */
#include "../nn.h"
#include "stages.h"

#include <string.h>

static bool entry_wants(const heed_module *m) {
  for (int i = 0; i < m->count; i++) {
    const heed__slot *slot = &m->slots[i];
    if (slot->kind == HEED_ENTRY_PARAMETER ? heed__wants_gradient(slot->parameter)
                                           : entry_wants(slot->module))
      return true;
  }
  return false;
}

bool heed__records(const heed_module *m, const heed_tensor *x, const heed_forward_options *options) {
  if (m->context->recorder == NULL) return false;
  const heed_tensor *inputs[] = {x, options->key, options->value, options->attn_mask};
  for (int i = 0; i < 4; i++) {
    if (inputs[i] != NULL && (heed__wants_gradient(inputs[i]) || inputs[i]->storage->recorded != 0))
      return true;
  }
  return entry_wants(m);
}

/* What a pass makes: freed at its end. */
typedef struct recorded_pass {
  heed_module *m;
  heed_context *ctx;
  heed_tensor *made[24];
  int count;
} recorded_pass;

/* Where the next result is stored: NULL at first, freed with the pass. */
static heed_tensor **new_result(recorded_pass *pass) {
  heed_tensor **out = &pass->made[pass->count++];
  *out = NULL;
  return out;
}

static heed_status apply(recorded_pass *pass, heed_module *part, const heed_tensor *x, heed_tensor **y) {
  heed_tensor **out = new_result(pass);
  const heed_status status = heed_module_forward(part, x, NULL, out, NULL);
  *y = *out;
  return status;
}

/* x [..., n, h · d] as [..., h, n, d]; for modules of one head as it is. */
static heed_status view_heads(recorded_pass *pass, const heed_tensor *x, heed_tensor **y) {
  const heed__attention_module *a = (const heed__attention_module *)pass->m;
  if (a->one_head) return HEED_OK;
  int64_t shape[4];
  memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
  shape[x->ndim - 1] = heed__quotient(x->shape[x->ndim - 1], a->head_dim);
  shape[x->ndim] = a->head_dim;
  heed_tensor **divided = new_result(pass), **turned = new_result(pass);
  heed_status status = heed__reshape(pass->ctx, pass->m->class->name, x, x->ndim + 1, shape, divided);
  if (status == HEED_OK) status = heed_transpose(pass->ctx, *divided, -3, -2, turned);
  *y = *turned;
  return status;
}

/* A module of the host's can give anything. */
static heed_status check_projected(const recorded_pass *pass, const heed_module *part, const heed_tensor *x,
                                   int64_t size, const heed_tensor *y) {
  if (y->dtype == HEED_FLOAT32 && y->ndim == x->ndim && y->shape[y->ndim - 1] == size &&
      heed__same_shape(y->ndim - 1, y->shape, x->ndim - 1, x->shape))
    return HEED_OK;
  char have[HEED__SHAPE_TEXT], from[HEED__SHAPE_TEXT];
  return heed__fail(
      pass->ctx, HEED_SHAPE,
      "%s: the result of %s is %s %s for an input %s; it must be float32 with a last size of %lld",
      pass->m->class->name, part->class->name, heed_dtype_name(y->dtype),
      heed__shape_text(have, y->ndim, y->shape), heed__shape_text(from, x->ndim, x->shape), (long long)size);
}

static heed_status project_recorded(recorded_pass *pass, heed__attention_stages *p, int i, heed_tensor **y) {
  const heed__attention_module *a = (const heed__attention_module *)pass->m;
  heed_status status = apply(pass, p->part[i], p->from[i], y);
  if (status == HEED_OK)
    status = check_projected(pass, p->part[i], p->from[i],
                             (i == 0 ? a->num_heads : a->num_kv_heads) * a->head_dim, *y);
  if (status == HEED_OK) status = view_heads(pass, *y, y);
  if (status == HEED_OK && i < 2 && p->norm[i] != NULL) status = apply(pass, p->norm[i], *y, y);
  if (status != HEED_OK || i == 2 || !p->rotary) return status;
  heed_tensor **rotated = new_result(pass); /* from 1 on without packed sequences: a cache is refused */
  status = heed_rope(pass->ctx, *y, heed__stages_positions(p, i), &p->rope, rotated);
  *y = *rotated;
  return status;
}

/* The heads write their columns of [..., n, h · d], as in the stages. */
static heed_status attend(recorded_pass *pass, heed__attention_stages *p, heed_tensor **heads) {
  const heed__attention_module *a = (const heed__attention_module *)pass->m;
  const char *name = pass->m->class->name;
  int64_t shape[3];
  memcpy(shape, p->from[0]->shape, (size_t)p->from[0]->ndim * sizeof *shape);
  const int ndim = p->from[0]->ndim;
  shape[ndim - 1] = a->num_heads * a->head_dim;
  heed_tensor **rows = new_result(pass), **into = new_result(pass), view;
  heed_status status = heed__tensor_new(pass->ctx, name, HEED_FLOAT32, ndim, shape, rows);
  if (status != HEED_OK) return status;
  heed__stages_view_heads(&view, *rows, a);
  status = heed__tensor_from_view(pass->ctx, name, &view, into);
  const heed_tensor *slopes = p->operands.options.alibi_slopes;
  if (status == HEED_OK && slopes != NULL) { /* the module's have no storage, which the backward pass needs */
    heed_tensor **kept = new_result(pass);
    status = heed__clone(pass->ctx, name, slopes, kept);
    p->operands.options.alibi_slopes = *kept;
  }
  if (status == HEED_OK) status = heed__attention(pass->ctx, &p->operands, into);
  *heads = *into;
  if (status != HEED_OK || a->one_head) return status;
  heed_tensor **turned = new_result(pass), **joined = new_result(pass);
  status = heed_transpose(pass->ctx, *into, -3, -2, turned);
  if (status == HEED_OK) status = heed__reshape(pass->ctx, name, *turned, ndim, shape, joined);
  *heads = *joined;
  return status;
}

heed_status heed__recorded_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                   heed_tensor **out, heed_attention_taps *taps) {
  heed_context *ctx = m->context;
  if (options->cache != NULL)
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "%s: cache is given while gradients are recorded, and a cache keeps none; call it under "
        "no_grad",
        m->class->name);
  if (((const heed__attention_module *)m)->hook.callback != NULL)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: the module has a hook (attention_set_hook), which is not recorded; call it under "
                      "no_grad, or remove the hook",
                      m->class->name);
  heed__attention_stages p;
  recorded_pass pass = {.m = m, .ctx = ctx};
  heed_tensor *heads[3] = {NULL}, *y = NULL;
  heed_status status = heed__attention_stages_begin(&p, m, x, options, NULL, out, taps);
  if (status != HEED_OK) return status;
  const heed_generator before = *p.options.generator;
  for (int i = 0; i < 3 && status == HEED_OK; i++) status = project_recorded(&pass, &p, i, &heads[i]);
  p.operands.q = heads[0];
  p.operands.k = heads[1];
  p.operands.v = heads[2];
  if (status == HEED_OK) status = attend(&pass, &p, &y);
  if (status == HEED_OK && p.out_proj != NULL) status = apply(&pass, p.out_proj, y, &y);
  heed_tensor **const tapped[] = {taps != NULL ? &taps->queries : NULL, taps != NULL ? &taps->keys : NULL,
                                  taps != NULL ? &taps->values : NULL};
  for (int i = 0; i < 3 && taps != NULL && status == HEED_OK; i++) {
    if (p.wanted >> (HEED__TAP_queries + i) & 1)
      status = heed__tensor_from_view(ctx, m->class->name, heads[i], tapped[i]);
  }
  if (status == HEED_OK && *out != NULL) {
    status = heed_copy(ctx, *out, y);
  } else if (status == HEED_OK) {
    status = heed__tensor_from_view(ctx, m->class->name, y, out);
  }
  if (status != HEED_OK) *p.options.generator = before; /* so that a retry draws the same numbers */
  for (int i = 0; i < pass.count; i++) heed_tensor_free(pass.made[i]);
  heed__attention_stages_end(&p, status);
  return status;
}
