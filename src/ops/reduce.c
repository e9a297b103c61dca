/* The loop of all reductions (reduce.h). */
#include "reduce.h"
#include "map.h"

#include <string.h>

_Static_assert(HEED__REDUCE_WIDTH >= HEED__CHUNK, "a row of results is converted in one buffer");

/* Rows of more than LONG_ROW elements are reduced in pieces, with cancellation checks between them. Shorter
 * rows are never cut, since sums depend on it. */
#define LONG_ROW  ((int64_t)1 << 20)
#define ROW_PIECE ((int64_t)1 << 18)

#define ACROSS_PIECE ((int64_t)1 << 15) /* elements of rows across between cancellation checks */

#define GRAIN 16 /* a thread gets a multiple of these results: a cache line */

heed_status heed__reduced_dims(heed_context *ctx, const char *function, const heed_tensor *x, int ndims,
                               const int *dims, uint32_t *reduced) {
  uint32_t bits;
  heed_status status = heed__check_arithmetic(ctx, function, "x", x);
  if (status == HEED_OK) status = heed__check_dims(ctx, function, x->ndim, ndims, dims, &bits);
  if (status == HEED_OK) *reduced = ndims == 0 ? UINT32_MAX : bits;
  return status;
}

heed_status heed__check_reduced(heed_context *ctx, const char *function, const heed_tensor *x,
                                uint32_t reduced) {
  char text[HEED__SHAPE_TEXT];
  for (int i = 0; i < x->ndim; i++) {
    if ((reduced >> i & 1) && x->shape[i] == 0)
      return heed__fail(ctx, HEED_SHAPE, "%s: x is %s; dimension %d must have at least 1 element", function,
                        heed__shape_text(text, x->ndim, x->shape), i + 1);
  }
  return HEED_OK;
}

int heed__reduced_shape(const heed_tensor *x, uint32_t reduced, bool keepdim, int64_t *shape) {
  int ndim = 0;
  for (int i = 0; i < x->ndim; i++) {
    if (!(reduced >> i & 1))
      shape[ndim++] = x->shape[i];
    else if (keepdim)
      shape[ndim++] = 1;
  }
  return ndim;
}

/* x without the dimensions whose bit is not set. */
static void pick_dims(heed_tensor *view, const heed_tensor *x, uint32_t picked) {
  heed__alias_on_stack(view, x);
  view->ndim = 0;
  view->numel = 1;
  for (int i = 0; i < x->ndim; i++) {
    if (!(picked >> i & 1)) continue;
    view->shape[view->ndim] = x->shape[i];
    view->stride[view->ndim] = x->stride[i];
    view->numel *= x->shape[i];
    view->ndim++;
  }
}

/* The smallest stride of the dimensions larger than 1. */
static int64_t least_stride(const heed_tensor *x) {
  int64_t least = INT64_MAX;
  for (int i = 0; i < x->ndim; i++) {
    if (x->shape[i] > 1) least = heed__min(least, x->stride[i]);
  }
  return least;
}

typedef struct reduce_job {
  const heed__pace *pace;
  const heed__reduction *reduction;
  char *state, *more_states; /* of the first worker (the caller), and of the others */
  heed_dtype dtype;
  bool along;
  bool any;          /* the results have elements */
  int64_t count;     /* elements of each result */
  bool whole_rows;   /* the elements of a result are one row, which reduction->rows accepts */
  heed__walk folded; /* over the elements of the first result */
  int outputs;
  heed_dtype result[HEED__REDUCE_OUTPUTS];
} reduce_job;

/* The working state of a thread. */
typedef struct folder {
  const reduce_job *job;
  void *state;
  heed__walk folded;
  int64_t buffer[HEED__REDUCE_WIDTH]; /* fits elements of any dtype */
} folder;

/* One row of elements of a single result. This and the following functions stop early at a cancellation
 * check. */
