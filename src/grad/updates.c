/* A step of an optimiser on many parameters: checked as a whole, then made in one pass. */
#include "grad.h"

#include <assert.h>
#include <inttypes.h>

/* ---- Memory that tensors share ---- */

/* The bytes from a tensor's first element to its last. */
typedef struct memory_extent {
  const char *begin, *end;
  bool is_parameter, is_written;
  int64_t number;
} memory_extent;

static memory_extent extent_of(const heed_tensor *x, bool is_parameter, bool is_written, int64_t number) {
  int64_t last = 0;
  for (int d = 0; d < x->ndim; d++) last += (x->shape[d] - 1) * x->stride[d];
  const ptrdiff_t width = (ptrdiff_t)heed__element_bytes(x->dtype);
  return (memory_extent){x->data, x->data + (last + 1) * width, is_parameter, is_written, number};
}

/* By the first byte; at the same one, parameters first. */
static bool comes_before(const memory_extent *a, const memory_extent *b) {
  if (a->begin != b->begin) return (uintptr_t)a->begin < (uintptr_t)b->begin;
  if (a->is_parameter != b->is_parameter) return a->is_parameter;
  if (a->end != b->end) return (uintptr_t)a->end < (uintptr_t)b->end;
  return a->number < b->number;
}

static void sift_down(memory_extent *heap, int64_t at, int64_t count) {
  for (int64_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && comes_before(&heap[child], &heap[child + 1])) child++;
    if (!comes_before(&heap[at], &heap[child])) return;
    const memory_extent other = heap[at];
    heap[at] = heap[child];
    heap[child] = other;
  }
}

/* A heap sort, which needs no memory and has no bad case. */
static void sort_extents(memory_extent *extents, int64_t count) {
  for (int64_t i = count / 2 - 1; i >= 0; i--) sift_down(extents, i, count);
  for (int64_t i = count - 1; i > 0; i--) {
    const memory_extent last = extents[i];
    extents[i] = extents[0];
    extents[0] = last;
    sift_down(extents, 0, i);
  }
}

/* Whether two parameters are the same one; their numbers. */
static bool find_twice(const memory_extent *extents, int64_t count, int64_t *first, int64_t *second) {
  for (int64_t i = 1; i < count; i++) {
    const memory_extent *a = &extents[i - 1], *b = &extents[i];
    if (!a->is_parameter || !b->is_parameter || a->begin != b->begin || a->end != b->end) continue;
    *first = heed__min(a->number, b->number);
    *second = heed__max(a->number, b->number);
    return true;
  }
  return false;
}

heed_status heed__find_twice(heed_context *ctx, const char *function, int64_t count,
                             const heed_tensor *const *x, int64_t *first, int64_t *second) {
  *first = *second = 0;
  if (count < 2) return HEED_OK;
  const size_t bytes = heed__array_bytes((uint64_t)count, sizeof(memory_extent));
  memory_extent *extents = heed__allocate(ctx, bytes);
  if (extents == NULL) return heed__fail_memory(ctx, function, bytes);
  int64_t used = 0;
  for (int64_t i = 0; i < count; i++) {
    if (x[i]->numel > 0) extents[used++] = extent_of(x[i], true, true, i + 1);
  }
  sort_extents(extents, used);
  find_twice(extents, used, first, second);
  heed__release(ctx, extents);
  return HEED_OK;
}

/* Whether something that the step writes may overlap something else that it uses: then the order matters. */
static bool may_collide(const memory_extent *extents, int64_t count) {
  uintptr_t written = 0, used = 0;
  for (int64_t i = 0; i < count; i++) {
    const uintptr_t begin = (uintptr_t)extents[i].begin, end = (uintptr_t)extents[i].end;
    if (begin < written || (extents[i].is_written && begin < used)) return true;
    if (end > used) used = end;
    if (extents[i].is_written && end > written) written = end;
  }
  return false;
}

/* ---- Checks ---- */

