/* A fast path for a few tokens through projections and plain attention. A single kernel computes all of it,
 * since the checks and preparations of the separate operations take longer than their arithmetic: 1.5 of 2.4
 * µs for the notebooks' 2 × 6 × 3 (Cascade Lake). The results are bit-identical to the stages' (stages.c). */
#include "../nn.h"

#include <string.h>

static bool has_none(const heed_forward_options *o) {
  return !o->attn_mask && !o->mask && !o->key_padding_mask && !o->kv_lengths && !o->key && !o->value &&
         !o->cache && !o->lengths && !o->key_lengths;
}

static bool is_plain(const heed__attention_module *a) {
  return a->kdim == a->d_in && a->vdim == a->d_in && !a->window.has_left && !a->window.has_right &&
         a->softcap == 0 && !a->alibi && !a->sinks && !a->qk_norm && !a->rotary;
}

/* The weight and bias of a Linear, if they are laid out as the kernel requires. */
static bool take_linear(const heed_module *linear, int which, heed__small_pass *pass) {
  for (int i = 0; i < linear->count; i++) {
    const heed_tensor *x = linear->slots[i].parameter;
    if (x->dtype != HEED_FLOAT32 || !heed_tensor_is_contiguous(x)) return false;
    *(i == 0 ? &pass->weight[which] : &pass->bias[which]) = (const float *)(const void *)x->data;
  }
  return true;
}

bool heed__small_pass_takes(const heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                            heed__small_pass *pass) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  if (x->dtype != HEED_FLOAT32 || (x->ndim != 2 && x->ndim != 3) || x->numel > HEED__TINY_WORK ||
      !has_none(options) || !is_plain(a))
    return false;
  const int64_t n = x->shape[x->ndim - 2];
  if (x->shape[x->ndim - 1] != a->d_in || (a->context_length > 0 && n > a->context_length)) return false;
  const heed_module *out_proj = NULL;
  for (int i = 3; i < m->count; i++) {
    if (m->slots[i].kind != HEED_ENTRY_MODULE) continue;
    const char *name = m->slots[i].name;
    if (strcmp(name, "out_proj") == 0) out_proj = m->slots[i].module;
    if (strcmp(name, "dropout") == 0 && heed__dropout_active(m->slots[i].module) > 0) return false;
  }
  *pass = (heed__small_pass){.n = n,
                             .d_in = a->d_in,
                             .heads = a->num_heads,
                             .kv_heads = a->num_kv_heads,
                             .head_size = a->head_dim,
                             .scale = (float)a->scale,
                             .causal = a->causal};
  for (int i = 0; i < 3; i++)
    if (!take_linear(m->slots[i].module, i, pass)) return false;
  if (out_proj && !take_linear(out_proj, 3, pass)) return false;
  pass->d_out = out_proj ? out_proj->slots[0].parameter->shape[0] : a->num_heads * a->head_dim;
  return heed__is_small_pass(pass, heed__quotient(x->numel, a->d_in)) && heed_tensor_is_contiguous(x);
}

heed_status heed__small_pass_run(const heed_module *m, const heed_tensor *x, heed__small_pass *pass,
                                 heed_tensor **out) {
  heed_context *ctx = m->context;
  heed__result result;
  const heed_tensor *inputs[9] = {x};
  int64_t shape[3];
  if (*out) { /* it may overlap a parameter */
    int count = 1;
    for (int i = 0; i < m->count; i++) {
      const heed_module *part = m->slots[i].kind == HEED_ENTRY_MODULE ? m->slots[i].module : NULL;
      for (int k = 0; part && k < part->count; k++)
        if (part->slots[k].kind == HEED_ENTRY_PARAMETER) inputs[count++] = part->slots[k].parameter;
    }
  }
  for (int i = 0; i < x->ndim; i++) shape[i] = x->shape[i];
  shape[x->ndim - 1] = pass->d_out;
  const heed_status status = heed__result_begin_row_major(ctx, m->class->name, &result, out, HEED_FLOAT32,
                                                          x->ndim, shape, 9, inputs);
  if (status) return status;
  const heed__kernels *kernels = heed__kernels_of(ctx);
  const int64_t batches = x->ndim == 3 ? x->shape[0] : 1;
  pass->x = (const float *)(const void *)x->data;
  pass->out = (float *)(void *)result.tensor->data;
  for (int64_t b = 0; b < batches; b++) {
    kernels->small_pass(pass);
    pass->x += pass->n * pass->d_in;
    pass->out += pass->n * pass->d_out;
  }
  return heed__result_end(ctx, &result, HEED_OK);
}
