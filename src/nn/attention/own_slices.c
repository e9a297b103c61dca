/* A forward pass that stops, in slices of time; how much of it is done, and what it takes. */
#include <math.h>

#include "own_pass.h"

heed_status heed__own_pass_slice(heed__own_pass *pass, double seconds, heed__own_stop *stop) {
  if (pass->took && !(seconds > 0)) {
    pass->took = false;
    *stop = (heed__own_stop){.paused = true};
    return HEED_OK;
  }
  pass->slice_end = heed_clock() + seconds;
  const heed_status status = heed__own_pass_run(pass, stop);
  pass->slice_end = INFINITY;
  return status;
}

/* ---- Progress ---- */

static double tokens_in(const heed_tensor *x) {
  return (double)x->shape[x->ndim - 2] * (x->ndim == 3 ? (double)x->shape[0] : 1);
}

static double token_size(const heed_tensor *x) {
  return (double)x->shape[x->ndim - 1];
}

/* The multiply-adds of a step, which may not have begun. Each step has some. */
static double own_step_work(const heed__own_pass *pass, int step) {
  const heed__attention_stages *p = &pass->stages;
  const heed__attention_module *a = (const heed__attention_module *)pass->module;
  const heed_tensor *const *from = p->from;
  const double width = (double)(a->num_heads * a->head_dim), narrow = (double)(a->num_kv_heads * a->head_dim);
  const double queries = tokens_in(from[0]), keys = tokens_in(from[1]);
  const double seen = (double)from[1]->shape[from[1]->ndim - 2] + (double)p->past;
  const double least = 64;
  switch (step) {
  case STEP_QUERIES: return least + queries * width * token_size(from[0]);
  case STEP_KEYS: return least + keys * narrow * token_size(from[1]);
  case STEP_VALUES: return least + keys * narrow * token_size(from[2]);
  case STEP_SHAPE: return least + (p->rotary ? 16 * (queries * width + keys * narrow) : 0);
  case STEP_CACHE: return least + (pass->cache != NULL ? 32 * keys * narrow : 0);
  case STEP_ATTENTION: return least + 2 * queries * width * seen;
  case STEP_WEIGHTED: return least + (pass->unfused ? 2 * queries * width * seen : 0);
  case STEP_OUT: return least + (p->out_proj != NULL ? queries * width * (double)a->d_out : 0);
  default: return least;
  }
}

void heed__own_pass_progress(const heed__own_pass *pass, double *done, double *total) {
  *done = *total = 0;
  if (!pass->pending) return;
  for (int step = 0; step < OWN_STEPS; step++) {
    const double work = own_step_work(pass, step);
    *total += work;
    if (step < pass->step)
      *done += work;
    else if (step == pass->step && pass->begun)
      *done += work * heed__attention_stage_progress(&pass->stages, heed__own_stage(step));
  }
}

/* ---- Memory ---- */

double heed__own_pass_memory(const heed__own_pass *pass) {
  if (!pass->pending) return 0;
  const heed__attention_module *a = (const heed__attention_module *)pass->module;
  const heed_tensor *const *from = pass->stages.from;
  const double queries = tokens_in(from[0]), keys = tokens_in(from[1]);
  const double seen = (double)from[1]->shape[from[1]->ndim - 2] + (double)pass->stages.past;
  const double floats = queries * (double)(3 * a->num_heads * a->head_dim + a->d_out) +
                        keys * (double)(4 * a->num_kv_heads * a->head_dim) +
                        (pass->selects ? 3 * queries * (double)a->num_heads * seen : 0);
  return sizeof(float) * floats;
}
