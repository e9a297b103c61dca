/* Resumable forward passes: all stages are begun before the first slice. A Linear has one product instead. */
#include "stages.h"

#include <math.h>
#include <string.h>

static const char steps_name[] = "steps";

struct heed_steps {
  heed_context *context;
  heed_module *module;  /* a reference */
  heed_kv_cache *cache; /* a reference, or NULL */
  heed_status failed;   /* why it cannot continue; OK: it can */
  int stage;            /* the current one; HEED__STAGES: all are done */
  double work, total;   /* multiply-adds of the completed stages, and of all */
  int64_t reported;     /* progress reported last */
  bool pending;         /* the stages have begun but not ended */
  bool need_weights;
  heed_tensor *y;
  heed_attention_taps taps;
  heed_generator *source;     /* receives the new state at the end; NULL: no dropout */
  heed_generator before, own; /* its state at the beginning, and the copy that draws */
  bool product; /* of a Linear: `linear` on `held` (x, weight, scale, bias) in place of the stages */
  heed_tensor *held[4];
  heed__linear_work linear;
  heed__attention_stages stages;
};

static heed_context *context_of(const heed_steps *s) {
  return s != NULL ? s->context : NULL;
}

/* ---- Constructor ---- */

static heed_status check_steps_class(const heed_module *m, const heed_tensor *x) {
  heed_scalar dim;
  if (!m->class->staged && !heed__is_linear(m)) {
    return heed__fail(m->context, HEED_ARGUMENT,
                      "%s: the module is a %s; it must be a MultiHeadAttention, a SelfAttention, a "
                      "CausalAttention or a Linear",
                      steps_name, m->class->name);
  }
  const heed_status status = heed__refuse_own(m, steps_name);
  if (status != HEED_OK) return status;
  if (heed__stops(m) || heed__holds_watched(m)) {
    return heed__fail(
        m->context, HEED_ARGUMENT,
        "%s: the %s has hooks or changed heads, which steps does not call; remove them, or call "
        "the module itself",
        steps_name, m->class->name);
  }
  if (!heed_module_setting(m, "softmax_dim", &dim) || dim.as.integer == -1 || dim.as.integer == x->ndim)
    return HEED_OK;
  return heed__fail(m->context, HEED_ARGUMENT,
                    "%s: softmax_dim of the %s is %d; it must be that of the keys, -1 or %d", steps_name,
                    m->class->name, (int)dim.as.integer, x->ndim);
}

/* The product keeps the operands that it began with, whatever happens to the module. */
static heed_status begin_linear_steps(heed_steps *s, const heed_tensor *x) {
  const heed__slot *const slots[] = {heed__module_slot(s->module, HEED__WEIGHT),
                                     heed__module_slot(s->module, HEED__SCALE),
                                     heed__module_slot(s->module, "bias")};
  heed_status status = heed__tensor_from_view(s->context, steps_name, x, &s->held[0]);
  for (int i = 0; i < 3 && status == HEED_OK; i++) {
    if (slots[i] == NULL) continue;
    status = heed__tensor_from_view(s->context, steps_name, slots[i]->parameter, &s->held[i + 1]);
  }
  if (status == HEED_OK)
    status = heed__linear_begin(s->context, &s->linear, s->module->class->name, s->held[0], s->held[1],
                                s->held[2], s->held[3], &s->y);
  if (status != HEED_OK) return status;
  s->pending = true;
  s->total = (double)s->held[0]->numel * (double)s->held[1]->shape[0];
  return HEED_OK;
}

