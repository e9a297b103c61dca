/* Walking over several tensors of one broadcast shape, row by row (ops.h). */
#include "ops.h"

/* The stride of operand x in dimension d of a shape of ndim dimensions: 0 where x is broadcast. */
static ptrdiff_t stride_in(const heed_tensor *x, int ndim, int d) {
  const int own = d - (ndim - x->ndim);
  return own < 0 || x->shape[own] == 1 ? 0 : (ptrdiff_t)x->stride[own];
}

/* Adds dimension d of the shape as the outermost one of the walk, or merges it with the outermost one if the
 * strides of all operands allow. Steps are in elements until begin_walk has added all dimensions. */
static void add_dimension(heed__walk *w, int ndim, const int64_t *shape, int d, bool may_merge,
                          const heed_tensor *const *tensors) {
  const int last = w->dims - 1;
  ptrdiff_t step[HEED__WALK_MAX];
  for (int i = 0; i < w->operands; i++) {
    step[i] = stride_in(tensors[i], ndim, d);
    if (may_merge && step[i] != w->step[i][last] * w->size[last]) may_merge = false;
  }
  if (may_merge) {
    w->size[last] *= shape[d];
    return;
  }
  for (int i = 0; i < w->operands; i++) w->step[i][w->dims] = step[i];
  w->size[w->dims++] = shape[d];
}

/* Rows along dimension `lane`, which is not merged; -1: along the last dimensions. */
static bool begin_walk(heed__walk *w, int ndim, const int64_t *shape, int lane, int operands,
                       const heed_tensor *const *tensors) {
  for (int d = 0; d < ndim; d++) {
    if (shape[d] == 0) return false;
  }
  w->operands = operands;
  w->dims = 0;
  if (lane >= 0 && ndim > 0) add_dimension(w, ndim, shape, lane, false, tensors);
  const int unmerged = w->dims;
  for (int d = ndim - 1; d >= 0; d--) {
    if (d != lane && shape[d] != 1) add_dimension(w, ndim, shape, d, w->dims > unmerged, tensors);
  }
  if (w->dims == 0) w->size[w->dims++] = 1;
  w->count = w->size[0];
  for (int i = 0; i < operands; i++) {
    w->data[i] = tensors[i]->data;
    w->stride[i] = w->count == 1 ? 1 : w->step[i][0];
    w->step[i][0] = w->stride[i]; /* not set before if there are no dimensions */
    for (int d = 0; d < w->dims; d++) w->step[i][d] *= (ptrdiff_t)heed__element_bytes(tensors[i]->dtype);
  }
  for (int d = 1; d < w->dims; d++) w->at[d] = 0;
  return true;
}

bool heed__walk_begin(heed__walk *w, int ndim, const int64_t *shape, int operands,
                      const heed_tensor *const *tensors) {
  return begin_walk(w, ndim, shape, -1, operands, tensors);
}

bool heed__walk_lanes_begin(heed__walk *w, int ndim, const int64_t *shape, int dim, int operands,
                            const heed_tensor *const *tensors) {
  return begin_walk(w, ndim, shape, dim, operands, tensors);
}

/* One step along dimension d. Not a loop, since gcc would store two pointers at a time, and reading one of
 * them would then wait for the store (Zen 4: a row of 64 elements takes a quarter longer). */
static inline void walk_step(heed__walk *w, int d) {
  switch (w->operands) {
  case 6: w->data[5] += w->step[5][d]; /* fallthrough */
  case 5: w->data[4] += w->step[4][d]; /* fallthrough */
  case 4: w->data[3] += w->step[3][d]; /* fallthrough */
  case 3: w->data[2] += w->step[2][d]; /* fallthrough */
  case 2: w->data[1] += w->step[1][d]; /* fallthrough */
  default: w->data[0] += w->step[0][d];
  }
}
_Static_assert(HEED__WALK_MAX == 6, "walk_step has a case for each number of operands");

/* The next step along dimension `first` or one outside it. */
static inline bool walk_from(heed__walk *w, int first) {
  for (int d = first; d < w->dims; d++) {
    if (++w->at[d] < w->size[d]) {
      walk_step(w, d);
      return true;
    }
    w->at[d] = 0;
    for (int i = 0; i < w->operands; i++) w->data[i] -= w->step[i][d] * (ptrdiff_t)(w->size[d] - 1);
  }
  return false;
}

bool heed__walk_next(heed__walk *w) {
  return walk_from(w, 1);
}

bool heed__walk_next_group(heed__walk *w) {
  return walk_from(w, 2);
}

void heed__walk_turn(heed__walk *w, const heed_tensor *const *tensors) {
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(tensors[0]->dtype);
  int row = 0;
  if (w->stride[0] == 1) return;
  for (int i = 1; i < w->operands; i++) {
    if (w->stride[i] == 1 && tensors[i]->dtype != HEED_FLOAT32) return;
  }
  for (int d = 1; d < w->dims && row == 0; d++) {
    if (w->step[0][d] == bytes) row = d;
  }
  if (row == 0 || (w->size[row] < HEED__SHORT_ROW && w->size[row] < w->count)) return;
  const int64_t count = w->size[row];
  w->size[row] = w->size[0];
  w->size[0] = w->count = count;
  for (int i = 0; i < w->operands; i++) {
    const ptrdiff_t step = w->step[i][row];
    w->step[i][row] = w->step[i][0];
    w->step[i][0] = step;
    w->stride[i] = step / (ptrdiff_t)heed__element_bytes(tensors[i]->dtype);
  }
}

int heed__walk_across(const heed__walk *w, int i) {
  for (int d = 1; d < w->dims; d++) {
    if (heed__walk_lies_across(w, i, d)) return d;
  }
  return 0;
}

void heed__walk_narrow(heed__walk *w, int dim, int64_t first, int64_t length) {
  for (int i = 0; i < w->operands; i++) w->data[i] += w->step[i][dim] * (ptrdiff_t)first;
  w->size[dim] = length;
  w->count = w->size[0];
  for (int i = 0; i < w->operands && w->count == 1; i++) w->stride[i] = 1;
}
