/* A forward pass of an attention module that stops: where a part of one's own or a watched part has to be
 * applied, and at the points that listeners ask for. The caller does this between two runs: a module in Lua
 * may yield, raise, or call the same attention again. Until the end the pass changes neither the cache nor
 * *out, and it holds all that it reads. */
#include "own_pass.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void heed__own_pass_free(heed__own_pass *pass) {
  if (pass == NULL) return;
  if (pass->pending && pass->begun && pass->unfused && pass->step == STEP_ATTENTION)
    (void)!heed__own_maps_end(pass, HEED_CANCELLED);
  if (pass->pending) heed__attention_stages_end(&pass->stages, HEED_CANCELLED);
  heed_kv_cache_free(pass->cache);
  heed_tensor_free(pass->point);
  heed_tensor_free(pass->y);
  heed_attention_taps_free(&pass->taps);
  heed__release(pass->context, pass->wanted);
  heed_module_release(pass->dropout);
  heed_module_release(pass->module);
  heed__release(pass->context, pass);
}

/* ---- Beginning ---- */

static bool stops_at(const heed_module *part, bool dropout) {
  return part != NULL && (heed__is_own(part, dropout) || heed__holds_watched(part));
}

bool heed__stops(const heed_module *m) {
  if (!m->class->staged) return false;
  const heed__attention_module *a = (const heed__attention_module *)m;
  if (a->own_parts > 0 || a->hook.callback != NULL) return true;
  for (int i = 0; i < m->count; i++) {
    if (m->slots[i].module != NULL && heed__holds_watched(m->slots[i].module)) return true;
  }
  return false;
}

/* The rows of softmax are not those of the keys, so that there are no stages to stop between. */
static heed_status check_own_softmax_dim(heed_module *m, const heed_tensor *x) {
  heed_scalar dim;
  if (!heed_module_setting(m, "softmax_dim", &dim) || dim.as.integer == -1 || dim.as.integer == x->ndim)
    return HEED_OK;
  const heed_status status = heed__refuse_own(m, "softmax_dim");
  if (status != HEED_OK) return status;
  return heed__fail(m->context, HEED_ARGUMENT,
                    "%s: softmax_dim is %d; with hooks it must be that of the keys, -1 or %d", m->class->name,
                    (int)dim.as.integer, x->ndim);
}

/* The taps that a caller gets who chooses none. */
static const heed_taps_wanted default_taps = {.size = sizeof default_taps,
                                              .scores = true,
                                              .weights = true,
                                              .dropped_weights = true,
                                              .queries = true,
                                              .keys = true,
                                              .values = true};

/* The taps of the stages: all that the caller wants and, unless the maps come first, those of the points. */
static void choose_taps(heed__own_pass *pass, const heed_taps_wanted *wanted) {
  heed_taps_wanted *own = &pass->stage_wanted;
  *own = !pass->wants_taps ? (heed_taps_wanted){.size = sizeof *own}
         : wanted != NULL  ? *wanted
                           : default_taps;
  own->head_list = own->query_list = NULL;
  if (pass->unfused) {
    own->scores = own->weights = false;
  } else {
    own->weights |= (pass->listened & HEED_POINT_PATTERN) != 0;
    own->biased_logits |= (pass->listened & HEED_POINT_ATTN_SCORES) != 0;
  }
}