static heed_status check_tensor(heed_context *ctx, const char *function, const heed__update *u,
                                const char *what, const heed_tensor *x) {
  char shape[HEED__SHAPE_TEXT], wanted[HEED__SHAPE_TEXT];
  if (!heed__is_tensor_of(ctx, x))
    return heed__fail(ctx, HEED_ARGUMENT, "%s: the %s of parameter %" PRId64 " is %s", function, what,
                      u->number, x == NULL ? "missing (NULL)" : "of another context; all must be of one");
  if (x->dtype != HEED_FLOAT32)
    return heed__fail(ctx, HEED_DTYPE, "%s: the %s of parameter %" PRId64 " is %s; it must be float32",
                      function, what, u->number, heed_dtype_name(x->dtype));
  if (!heed__same_shape(x->ndim, x->shape, u->x->ndim, u->x->shape))
    return heed__fail(ctx, HEED_SHAPE,
                      "%s: the %s of parameter %" PRId64 " is %s; it must be %s, the parameter's shape",
                      function, what, u->number, heed__shape_text(shape, x->ndim, x->shape),
                      heed__shape_text(wanted, u->x->ndim, u->x->shape));
  return HEED_OK;
}

static heed_status check_parameter(heed_context *ctx, const char *function, const heed__update *u) {
  const heed_tensor *x = u->x;
  if (!heed__is_tensor_of(ctx, x))
    return heed__fail(ctx, HEED_ARGUMENT, "%s: parameter %" PRId64 " is %s", function, u->number,
                      x == NULL ? "missing (NULL)" : "of another context; all must be of one");
  if (x->dtype != HEED_FLOAT32)
    return heed__fail(ctx, HEED_DTYPE, "%s: parameter %" PRId64 " is %s; it must be float32", function,
                      u->number, heed_dtype_name(x->dtype));
  if (x->node != NULL)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: parameter %" PRId64 " was computed; it must be a leaf, such as a detached clone",
                      function, u->number);
  if (x->storage != NULL && x->storage->placeholder)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: parameter %" PRId64 " has no elements yet (skip_init); load its weights first",
                      function, u->number);
  if (heed__overlaps_itself(x))
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: parameter %" PRId64 " has elements that share memory; clone it first", function,
                      u->number);
  return HEED_OK;
}

static heed_status check_update(heed_context *ctx, const char *function, const heed__update *u) {
  heed_status status = check_parameter(ctx, function, u);
  if (status == HEED_OK) status = check_tensor(ctx, function, u, "gradient", u->gradient);
  for (int i = 0; i < HEED__UPDATE_STATES && status == HEED_OK; i++) {
    if (u->state[i] == NULL) continue;
    status = check_tensor(ctx, function, u, "state", u->state[i]);
    if (status == HEED_OK && heed__overlaps_itself(u->state[i]))
      return heed__fail(ctx, HEED_ARGUMENT,
                        "%s: the state of parameter %" PRId64
                        " has elements that share memory; clone it first",
                        function, u->number);
  }
  return status;
}

/* ---- The step ---- */

typedef struct update_run {
  const heed__kernels *kernels;
  heed__update *updates;
} update_run;

static void step_elements(const heed__kernels *k, const heed__update *u, float *x, const float *g,
                          float *const *state, int64_t n) {
  const size_t count = (size_t)n;
  switch (u->optimizer->kind) {
  case HEED__SGD: k->sgd_step(x, g, state[0], count, &u->rule.sgd); break;
  case HEED__ADAM: k->adam_step(x, g, state[0], state[1], state[2], count, &u->rule.adam); break;
  case HEED__RMSPROP: k->rmsprop_step(x, g, state[0], state[1], state[2], count, &u->rule.rmsprop); break;
  }
}

static bool is_row_major(const heed__update *u) {
  for (int i = 0; i < HEED__UPDATE_STATES; i++) {
    if (u->state[i] != NULL && !heed_tensor_is_contiguous(u->state[i])) return false;
  }
  return heed_tensor_is_contiguous(u->x) && heed_tensor_is_contiguous(u->gradient);
}

static void step_block(void *user, int64_t block, int64_t i, int64_t first, int64_t count) {
  const update_run *run = user;
  const heed__update *u = &run->updates[i];
  float moved[2 + HEED__UPDATE_STATES][HEED__MOVED_ELEMENTS];
  const int64_t most = is_row_major(u) ? count : HEED__MOVED_ELEMENTS;
  (void)block;
  for (int64_t from = first, end = first + count; from < end; from += most) {
    const int64_t n = heed__min(most, end - from);
    float *x = heed__elements(u->x, from, n, moved[0]), *state[HEED__UPDATE_STATES] = {NULL};
    const float *g = heed__elements(u->gradient, from, n, moved[1]);
    for (int s = 0; s < HEED__UPDATE_STATES; s++) {
      if (u->state[s] != NULL) state[s] = heed__elements(u->state[s], from, n, moved[2 + s]);
    }
    step_elements(run->kernels, u, x, g, state, n);
    if (x == moved[0]) heed__move_elements(u->x, from, n, x, true);
    for (int s = 0; s < HEED__UPDATE_STATES; s++) {
      if (state[s] == moved[2 + s]) heed__move_elements(u->state[s], from, n, state[s], true);
    }
  }
}

