/* A forward pass of an attention module with parts of one's own. It stops where such a part has to be
 * applied, so that the caller can do this: a module in Lua may yield, raise, or call the same attention
 * again. Until the end the pass changes neither the cache nor *out, and it holds all that it reads. */
#include "stages.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DROPOUT_PART = HEED__STAGES }; /* after HEED__STAGE_ATTENTION; the other parts wait at their stages */

struct heed__own_pass {
  heed_context *context;
  heed_module *module, *dropout; /* references; dropout: NULL unless it is one's own */
  heed_kv_cache *cache;          /* a reference, or NULL */
  int64_t change;                /* of the cache at the beginning */
  int stage, waiting;            /* the next stage; the part whose result is missing, -1: none */
  bool pending, wants_taps, finished;
  heed_tensor *y;
  heed_attention_taps taps;
  heed_taps_wanted *wanted; /* a copy; NULL: all but lse */
  heed__attention_stages stages;
};

void heed__own_pass_free(heed__own_pass *pass) {
  if (pass == NULL) return;
  if (pass->pending) heed__attention_stages_end(&pass->stages, HEED_CANCELLED);
  heed_kv_cache_free(pass->cache);
  heed_tensor_free(pass->y);
  heed_attention_taps_free(&pass->taps);
  heed__release(pass->context, pass->wanted);
  heed_module_release(pass->dropout);
  heed_module_release(pass->module);
  heed__release(pass->context, pass);
}

#define X(name) .name = true,
static const heed_taps_wanted every_tap = {.size = sizeof every_tap, HEED_ATTENTION_TAPS_LIST(X)};
#undef X

heed_status heed__own_pass_new(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                               bool wants_taps, heed__own_pass **out) {
  heed_context *ctx = m->context;
  heed_module *dropout = heed__module_part(m, "dropout");
  heed_scalar dim;
  if (heed_module_setting(m, "softmax_dim", &dim) && dim.as.integer != -1 && dim.as.integer != x->ndim)
    return heed__refuse_own(m, "softmax_dim");
  heed__own_pass *pass = heed__allocate(ctx, sizeof *pass);
  if (pass == NULL) return heed__fail_memory(ctx, m->class->name, sizeof *pass);
  memset(pass, 0, sizeof *pass);
  pass->context = ctx;
  pass->module = heed_module_retain(m);
  pass->waiting = -1;
  pass->wants_taps = wants_taps;
  pass->taps.size = sizeof pass->taps;
  if (dropout != NULL && heed__is_own(dropout, true)) pass->dropout = heed_module_retain(dropout);
  heed_forward_options own = *options; /* all taps: weigh_own reads some; the choice is made at the end */
  own.wanted = options->wanted != NULL ? &every_tap : NULL;
  heed_status status =
      heed__wanted_copy(ctx, m->class->name, wants_taps ? options->wanted : NULL, &pass->wanted);
  if (status == HEED_OK)
    status = heed__attention_stages_begin(&pass->stages, m, x, &own, NULL, &pass->y,
                                          wants_taps || pass->dropout != NULL ? &pass->taps : NULL);
  if (status != HEED_OK) {
    heed__own_pass_free(pass);
    return status;
  }
  pass->pending = true;
  if (options->cache != NULL) {
    pass->cache = heed__kv_cache_retain(options->cache);
    pass->change = options->cache->changes;
  }
  *out = pass;
  return HEED_OK;
}

/* ---- Stages ---- */

/* The part that the pass waits for, its name and its input; NULL: none. */
static heed_module *waiting_part(const heed__own_pass *pass, const char **name, const heed_tensor **x) {
  const heed__attention_stages *p = &pass->stages;
  switch (pass->waiting) {
  case -1: return NULL;
  case DROPOUT_PART: *name = "dropout", *x = pass->taps.weights; return pass->dropout;
  case HEED__STAGE_OUT: *name = "out_proj", *x = p->heads; return p->out_proj;
  default: *name = pass->module->slots[pass->waiting].name, *x = p->from[pass->waiting];
  }
  return p->part[pass->waiting];
}

static bool is_own_stage(const heed__own_pass *pass, int stage) {
  const heed__attention_stages *p = &pass->stages;
  if (stage <= HEED__STAGE_VALUES) return heed__is_own(p->part[stage], false);
  return stage == HEED__STAGE_OUT && p->out_proj != NULL && heed__is_own(p->out_proj, false);
}