heed_status heed__own_pass_new(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                               bool wants_taps, const heed__listened *points, heed__own_pass **out) {
  heed_context *ctx = m->context;
  const heed__attention_module *a = (const heed__attention_module *)m;
  heed_module *dropout = heed__module_part(m, "dropout");
  heed_status status = check_own_softmax_dim(m, x);
  if (status != HEED_OK) return status;
  heed__own_pass *pass = heed__allocate(ctx, sizeof *pass);
  if (pass == NULL) return heed__fail_memory(ctx, m->class->name, sizeof *pass);
  memset(pass, 0, sizeof *pass);
  pass->context = ctx;
  pass->module = heed_module_retain(m);
  pass->wants_taps = wants_taps;
  pass->slice_end = INFINITY;
  pass->taps.size = sizeof pass->taps;
  pass->hook = a->hook;
  if (points != NULL) pass->listened = points->read | points->edited, pass->edited = points->edited;
  if (a->hook.callback != NULL) pass->edited |= a->hook.points;
  pass->waits = pass->listened;
  pass->listened |= pass->edited;
  if (stops_at(dropout, true)) pass->dropout = heed_module_retain(dropout);
  pass->unfused =
      pass->dropout != NULL || (pass->edited & (HEED_POINT_ATTN_SCORES | HEED_POINT_PATTERN)) != 0;
  pass->selects = pass->unfused || (pass->listened & (HEED_POINT_ATTN_SCORES | HEED_POINT_PATTERN)) != 0;
  if (pass->unfused && options->lengths != NULL) {
    heed__own_pass_free(pass);
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "%s: lengths are given and hooks change the scores or weights, which packed sequences do "
        "not allow; call the module for each sequence, or unpack x",
        m->class->name);
  }
  status = heed__wanted_copy(ctx, m->class->name, wants_taps ? options->wanted : NULL, &pass->wanted);
  choose_taps(pass, pass->wanted);
  heed_forward_options own = *options;
  own.wanted = pass->selects ? &pass->stage_wanted : pass->wanted;
  if (status == HEED_OK)
    status = heed__attention_stages_begin(&pass->stages, m, x, &own, NULL, &pass->y,
                                          wants_taps || pass->selects ? &pass->taps : NULL);
  if (status != HEED_OK) {
    heed__own_pass_free(pass);
    return status;
  }
  pass->pending = true;
  if (pass->dropout != NULL) heed__stages_leave_dropout(&pass->stages);
  if (options->cache != NULL) {
    pass->cache = heed__kv_cache_retain(options->cache);
    pass->change = options->cache->changes;
  }
  *out = pass;
  return HEED_OK;
}

/* ---- Steps ---- */

typedef struct own_step {
  int stage;      /* of attention, or -1 */
  unsigned point; /* or 0 */
  const char *name;
} own_step;

static const own_step steps_of_pass[OWN_STEPS] = {
    [STEP_QUERIES] = {HEED__STAGE_QUERIES, 0, "W_query"},
    [STEP_Q] = {-1, HEED_POINT_Q, "q"},
    [STEP_KEYS] = {HEED__STAGE_KEYS, 0, "W_key"},
    [STEP_K] = {-1, HEED_POINT_K, "k"},
    [STEP_VALUES] = {HEED__STAGE_VALUES, 0, "W_value"},
    [STEP_V] = {-1, HEED_POINT_V, "v"},
    [STEP_Q_NORM] = {-1, 0, "q_norm"},
    [STEP_K_NORM] = {-1, 0, "k_norm"},
    [STEP_SHAPE] = {HEED__STAGE_SHAPE, 0, ""},
    [STEP_ROT_Q] = {-1, HEED_POINT_ROT_Q, "rot_q"},
    [STEP_ROT_K] = {-1, HEED_POINT_ROT_K, "rot_k"},
    [STEP_CACHE] = {HEED__STAGE_CACHE, 0, ""},
    [STEP_ATTENTION] = {HEED__STAGE_ATTENTION, 0, ""},
    [STEP_SCORES] = {-1, HEED_POINT_ATTN_SCORES, "attn_scores"},
    [STEP_PATTERN] = {-1, HEED_POINT_PATTERN, "pattern"},
    [STEP_DROPOUT] = {-1, 0, "dropout"},
    [STEP_WEIGHTED] = {HEED__STAGE_ATTENTION, 0, ""},
    [STEP_Z] = {-1, HEED_POINT_Z, "z"},
    [STEP_RESULT] = {-1, HEED_POINT_RESULT, "result"},
    [STEP_OUT] = {HEED__STAGE_OUT, 0, "out_proj"},
};