static heed_status begin_steps(heed_steps *s, const heed_tensor *x, const heed_forward_options *options,
                               bool need_weights) {
  if (s->product) return begin_linear_steps(s, x);
  heed_forward_options own = *options;
  heed_taps_wanted wanted;
  heed_status status = HEED_OK;
  if (need_weights) status = heed__wanted_read(s->context, steps_name, &own.wanted, &wanted);
  if (status != HEED_OK) return status;
  s->source = heed__generator(s->context, options->generator);
  const heed_module *dropout = heed__module_part(s->module, "dropout");
  if (dropout == NULL || heed__dropout_active(dropout) == 0) s->source = NULL;
  if (s->source != NULL) {
    s->before = s->own = *s->source;
    own.generator = &s->own;
  }
  status = heed__attention_stages_begin(&s->stages, s->module, x, &own, NULL, &s->y,
                                        need_weights ? &s->taps : NULL);
  if (status != HEED_OK) return status;
  s->pending = true;
  for (int stage = 0; stage < HEED__STAGES && status == HEED_OK; stage++) {
    status = heed__attention_stage_begin(&s->stages, stage);
    if (status == HEED_OK) s->total += heed__attention_stage_work(&s->stages, stage);
  }
  if (options->cache != NULL && status == HEED_OK) s->cache = heed__kv_cache_retain(options->cache);
  return status;
}

heed_status heed_steps_new(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                           bool need_weights, heed_steps **out) {
  heed_forward_options own;
  heed_steps *s = NULL;
  heed_status status;
  heed_context *ctx = heed_module_context(m);
  HEED__ENTER(ctx, steps_name, x, out);
  if ((status = check_steps_class(m, x)) != HEED_OK) return status;
  if ((status = heed__module_read_options(m, &options, &own, need_weights)) != HEED_OK) return status;
  if (heed__records(m, x, options))
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: gradients are recorded, and a pass in slices has none; call it under no_grad",
                      steps_name);
  if ((s = heed__allocate(ctx, sizeof *s)) == NULL) return heed__fail_memory(ctx, steps_name, sizeof *s);
  memset(s, 0, sizeof *s);
  s->context = ctx;
  s->module = heed_module_retain(m);
  s->taps.size = sizeof s->taps;
  s->need_weights = need_weights;
  s->product = heed__is_linear(m);
  status = begin_steps(s, x, options, need_weights);
  if (status != HEED_OK) {
    heed_steps_free(s);
    return status;
  }
  *out = s;
  return HEED_OK;
}

/* Releases everything but the results. Returns `status`, or that of storing the product. */
static heed_status end_steps(heed_steps *s, heed_status status) {
  if (s->pending && s->product) status = heed__linear_end(s->context, &s->linear, status);
  if (s->pending && !s->product) heed__attention_stages_end(&s->stages, status);
  s->pending = false;
  heed_kv_cache_free(s->cache);
  s->cache = NULL;
  for (int i = 0; i < 4; i++) heed_tensor_free(s->held[i]);
  memset(s->held, 0, sizeof s->held);
  return status;
}

void heed_steps_free(heed_steps *s) {
  if (s == NULL) return;
  (void)end_steps(s, HEED_CANCELLED);
  heed_tensor_free(s->y);
  heed_attention_taps_free(&s->taps);
  heed_module_release(s->module);
  heed__release(s->context, s);
}

/* ---- Advancing ---- */

static int64_t whole_of(const heed_steps *s) {
  const double most = 0x1p52;
  return s->total < 1 ? 1 : (int64_t)(s->total < most ? s->total : most);
}

/* The reported progress grows with each slice, and reaches the total only at the end. The last 1 % is kept
 * for slices whose share is unknown. */
static void report_steps(heed_steps *s) {
  const int64_t all = whole_of(s);
  if (s->stage == HEED__STAGES) {
    s->reported = all;
    return;
  }
  const double part = s->product ? s->total * heed__linear_progress(&s->linear)
                                 : heed__attention_stage_work(&s->stages, s->stage) *
                                       heed__attention_stage_progress(&s->stages, s->stage);
  const int64_t now = s->total > 0 ? (int64_t)((s->work + part) / s->total * 0.99 * (double)all) : 0;
  s->reported = now > s->reported ? now : s->reported + 1;
  if (s->reported >= all) s->reported = all - 1;
}

/* Errors: ARGUMENT, where the cache has changed since the stages began. */
static heed_status check_unchanged(const heed_steps *s) {
  if (s->cache == NULL || s->cache->changes == s->stages.span.change) return HEED_OK;
  return heed__fail(s->context, HEED_ARGUMENT,
                    "%s: the cache was used by another call between two slices; give each call a cache of "
                    "its own, or finish one "
                    "before the other",
                    steps_name);
}