static heed_status check_cache_unchanged(const heed__own_pass *pass) {
  const heed__attention_stages *p = &pass->stages;
  if (pass->cache == NULL || pass->cache->changes == (p->spans ? p->span.change : pass->change))
    return HEED_OK;
  return heed__fail(
      pass->context, HEED_ARGUMENT,
      "%s: the cache was used by another call during the forward pass; give each call a cache of its own",
      pass->module->class->name);
}

static heed_status run_stage(heed__own_pass *pass, int stage) {
  heed__attention_stages *p = &pass->stages;
  const bool draws = stage == HEED__STAGE_ATTENTION && p->dropout > 0;
  heed_generator before;
  bool done = false;
  if (draws) before = *p->options.generator;
  heed_status status = heed__attention_stage_begin(p, stage);
  while (status == HEED_OK && !done) {
    status = heed__attention_stage_run(p, stage, &done);
    if (status == HEED_OK && !done) status = heed__stopped(pass->context, pass->module->class->name);
  }
  if (status == HEED_OK) status = heed__attention_stage_end(p, stage);
  if (status != HEED_OK && draws) *p->options.generator = before;
  return status;
}

heed_status heed__own_pass_run(heed__own_pass *pass, heed_module **part, const heed_tensor **x) {
  const char *name = NULL;
  if (!pass->pending && !pass->finished)
    return heed__fail(pass->context, HEED_ARGUMENT, "%s: the forward pass has ended with an error",
                      pass->module->class->name);
  heed_status status = HEED_OK;
  if (pass->waiting < 0 && pass->pending) status = check_cache_unchanged(pass);
  while (status == HEED_OK && pass->waiting < 0 && pass->stage < HEED__STAGES) {
    const int stage = pass->stage;
    if (is_own_stage(pass, stage)) {
      pass->waiting = stage;
    } else {
      status = run_stage(pass, stage);
      if (status == HEED_OK && stage == HEED__STAGE_ATTENTION && pass->dropout != NULL)
        pass->waiting = DROPOUT_PART;
    }
    if (status == HEED_OK) pass->stage++;
  }
  if (status == HEED_OK && pass->waiting < 0) pass->finished = true;
  if (status != HEED_OK || pass->finished) {
    if (pass->pending) heed__attention_stages_end(&pass->stages, status);
    pass->pending = false;
  }
  if (status == HEED_OK) *part = waiting_part(pass, &name, x);
  return status;
}

/* ---- Results of parts ---- */

/* The shape of a part's result: that of its input x, except for the last size of a projection. */
static int64_t last_size(const heed__own_pass *pass, const heed_tensor *x) {
  const heed__attention_module *a = (const heed__attention_module *)pass->module;
  switch (pass->waiting) {
  case DROPOUT_PART: return x->shape[x->ndim - 1];
  case HEED__STAGE_OUT: return a->d_out;
  case HEED__STAGE_QUERIES: return a->num_heads * a->head_dim;
  default: return a->num_kv_heads * a->head_dim;
  }
}

const char *heed__own_pass_names(const heed__own_pass *pass, char *result, size_t size) {
  const char *name = "";
  const heed_tensor *x = NULL;
  const heed_module *part = waiting_part(pass, &name, &x);
  snprintf(result, size, "the result of %s (%.60s)", name, heed_module_class(part));
  return pass->module->class->name;
}

static heed_status check_part_result(const heed__own_pass *pass, const heed_tensor *x, const heed_tensor *y) {
  char result[128], have[HEED__SHAPE_TEXT], need[HEED__SHAPE_TEXT];
  int64_t shape[HEED_MAX_DIMS];
  const char *module = heed__own_pass_names(pass, result, sizeof result);
  if (y->dtype != HEED_FLOAT32)
    return heed__fail(pass->context, HEED_DTYPE, "%s: %s is %s; it must be float32", module, result,
                      heed_dtype_name(y->dtype));
  memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
  shape[x->ndim - 1] = last_size(pass, x);
  if (heed__same_shape(y->ndim, y->shape, x->ndim, shape)) return HEED_OK;
  return heed__fail(pass->context, HEED_SHAPE, "%s: %s is %s; it must be %s", module, result,
                    heed__shape_text(have, y->ndim, y->shape), heed__shape_text(need, x->ndim, shape));
}

/* Replaces the output of the heads by weights · values; hidden keys are skipped, so that nan in them goes
 * nowhere. */