/* The part that the caller has to apply at a step, and its input; NULL: none. */
static heed_module *part_at(const heed__own_pass *pass, int step, const heed_tensor **x) {
  const heed__attention_stages *p = &pass->stages;
  heed_module *part = NULL;
  switch (step) {
  case STEP_QUERIES:
  case STEP_KEYS:
  case STEP_VALUES:
    part = p->part[steps_of_pass[step].stage];
    *x = p->from[steps_of_pass[step].stage];
    break;
  case STEP_Q_NORM:
  case STEP_K_NORM:
    part = p->norm[step - STEP_Q_NORM];
    *x = &p->view[step - STEP_Q_NORM];
    return part != NULL && heed__holds_watched(part) ? part : NULL;
  case STEP_DROPOUT: *x = pass->taps.weights; return pass->dropout;
  case STEP_OUT:
    part = p->out_proj;
    *x = p->heads;
    if (pass->y != NULL) return NULL; /* a listener of `result` gave it */
    break;
  default: break;
  }
  return stops_at(part, false) ? part : NULL;
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

/* Whether the work of this step is the maps alone, or the output from changed weights, or nothing. */
static bool makes_maps(const heed__own_pass *pass) {
  return pass->step == STEP_ATTENTION && pass->unfused;
}
static bool weighs(const heed__own_pass *pass) {
  return pass->step == STEP_WEIGHTED && pass->changed;
}
static bool has_work(const heed__own_pass *pass) {
  if (steps_of_pass[pass->step].stage < 0) return false;
  if (pass->step == STEP_WEIGHTED) return pass->unfused;
  return pass->step != STEP_OUT || pass->stages.out_proj == NULL || pass->y == NULL;
}

static bool slice_is_over(const heed__own_pass *pass) {
  return pass->slice_end < INFINITY && heed_clock() >= pass->slice_end;
}

static heed_status run_stage(heed__own_pass *pass, int stage, bool *done) {
  heed__attention_stages *p = &pass->stages;
  const bool maps = makes_maps(pass);
  heed_status status = HEED_OK;
  if (!pass->begun) {
    status = maps ? heed__own_maps_begin(pass) : heed__attention_stage_begin(p, stage);
    pass->begun = status == HEED_OK;
  }
  while (status == HEED_OK && !*done) {
    heed__set_slice(pass->context, pass->slice_end);
    if (maps)
      *done = heed__attention_plan_run(&p->plan);
    else
      status = heed__attention_stage_run(p, stage, done);
    heed__set_slice(pass->context, INFINITY); /* nothing else can stop and continue */
    if (status == HEED_OK && !*done) status = heed__stopped(pass->context, pass->module->class->name);
    if (!*done && slice_is_over(pass)) return status;
  }
  if (status != HEED_OK) return status;
  pass->begun = false;
  return maps ? heed__own_maps_end(pass, HEED_OK) : heed__attention_stage_end(p, stage);
}

/* In slices a copy draws, since others may draw in between; what they drew then stays. */
static void begin_draws(heed__own_pass *pass) {
  heed__attention_stages *p = &pass->stages;
  pass->before = *p->options.generator;
  if (pass->slice_end == INFINITY) return;
  pass->source = p->options.generator;
  pass->own = pass->before;
  p->options.generator = p->operands.options.generator = &pass->own;
}

static void end_draws(heed__own_pass *pass, heed_status status) {
  heed__attention_stages *p = &pass->stages;
  pass->drawn = status == HEED_OK;
  if (status != HEED_OK) *p->options.generator = pass->before;
  pass->after = *p->options.generator;
  if (pass->source == NULL) return;
  p->options.generator = p->operands.options.generator = pass->source;
  if (memcmp(pass->source, &pass->before, sizeof pass->before) == 0) *pass->source = pass->after;
  pass->source = NULL;
}

static heed_status run_own_step(heed__own_pass *pass, bool *done) {
  heed__attention_stages *p = &pass->stages;
  const int stage = steps_of_pass[pass->step].stage;
  if (!has_work(pass)) {
    *done = true;
    return HEED_OK;
  }
  const bool draws = stage == HEED__STAGE_ATTENTION && p->dropout > 0 && !makes_maps(pass);
  if (draws && !pass->begun) begin_draws(pass);
  heed_status status = HEED_OK;
  if (weighs(pass)) {
    status = heed__own_weigh(pass);
    *done = true;
  } else {
    status = run_stage(pass, stage, done);
  }
  if (draws && (status != HEED_OK || *done)) end_draws(pass, status);
  return status;
}

/* ---- Stops ---- */

const char *heed__own_pass_names(const heed__own_pass *pass, char *result, size_t size) {
  const heed_tensor *x = NULL;
  const heed_module *part = part_at(pass, pass->step, &x);
  const char *name = pass->step < OWN_STEPS ? steps_of_pass[pass->step].name : "the output";
  if (part != NULL)
    snprintf(result, size, "the result of %s (%.60s)", name, heed_module_class(part));
  else
    snprintf(result, size, "the result of the hook on %s", name);
  return pass->module->class->name;
}

/* The shape of a result: that of the input x, except for the last size of a projection. */
static heed_status check_part_result(const heed__own_pass *pass, const heed_tensor *x, const heed_tensor *y) {
  const heed__attention_module *a = (const heed__attention_module *)pass->module;
  char result[128], have[HEED__SHAPE_TEXT], need[HEED__SHAPE_TEXT];
  int64_t shape[HEED_MAX_DIMS];
  int ndim = x->ndim;
  const char *module = heed__own_pass_names(pass, result, sizeof result);
  if (y->dtype != HEED_FLOAT32)
    return heed__fail(pass->context, HEED_DTYPE, "%s: %s is %s; it must be float32", module, result,
                      heed_dtype_name(y->dtype));
  memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
  switch (pass->step) {
  case STEP_QUERIES: shape[ndim - 1] = a->num_heads * a->head_dim; break;
  case STEP_KEYS:
  case STEP_VALUES: shape[ndim - 1] = a->num_kv_heads * a->head_dim; break;
  case STEP_OUT: shape[ndim - 1] = a->d_out; break;
  case STEP_RESULT: /* the sum of the heads, after the bias */
    shape[2] = pass->stages.out_proj != NULL ? a->d_out : a->num_heads * a->head_dim;
    ndim = 3;
    break;
  default: break;
  }
  if (heed__same_shape(y->ndim, y->shape, ndim, shape)) return HEED_OK;
  return heed__fail(pass->context, HEED_SHAPE, "%s: %s is %s; it must be %s", module, result,
                    heed__shape_text(have, y->ndim, y->shape), heed__shape_text(need, ndim, shape));
}

/* Calls the host's function for a point, whose tensor is made. */
static heed_status call_host_hook(heed__own_pass *pass, unsigned point) {
  heed_tensor *y = NULL;
  heed_status status =
      pass->hook.callback(pass->hook.user, pass->module, (heed_attention_point)point, pass->point, &y);
  if (y == pass->point) y = NULL; /* unchanged */
  if (status == HEED_OK && y != NULL && !heed__is_tensor_of(pass->context, y))
    status = heed__fail(pass->context, HEED_ARGUMENT, "%s: the hook on %s gave a tensor of another context",
                        pass->module->class->name, steps_of_pass[pass->step].name);
  if (status == HEED_OK && y != NULL) status = check_part_result(pass, pass->point, y);
  if (status == HEED_OK && y != NULL) status = heed__own_point_put(pass, y);
  if (y != NULL && status == HEED_OK) {
    heed_tensor_free(pass->point);
    pass->point = y;
    y = NULL;
  }
  heed_tensor_free(y);
  return status;
}

/* Whether the pass waits at this step for a part or the listeners of a point. */
static heed_status begin_own_step(heed__own_pass *pass) {
  const heed_tensor *x = NULL;
  const unsigned point = steps_of_pass[pass->step].point;
  heed_status status = HEED_OK;
  pass->waiting = part_at(pass, pass->step, &x) != NULL;
  if ((pass->listened & point) == 0) return HEED_OK;
  status = heed__own_point_make(pass);
  if (status == HEED_OK && pass->hook.callback != NULL && (pass->hook.points & point) != 0)
    status = call_host_hook(pass, point);
  pass->waiting = (pass->waits & point) != 0;
  return status;
}

static void next_own_step(heed__own_pass *pass) {
  heed_tensor_free(pass->point);
  pass->point = NULL;
  pass->waiting = false;
  pass->step++;
}

heed_status heed__own_pass_run(heed__own_pass *pass, heed__own_stop *stop) {
  *stop = (heed__own_stop){0};
  pass->took = false;
  if (!pass->pending && !pass->finished)
    return heed__fail(pass->context, HEED_ARGUMENT, "%s: the forward pass has ended with an error",
                      pass->module->class->name);
  heed_status status = HEED_OK;
  bool done = true;
  if (!pass->waiting && pass->pending) status = check_cache_unchanged(pass);
  while (status == HEED_OK && done && !pass->waiting && pass->step < OWN_STEPS) {
    const heed__recorder *recorder = heed__pause_recording(pass->context);
    if (!pass->begun) status = begin_own_step(pass);
    done = false;
    if (status == HEED_OK && !pass->waiting) status = run_own_step(pass, &done);
    heed__resume_recording(pass->context, recorder);
    if (status == HEED_OK && done) next_own_step(pass);
    if (slice_is_over(pass)) break;
  }
  if (status == HEED_OK && pass->step == OWN_STEPS) pass->finished = true;
  if (status != HEED_OK && pass->begun && makes_maps(pass)) {
    (void)!heed__own_maps_end(pass, status);
    pass->begun = false;
  }
  if (status != HEED_OK || pass->finished) {
    if (pass->pending) heed__attention_stages_end(&pass->stages, status);
    pass->pending = false;
  }
  stop->paused = !pass->waiting && !pass->finished;
  if (status != HEED_OK || !pass->waiting) return status;
  stop->name = steps_of_pass[pass->step].name;
  stop->part = part_at(pass, pass->step, &stop->x);
  if (stop->part == NULL) stop->x = pass->point;
  return HEED_OK;
}

int heed__own_stage(int step) {
  return steps_of_pass[step].stage;
}

int64_t heed__own_pass_past(const heed__own_pass *pass) {
  return pass->stages.past;
}

bool heed__own_pass_waits_for_part(const heed__own_pass *pass) {
  const heed_tensor *x = NULL;
  return pass->waiting && part_at(pass, pass->step, &x) != NULL;
}

void heed__own_pass_undo(heed__own_pass *pass) {
  heed_generator *g = pass->stages.options.generator;
  if (pass->drawn && memcmp(g, &pass->after, sizeof *g) == 0) *g = pass->before;
  pass->drawn = false;
}

/* ---- Results ---- */

/* What the dropout gave. Weights that it left as they were stay those of the stages. */
static heed_status put_dropped(heed__own_pass *pass, const heed_tensor *y) {
  heed_tensor *dropped = NULL;
  const heed_status status = heed__stages_copy(&pass->stages, y, &dropped);
  if (status != HEED_OK) return status;
  const heed_tensor *weights = pass->taps.weights;
  if (dropped->numel > 0 && memcmp(dropped->data, weights->data, (size_t)dropped->numel * sizeof(float)) != 0)
    pass->changed = true;
  pass->taps.dropped_weights = dropped;
  return HEED_OK;
}

heed_status heed__own_pass_put(heed__own_pass *pass, const heed_tensor *y) {
  const heed_tensor *x = NULL;
  if (!pass->waiting) return HEED_OK;
  const heed_module *part = part_at(pass, pass->step, &x);
  if (part == NULL) x = pass->point;
  heed_status status = y != NULL ? check_part_result(pass, x, y) : HEED_OK;
  if (status == HEED_OK && y != NULL) {
    switch (pass->step) {
    case STEP_DROPOUT: status = put_dropped(pass, y); break;
    case STEP_Q_NORM:
    case STEP_K_NORM: status = heed__own_put_heads(pass, pass->step - STEP_Q_NORM, y); break;
    default:
      status = part != NULL ? heed__stages_put(&pass->stages, steps_of_pass[pass->step].stage, y)
                            : heed__own_point_put(pass, y);
    }
  }
  if (status == HEED_OK) next_own_step(pass);
  pass->took = status == HEED_OK;
  return status;
}

heed_status heed__own_pass_result(heed__own_pass *pass, heed_tensor **out, heed_attention_taps *taps) {
  heed_status status = HEED_OK;
  if (!pass->finished)
    return heed__fail(pass->context, HEED_ARGUMENT, "%s: the forward pass is not done",
                      pass->module->class->name);
  if (taps != NULL && pass->selects)
    status = heed__wanted_select(pass->context, pass->module->class->name,
                                 pass->wanted != NULL ? pass->wanted : &default_taps,
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
  heed__own_stop stop;
  heed_status status = heed__own_pass_new(m, x, options, taps != NULL, NULL, &pass);
  while (status == HEED_OK && (status = heed__own_pass_run(pass, &stop)) == HEED_OK && stop.part != NULL) {
    heed_tensor *y = NULL;
    status = heed_module_forward(stop.part, stop.x, NULL, &y, NULL);
    if (status == HEED_OK) status = heed__own_pass_put(pass, y);
    heed_tensor_free(y);
  }
  if (status == HEED_OK) status = heed__own_pass_result(pass, out, taps);
  heed__own_pass_free(pass);
  return status;
}
