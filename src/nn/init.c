/* The entries of new modules: parameters, filled or drawn, and parts. */
#include "nn.h"

bool heed_skip_init(heed_context *ctx, bool skip) {
  if (ctx == NULL) return false;
  const bool before = ctx->skip_init;
  ctx->skip_init = skip;
  return before;
}

/* ---- Placeholders ---- */

bool heed__is_placeholder(const heed_tensor *x) {
  return x->storage != NULL && x->storage->placeholder;
}

heed_status heed__placeholder(heed_context *ctx, const char *function, heed_dtype dtype, int ndim,
                              const int64_t *shape, heed_tensor **out) {
  int64_t numel;
  heed_tensor *x = NULL;
  heed_status status = heed__check_shape(ctx, function, ndim, shape, dtype, &numel);
  if (status == HEED_OK) status = heed__full(ctx, function, dtype, 0, NULL, heed_number(0), &x);
  if (status != HEED_OK) return status;
  x->storage->placeholder = true;
  x->ndim = ndim;
  x->numel = numel;
  for (int i = 0; i < ndim; i++) {
    x->shape[i] = shape[i];
    x->stride[i] = 0;
  }
  *out = x;
  return HEED_OK;
}

/* ---- Entries ---- */

static heed_status add_new_parameter(heed_module *m, heed_generator *g, const heed__new_entry *e) {
  heed_context *ctx = m->context;
  const char *function = m->class->name;
  heed_tensor *made = NULL;
  heed_status status;
  if (ctx->skip_init)
    status = heed__placeholder(ctx, function, HEED_FLOAT32, e->ndim, e->shape, &made);
  else if (e->init == HEED__INIT_UNIFORM)
    status = heed__uniform(ctx, function, g, -e->number, e->number, e->ndim, e->shape, &made);
  else if (e->init == HEED__INIT_NORMAL)
    status = heed__normal(ctx, function, g, 0, 1, e->ndim, e->shape, &made);
  else
    status = heed__full(ctx, function, HEED_FLOAT32, e->ndim, e->shape, heed_number(e->number), &made);
  if (status == HEED_OK) heed__module_add_parameter(m, e->name, made);
  return status;
}

static heed_status add_new_part(heed_module *m, heed_generator *g, const heed__new_entry *e) {
  heed_context *ctx = m->context;
  heed_module *part = NULL;
  heed_status status;
  if (e->init == HEED__INIT_LINEAR)
    status = heed_linear_new(ctx, g, e->shape[1], e->shape[0], e->number != 0, &part);
  else if (e->init == HEED__INIT_RMS_NORM)
    status = heed_rms_norm_new(ctx, e->ndim, e->shape, e->number, true, &part);
  else
    status = heed_dropout_new(ctx, e->number, &part);
  if (status == HEED_OK) heed__module_add_module(m, e->name, part);
  return status;
}

heed_status heed__module_finish(heed_module *m, heed_generator *g, int count, const heed__new_entry *entries,
                                heed_module **out) {
  g = heed__generator(m->context, g);
  const heed_generator before = *g;
  heed_status status = HEED_OK;
  for (int i = 0; i < count && status == HEED_OK; i++) {
    if (entries[i].name == NULL) continue;
    status = entries[i].init < HEED__INIT_LINEAR ? add_new_parameter(m, g, &entries[i])
                                                 : add_new_part(m, g, &entries[i]);
  }
  if (status != HEED_OK) {
    *g = before;
    heed_module_release(m);
    return status;
  }
  *out = m;
  return HEED_OK;
}