static void count_write(heed_tensor *x, const char *function) {
  if (x == NULL || x->storage == NULL) return;
  x->storage->version++;
  x->storage->written_by = function;
}

/* Lists what the step uses, sorted: all of it, or the parameters alone; returns how much that is. */
static int64_t list_extents(memory_extent *extents, int64_t count, const heed__update *updates, bool all) {
  int64_t used = 0;
  for (int64_t i = 0; i < count; i++) {
    const heed__update *u = &updates[i];
    if (u->x->numel == 0) continue;
    extents[used++] = extent_of(u->x, true, true, u->number);
    if (!all) continue;
    extents[used++] = extent_of(u->gradient, false, false, u->number);
    for (int s = 0; s < HEED__UPDATE_STATES; s++) {
      if (u->state[s] != NULL) extents[used++] = extent_of(u->state[s], false, true, u->number);
    }
  }
  sort_extents(extents, used);
  return used;
}

heed_status heed__updates_run(heed_context *ctx, const char *function, int64_t count, heed__update *updates) {
  const bool threads = heed__workers(ctx) > 1;
  const uint64_t operands = threads ? 2 + HEED__UPDATE_STATES : 1;
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < count && status == HEED_OK; i++) {
    if (i % 1024 == 1023 && heed__is_due(&ctx->pace)) status = heed__stopped(ctx, function);
    if (status == HEED_OK) status = check_update(ctx, function, &updates[i]);
  }
  if (status != HEED_OK || count == 0) return status;
  if (count > INT64_MAX / (int64_t)(sizeof(memory_extent) * 8))
    return heed__fail_memory(ctx, function, PTRDIFF_MAX);

  const size_t bytes = heed__array_bytes((uint64_t)count * operands, sizeof(memory_extent)),
               more = heed__array_bytes((uint64_t)count + 1, sizeof(int64_t) + sizeof(heed_tensor *));
  memory_extent *extents = heed__allocate(ctx, bytes + more);
  if (extents == NULL) return heed__fail_memory(ctx, function, bytes + more);
  const heed_tensor **x = (const heed_tensor **)(void *)((char *)extents + bytes);
  int64_t *first_block = (int64_t *)(void *)(x + count + 1), first, second;
  const int64_t used = list_extents(extents, count, updates, threads);
  if (find_twice(extents, used, &first, &second)) {
    heed__release(ctx, extents);
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: parameters %" PRId64 " and %" PRId64
                      " are the same tensor; each must be listed once",
                      function, first, second);
  }
  double elements = 1;
  for (int64_t i = 0; i < count; i++) elements += (double)updates[i].x->numel;
  status = heed__charge(ctx, function, elements);
  if (status == HEED_OK && heed__is_due(&ctx->pace)) status = heed__stopped(ctx, function);
  if (status == HEED_OK) {
    for (int64_t i = 0; i < count; i++) {
      x[i] = updates[i].x;
      heed__update_set_rule(&updates[i], i > 0 ? &updates[i - 1] : NULL);
      count_write(updates[i].x, function);
      for (int s = 0; s < HEED__UPDATE_STATES; s++) count_write(updates[i].state[s], function);
    }
    heed__blocks blocks;
    heed__blocks_divide(&blocks, count, x, first_block);
    update_run run = {.kernels = heed__kernels_of(ctx), .updates = updates};
    heed__block_task task = {.blocks = &blocks, .x = x, .work = step_block, .user = &run};
    const bool held = ctx->pace.held;
    ctx->pace.held = true; /* from here on nothing can stop it */
    const bool is_done = heed__blocks_run(ctx, &task, threads && may_collide(extents, used));
    assert(is_done);
    (void)is_done;
    ctx->pace.held = held;
    for (int64_t i = 0; i < count; i++) updates[i].steps++;
  }
  heed__release(ctx, extents);
  return status;
}