static void fold_along(folder *f, const char *data, ptrdiff_t stride, int64_t count) {
  const heed__reduction *r = f->job->reduction;
  const heed_dtype dtype = f->job->dtype;
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(dtype);
  if (dtype == r->read_as && stride == 1) {
    const int64_t most = count > LONG_ROW ? ROW_PIECE : count;
    for (int64_t first = 0; first < count && !heed__is_due(f->job->pace); first += most) {
      const int64_t n = heed__min(count - first, most);
      r->along(f->state, data + first * bytes, (size_t)n);
    }
    return;
  }
  for (int64_t first = 0; first < count; first += HEED__CHUNK) {
    const int64_t n = heed__min(count - first, HEED__CHUNK);
    const heed__span x =
        heed__fetch(r->read_as, true, dtype, data + first * stride * bytes, stride, n, f->buffer);
    r->along(f->state, x.data, (size_t)n);
    if (heed__is_due_at(f->job->pace, first / HEED__CHUNK)) return;
  }
}

/* Rows of elements of `width` results, which are `column` elements apart. */
static void fold_across(folder *f, const char *data, ptrdiff_t stride, int64_t count, ptrdiff_t column,
                        int64_t width) {
  const heed__reduction *r = f->job->reduction;
  const heed_dtype dtype = f->job->dtype;
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(dtype);
  if (dtype == r->read_as && (column == 1 || width == 1)) {
    const int64_t most = ACROSS_PIECE / width;
    for (int64_t first = 0; first < count; first += most) {
      const int64_t rows = heed__min(count - first, most);
      r->across(f->state, data + first * stride * bytes, stride, (size_t)rows, (size_t)width);
      if (heed__is_due(f->job->pace)) return;
    }
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    const heed__span x =
        heed__fetch(r->read_as, true, dtype, data + i * stride * bytes, column, width, f->buffer);
    r->across(f->state, x.data, 0, 1, (size_t)width);
    if ((i & 63) == 63 && heed__is_due(f->job->pace)) return;
  }
}

/* One pass over the elements of `width` results; their first elements are at data, data + column, … */
static void fold(folder *f, char *data, ptrdiff_t column, int64_t width) {
  heed__walk *w = &f->folded; /* after its last row it is back at the first */
  w->data[0] = data;
  do {
    if (f->job->along)
      fold_along(f, w->data[0], w->stride[0], w->count);
    else
      fold_across(f, w->data[0], w->stride[0], w->count, column, width);
  } while (heed__walk_next(w) && !heed__is_due(f->job->pace));
}

/* The results of a walk over the kept dimensions: operand 0 is the input, the others are the outputs. */
static void reduce_part(void *user, heed__walk *w, int worker) {
  const reduce_job *job = user;
  const heed__reduction *r = job->reduction;
  folder f; /* not zeroed, for its buffer */
  f.job = job;
  f.state = worker == 0 ? job->state : job->more_states + (size_t)(worker - 1) * r->state_bytes;
  if (job->any) f.folded = job->folded;
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(job->dtype);
  const int64_t most = job->along ? 1 : HEED__REDUCE_WIDTH;
  if (job->whole_rows) {
    const int64_t at_once = heed__max(1, ROW_PIECE / job->count);
    const ptrdiff_t result_bytes = (ptrdiff_t)heed__element_bytes(job->result[0]);
    do {
      for (int64_t first = 0; first < w->count && !heed__is_due(job->pace); first += at_once) {
        const int64_t n = heed__min(w->count - first, at_once);
        r->rows(f.state, w->data[0] + first * w->stride[0] * bytes, w->stride[0], (size_t)job->count,
                w->data[1] + first * w->stride[1] * result_bytes, w->stride[1], (size_t)n);
      }
    } while (heed__walk_next(w) && !heed__is_due(job->pace));
    return;
  }
  do {
    for (int64_t first = 0; first < w->count; first += most) {
      const int64_t width = heed__min(w->count - first, most);
      for (int pass = 0; pass < r->passes; pass++) {
        r->begin(f.state, pass, (size_t)width, job->count);
        if (job->any) fold(&f, w->data[0] + first * w->stride[0] * bytes, w->stride[0], width);
      }
      void *outputs[HEED__REDUCE_OUTPUTS];
      for (int i = 0; i < job->outputs; i++) {
        const ptrdiff_t size = (ptrdiff_t)heed__element_bytes(job->result[i]);
        outputs[i] = w->data[i + 1] + first * w->stride[i + 1] * size;
      }
      r->finish(f.state, (size_t)width, outputs, w->stride + 1);
      if (heed__is_due(job->pace)) return;
    }
  } while (heed__walk_next(w));
}