static heed_status weigh_own(heed__own_pass *pass, const heed_tensor *weights) {
  heed__attention_stages *p = &pass->stages;
  const heed__attention_module *a = (const heed__attention_module *)pass->module;
  const heed_tensor *scores = pass->taps.scores, *values = pass->taps.values;
  const int64_t n = scores->shape[scores->ndim - 2], s = scores->shape[scores->ndim - 1], d = a->head_dim;
  const int64_t heads = a->num_heads, group = heads / a->num_kv_heads,
                batch = values->ndim == 2 + !a->one_head ? 1 : values->shape[0];
  heed_tensor into;
  heed__stages_view_heads(&into, p->out_proj != NULL ? p->heads : pass->y, a);
  const int64_t *to_stride = into.stride + into.ndim, *from_stride = values->stride + values->ndim;
  const float *w = (const float *)(const void *)weights->data,
              *seen = (const float *)(const void *)scores->data;
  for (int64_t row = 0; row < batch * heads * n; row++, w += s, seen += s) {
    const int64_t i = row % n, h = row / n % heads, b = row / n / heads;
    float *to = (float *)(void *)into.data + i * to_stride[-2];
    const float *from = (const float *)(const void *)values->data;
    if (!a->one_head) to += h * to_stride[-3], from += h / group * from_stride[-3];
    if (batch > 1) to += b * into.stride[0], from += b * values->stride[0];
    for (int64_t c = 0; c < d; c++) to[c * to_stride[-1]] = 0;
    for (int64_t j = 0; j < s; j++) {
      if (seen[j] == -INFINITY) continue;
      for (int64_t c = 0; c < d; c++)
        to[c * to_stride[-1]] += w[j] * from[j * from_stride[-2] + c * from_stride[-1]];
    }
    if (heed__is_due(&pass->context->pace)) {
      const heed_status status = heed__stopped(pass->context, pass->module->class->name);
      if (status != HEED_OK) return status;
    }
  }
  return HEED_OK;
}

static heed_status put_dropped(heed__own_pass *pass, const heed_tensor *y) {
  heed_tensor *dropped = NULL;
  heed_status status = heed__stages_copy(&pass->stages, y, &dropped);
  if (status == HEED_OK) status = weigh_own(pass, dropped);
  if (status == HEED_OK) {
    pass->taps.dropped_weights = dropped;
    dropped = NULL;
  }
  heed_tensor_free(dropped);
  return status;
}

heed_status heed__own_pass_put(heed__own_pass *pass, const heed_tensor *y) {
  const char *name = NULL;
  const heed_tensor *x = NULL;
  if (waiting_part(pass, &name, &x) == NULL) return HEED_OK;
  heed_status status = check_part_result(pass, x, y);
  if (status == HEED_OK)
    status = pass->waiting == DROPOUT_PART ? put_dropped(pass, y)
                                           : heed__stages_put(&pass->stages, pass->waiting, y);
  if (status == HEED_OK) pass->waiting = -1;
  return status;
}

heed_status heed__own_pass_result(heed__own_pass *pass, heed_tensor **out, heed_attention_taps *taps) {
  heed_status status = HEED_OK;
  if (!pass->finished)
    return heed__fail(pass->context, HEED_ARGUMENT, "%s: the forward pass is not done",
                      pass->module->class->name);
  if (taps != NULL)
    status = heed__wanted_select(pass->context, pass->module->class->name, pass->wanted,
                                 ((const heed__attention_module *)pass->module)->one_head, &pass->taps);
  if (status != HEED_OK) return status;
  if (*out != NULL) {
    status = heed__to(pass->context, pass->module->class->name, pass->y, HEED_FLOAT32, out);
  } else {
    *out = pass->y;
    pass->y = NULL;
  }
  if (status != HEED_OK || taps == NULL) return status;
  *taps = pass->taps;
  pass->taps = (heed_attention_taps){.size = sizeof pass->taps};
  return HEED_OK;
}

/* ---- In one call ---- */

heed_status heed__own_pass_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                   heed_tensor **out, heed_attention_taps *taps) {
  heed__own_pass *pass = NULL;
  heed_module *part = NULL;
  const heed_tensor *input = NULL;
  heed_status status = heed__own_pass_new(m, x, options, taps != NULL, &pass);
  while (status == HEED_OK && (status = heed__own_pass_run(pass, &part, &input)) == HEED_OK && part != NULL) {
    heed_tensor *y = NULL;
    status = heed_module_forward(part, input, NULL, &y, NULL);
    if (status == HEED_OK) status = heed__own_pass_put(pass, y);
    heed_tensor_free(y);
  }
  if (status == HEED_OK) status = heed__own_pass_result(pass, out, taps);
  heed__own_pass_free(pass);
  return status;
}
