/* Writes in place while operations are recorded: if memory runs out, neither the elements nor the history of
 * the tensor change, also where the source is a parameter that was not used before. */
#include "support.h"

#include <string.h>

enum { ROWS = 4, COLUMNS = 3, N = ROWS * COLUMNS };

typedef struct operands {
  heed_context *ctx;
  heed_tensor *x;          /* a leaf [ROWS, COLUMNS] */
  heed_tensor *y;          /* computed from x; it is written */
  heed_tensor *source;     /* a parameter [ROWS, COLUMNS] */
  heed_tensor *number;     /* a parameter of one element */
  heed_tensor *index;      /* [ROWS] */
  heed_tensor *index_rows; /* [ROWS, COLUMNS] */
  heed_tensor *mask;       /* [ROWS, COLUMNS], true */
} operands;

typedef heed_status write(operands *o);

static heed_status write_copy(operands *o) {
  return heed_copy(o->ctx, o->y, o->source);
}
static heed_status write_index_put(operands *o) {
  const heed_tensor *const at[] = {o->index};
  return heed_index_put(o->ctx, o->y, 1, at, o->source, false);
}
static heed_status write_accumulated(operands *o) {
  const heed_tensor *const at[] = {o->index};
  return heed_index_put(o->ctx, o->y, 1, at, o->number, true);
}
static heed_status write_index_add(operands *o) {
  return heed_index_add(o->ctx, o->y, 1, o->index, o->source, heed_number(2));
}
static heed_status write_index_copy(operands *o) {
  return heed_index_copy(o->ctx, o->y, 1, o->index, o->source);
}
static heed_status write_index_fill(operands *o) {
  return heed_index_fill(o->ctx, o->y, 1, o->index, heed_number(2));
}
static heed_status write_scatter(operands *o) {
  return heed_scatter(o->ctx, o->y, 1, o->index_rows, o->source, HEED_SCATTER_REPLACE);
}
static heed_status write_scatter_add(operands *o) {
  return heed_scatter(o->ctx, o->y, 1, o->index_rows, o->source, HEED_SCATTER_ADD);
}
static heed_status write_masked(operands *o) {
  return heed_masked_assign(o->ctx, o->y, o->mask, o->number);
}
static heed_status write_fill(operands *o) {
  return heed_fill(o->ctx, o->y, heed_number(3));
}

static heed_status write_sums(operands *o) {
  return heed_cumsum(o->ctx, o->y, 1, &o->y);
}
static heed_status write_flipped(operands *o) {
  return heed_flip(o->ctx, o->y, 1, (const int[]){1}, &o->y);
}
static heed_status write_selected(operands *o) {
  return heed_index_select(o->ctx, o->source, 1, o->index, &o->y);
}

static const struct {
  const char *name;
  write *call;
} writes[] = {
    {"copy", write_copy},
    {"index_put", write_index_put},
    {"index_put, accumulated", write_accumulated},
    {"index_add", write_index_add},
    {"index_copy", write_index_copy},
    {"index_fill", write_index_fill},
    {"scatter", write_scatter},
    {"scatter_add", write_scatter_add},
    {"masked_assign", write_masked},
    {"fill", write_fill},
    {"cumsum", write_sums},
    {"flip", write_flipped},
    {"index_select", write_selected},
};
static size_t failing;

static heed_status open_operands(operands *o) {
  const int64_t shape[] = {ROWS, COLUMNS};
  heed_status status = heed_full(o->ctx, HEED_FLOAT32, 2, shape, heed_number(1), &o->x);
  if (!status) ((float *)heed_tensor_data(o->x))[0] = 3;
  if (!status) status = heed_tensor_require_grad(o->x, true);
  if (!status) status = heed_full(o->ctx, HEED_FLOAT32, 2, shape, heed_number(5), &o->source);
  if (!status) status = heed_full(o->ctx, HEED_FLOAT32, 0, NULL, heed_number(7), &o->number);
  if (!status) status = heed_full(o->ctx, HEED_BOOL, 2, shape, heed_integer(1), &o->mask);
  if (!status) status = heed_full(o->ctx, HEED_INT64, 2, shape, heed_integer(2), &o->index_rows);
  if (!status)
    status = heed_range(o->ctx, HEED_INT64, heed_integer(1), heed_integer(ROWS), heed_integer(1), &o->index);
  if (status) return status;
  heed_tensor_set_parameter(o->source, true);
  heed_tensor_set_parameter(o->number, true);
  heed_set_recording(o->ctx, true);
  return heed_exp(o->ctx, o->x, &o->y);
}

static void close_operands(operands *o) {
  heed_set_recording(o->ctx, false);
  heed_tensor *const all[] = {o->x, o->y, o->source, o->number, o->index, o->index_rows, o->mask};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
}

static heed_status fails_to_write(heed_context *ctx) {
  operands o = {.ctx = ctx};
  float before[N];
  heed_status status = open_operands(&o);
  if (!status) {
    memcpy(before, heed_tensor_data(o.y), sizeof before);
    status = writes[failing].call(&o);
    if (status == HEED_OK) {
      assert_memory_not_equal(heed_tensor_data(o.y), before, sizeof before);
    } else if (o.y->storage->version != 0 || memcmp(heed_tensor_data(o.y), before, sizeof before) != 0 ||
               strcmp(heed_tensor_grad_fn(o.y), "ExpBackward0") != 0) {
      fail_msg("%s has failed and has changed its tensor", writes[failing].name);
    }
  }
  close_operands(&o);
  return status;
}

static void failing_writes_change_nothing(void **state) {
  (void)state;
  for (failing = 0; failing < sizeof writes / sizeof *writes; failing++)
    survives_every_failing_allocation(fails_to_write);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(failing_writes_change_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