/* States for all workers but the first; NULL if out of memory. */
static char *more_states(heed_context *ctx, const reduce_job *job) {
  const size_t count = (size_t)heed__workers(ctx) - 1, bytes = job->reduction->state_bytes;
  char *states = heed__allocate(ctx, count * bytes);
  for (size_t i = 0; states && i < count; i++) memcpy(states + i * bytes, job->state, bytes);
  return states;
}

bool heed__reduce(heed_context *ctx, const heed__reduction *r, void *state, const heed_tensor *x,
                  uint32_t reduced, bool keepdim, int outputs, const heed_tensor *const *out) {
  heed_tensor kept, folded, results[HEED__REDUCE_OUTPUTS];
  const heed_tensor *folded_operand = &folded, *operands[HEED__REDUCE_OUTPUTS + 1] = {&kept};
  heed__walk w;
  pick_dims(&kept, x, ~reduced);
  pick_dims(&folded, x, reduced);
  reduce_job job; /* not zeroed, for its large walk */
  job.pace = &ctx->pace;
  job.reduction = r;
  job.state = state;
  job.more_states = NULL;
  job.dtype = x->dtype;
  job.along = kept.numel == 1 || least_stride(&folded) <= least_stride(&kept);
  job.any = heed__walk_begin(&job.folded, folded.ndim, folded.shape, 1, &folded_operand);
  job.count = folded.numel;
  job.whole_rows = r->rows != NULL && job.along && job.any && job.folded.dims == 1 &&
                   job.folded.stride[0] == 1 && job.dtype == r->read_as && job.count <= LONG_ROW;
  job.outputs = outputs;
  for (int i = 0; i < outputs; i++) {
    pick_dims(&results[i], out[i], keepdim ? ~reduced : UINT32_MAX);
    operands[i + 1] = &results[i];
    job.result[i] = out[i]->dtype;
  }
  if (!heed__walk_begin(&w, kept.ndim, kept.shape, outputs + 1, operands)) return true;
  const bool divided = x->numel >= HEED__DIVIDED_FROM && kept.numel > 1 && heed__workers(ctx) > 1;
  if (divided) job.more_states = more_states(ctx, &job);
  bool done;
  if (!divided || job.more_states) {
    done = heed__walk_divided(ctx, &w, GRAIN, folded.numel, reduce_part, &job);
  } else { /* a single state */
    reduce_part(&job, &w, 0);
    done = !heed__is_due(&ctx->pace);
  }
  heed__release(ctx, job.more_states);
  return done;
}

heed_status heed__reduce_dims(heed_context *ctx, const char *function, const heed__reduction *r, void *state,
                              const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                              heed_dtype dtype, heed_tensor **out) {
  heed__result result = {0};
  uint32_t reduced;
  int64_t shape[HEED_MAX_DIMS];
  heed_status status = heed__reduced_dims(ctx, function, x, ndims, dims, &reduced);
  if (status != HEED_OK) return status;
  const int ndim = heed__reduced_shape(x, reduced, keepdim, shape);
  status = heed__result_begin(ctx, function, &result, out, dtype, ndim, shape, false, 1, &x);
  if (status != HEED_OK) return status;
  const heed_tensor *results[] = {result.tensor};
  if (!heed__reduce(ctx, r, state, x, reduced, keepdim, 1, results)) status = heed__stopped(ctx, function);
  return heed__result_end(ctx, &result, status);
}