/* Stores the generator's state as a forward pass would, unless other calls have drawn from it meanwhile. */
static void finish_steps(heed_steps *s) {
  if (s->source != NULL && memcmp(s->source, &s->before, sizeof s->before) == 0) *s->source = s->own;
  (void)end_steps(s, HEED_OK);
}

static heed_status run_linear_steps(heed_steps *s) {
  if (!heed__linear_run(s->context, &s->linear)) return heed__stopped(s->context, steps_name);
  s->stage = HEED__STAGES;
  s->failed = end_steps(s, HEED_OK);
  return s->failed;
}

static heed_status run_slice(heed_steps *s) {
  if (s->product) return run_linear_steps(s);
  while (s->stage < HEED__STAGES) {
    bool done = false;
    heed_status status = heed__attention_stage_run(&s->stages, s->stage, &done);
    if (status != HEED_OK) return status;
    if (!done) return heed__stopped(s->context, steps_name);
    if ((status = heed__attention_stage_end(&s->stages, s->stage)) != HEED_OK) return status;
    s->work += heed__attention_stage_work(&s->stages, s->stage++);
    if (s->stage < HEED__STAGES && heed__attention_stage_work(&s->stages, s->stage) > 0 &&
        heed__is_due(&s->context->pace))
      return heed__stopped(s->context, steps_name);
  }
  finish_steps(s);
  return HEED_OK;
}

heed_status heed_steps_advance(heed_steps *s, double seconds, bool *done) {
  heed_context *ctx = context_of(s);
  HEED__ENTER(ctx, steps_name, done);
  if (!(seconds >= 0))
    return heed__fail(s->context, HEED_ARGUMENT, "%s: seconds is %s; it must be 0 or more", steps_name,
                      HEED__G(seconds));
  *done = false;
  if (s->failed != HEED_OK)
    return heed__fail(s->context, s->failed, "%s: an earlier slice has failed; begin a new pass", steps_name);
  if (s->stage < HEED__STAGES) {
    heed_status status = check_unchanged(s);
    if (status != HEED_OK) {
      s->failed = status;
      return end_steps(s, status);
    }
    const heed__recorder *recorder = heed__pause_recording(s->context);
    heed__set_slice(s->context, heed_clock() + seconds);
    status = run_slice(s);
    heed__set_slice(s->context, INFINITY);
    heed__resume_recording(s->context, recorder);
    report_steps(s);
    if (status != HEED_OK) return status;
  }
  *done = s->stage == HEED__STAGES;
  return HEED_OK;
}

/* ---- Progress and results ---- */

void heed_steps_progress(const heed_steps *s, int64_t *done, int64_t *total) {
  if (done != NULL) *done = s != NULL ? s->reported : 0;
  if (total != NULL) *total = s != NULL ? whole_of(s) : 0;
}

heed_status heed_steps_result(heed_steps *s, heed_tensor **out, heed_attention_taps *taps) {
  heed_context *ctx = context_of(s);
  HEED__ENTER(ctx, steps_name, out);
  heed_status status = HEED_OK;
  if (s->stage < HEED__STAGES)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: the forward pass is not done; advance it to its end first",
                      steps_name);
  heed_attention_taps found = {.size = sizeof found};
  if (taps != NULL) {
    status = heed__struct_check(ctx, steps_name, "taps", "heed_attention_taps", taps);
    if (status != HEED_OK) return status;
    if (!s->need_weights)
      return heed__fail(ctx, HEED_ARGUMENT, "%s: taps are requested, but need_weights was false", steps_name);
#define X(name)                                                                                              \
  if (status == HEED_OK && s->taps.name != NULL)                                                             \
    status = heed__tensor_from_view(ctx, steps_name, s->taps.name, &found.name);
    HEED_ATTENTION_TAPS_LIST(X)
#undef X
  }
  if (status == HEED_OK)
    status = *out == NULL ? heed__tensor_from_view(ctx, steps_name, s->y, out)
                          : heed__to(ctx, steps_name, s->y, HEED_FLOAT32, out);
  if (status == HEED_OK && taps != NULL) heed__struct_move(taps, &found, sizeof found);
  heed_attention_taps_free(&found);
  return status;
}
