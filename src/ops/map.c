/* The loop behind all elementwise operations (map.h). Rows that lie as the row function wants them go to it
 * whole, others in chunks through buffers on the stack. */
#include "map.h"

typedef struct buffers {
  int64_t input[HEED__MAP_INPUTS][HEED__CHUNK]; /* room for elements of any dtype */
  int64_t out[HEED__CHUNK];
} buffers;

static bool fits(heed_dtype as, bool packed, heed_dtype dtype, ptrdiff_t stride, int64_t n) {
  return dtype == as && (!packed || stride == 1 || n == 1);
}

heed__span heed__fetch(heed_dtype as, bool packed, heed_dtype dtype, const char *data, ptrdiff_t stride,
                       int64_t n, void *buffer) {
  if (fits(as, packed, dtype, stride, n)) return (heed__span){data, stride};
  if (stride == 0 && !packed) {
    heed__copy_row(as, buffer, 1, dtype, data, 0, 1);
    return (heed__span){buffer, 0};
  }
  heed__copy_row(as, buffer, 1, dtype, data, stride, n);
  return (heed__span){buffer, 1};
}

static bool fit_each_other(const heed_tensor *a, const heed_tensor *b) {
  int ndim = 0;
  int64_t shape[HEED_MAX_DIMS];
  return heed__broadcast(&ndim, shape, a->ndim, a->shape) && heed__broadcast(&ndim, shape, b->ndim, b->shape);
}

/* Names the input that does not broadcast and the first that it does not fit. */
static heed_status fail_shape(heed_context *ctx, const heed__map *map, int bad) {
  const heed_tensor *b = map->input[bad].tensor;
  int first = 0;
  while (first < bad - 1 && fit_each_other(map->input[first].tensor, b)) first++;
  const heed_tensor *a = map->input[first].tensor;
  char a_text[HEED__SHAPE_TEXT], b_text[HEED__SHAPE_TEXT];
  return heed__fail(ctx, HEED_SHAPE,
                    "%s: %s is %s and %s is %s; to broadcast, sizes counted from the last must be equal or 1",
                    map->function, map->input[first].name, heed__shape_text(a_text, a->ndim, a->shape),
                    map->input[bad].name, heed__shape_text(b_text, b->ndim, b->shape));
}

static heed_status map_shape(heed_context *ctx, const heed__map *map, int *ndim, int64_t *shape) {
  *ndim = 0;
  for (int i = 0; i < map->count; i++) {
    const heed_tensor *x = map->input[i].tensor;
    const heed_status status = heed__check_arithmetic(ctx, map->function, map->input[i].name, x);
    if (status != HEED_OK) return status;
    if (!heed__broadcast(ndim, shape, x->ndim, x->shape)) return fail_shape(ctx, map, i);
  }
  return HEED_OK;
}

/* The inputs of a row from element `first` on; operand i of the walk is input i - 1. */
static void fetch_inputs(const heed__map *map, const heed__walk *w, int64_t first, int64_t n, heed__span *in,
                         buffers *b) {
  for (int i = 0; i < map->count; i++) {
    const heed_dtype dtype = map->input[i].tensor->dtype;
    const ptrdiff_t stride = w->stride[i + 1];
    const char *data = w->data[i + 1] + first * stride * (ptrdiff_t)heed__element_bytes(dtype);
    in[i] = heed__fetch(map->input[i].read_as, map->packed, dtype, data, stride, n, b->input[i]);
  }
}

static bool inputs_fit(const heed__map *map, const heed__walk *w) {
  for (int i = 0; i < map->count; i++) {
    const ptrdiff_t stride = w->stride[i + 1];
    const bool one_value = stride == 0 && !map->packed; /* converted once, whatever the row's length */
    if (!one_value &&
        !fits(map->input[i].read_as, map->packed, map->input[i].tensor->dtype, stride, w->count))
      return false;
  }
  return true;
}

/* Whether all rows can go to the row function as they lie. */
static bool ready(const heed__map *map, const heed__walk *w) {
  bool all = w->stride[0] == 1;
  for (int i = 0; i < map->count; i++)
    all = all &&
          fits(map->input[i].read_as, map->packed, map->input[i].tensor->dtype, w->stride[i + 1], w->count);
  return all;
}

/* Short rows: what is the same for all of them is not done again for each. */
static void map_ready_rows(const heed__map *map, heed__walk *w) {
  const int64_t rows = w->dims > 1 ? w->size[1] : 1;
  heed__span in[HEED__MAP_INPUTS];
  for (int i = 0; i < map->count; i++) in[i].stride = w->stride[i + 1];
  do {
    char *out = w->data[0];
    for (int i = 0; i < map->count; i++) in[i].data = w->data[i + 1];
    for (int64_t row = 1;; row++) {
      map->row(map->user, out, in, (size_t)w->count);
      if (row == rows) break;
      out += w->step[0][1];
      for (int i = 0; i < map->count; i++) in[i].data = (const char *)in[i].data + w->step[i + 1][1];
    }
  } while (heed__walk_next_group(w));
}

static void map_part(void *user, heed__walk *w, int worker) {
  const heed__map *map = user;
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(map->result);
  heed__span in[HEED__MAP_INPUTS];
  buffers b;
  (void)worker;
  if (ready(map, w)) {
    map_ready_rows(map, w);
    return;
  }
  do {
    const bool packed = w->stride[0] == 1 || w->count == 1;
    const int64_t most = packed && inputs_fit(map, w) ? w->count : HEED__CHUNK;
    for (int64_t first = 0; first < w->count; first += most) {
      const int64_t n = w->count - first < most ? w->count - first : most;
      char *place = w->data[0] + first * w->stride[0] * bytes;
      fetch_inputs(map, w, first, n, in, &b);
      map->row(map->user, packed ? (void *)place : b.out, in, (size_t)n);
      if (!packed) heed__copy_row(map->result, place, w->stride[0], map->result, b.out, 1, n);
    }
  } while (heed__walk_next(w));
}

/* False if the work is due before all is done. */
static bool map_all_rows(heed_context *ctx, heed__map map, const heed_tensor *out) {
  const heed_tensor *operands[HEED__MAP_INPUTS + 1] = {out};
  for (int i = 0; i < map.count; i++) operands[i + 1] = map.input[i].tensor;
  heed__walk w;
  return !heed__walk_begin(&w, out->ndim, out->shape, map.count + 1, operands) ||
         heed__walk_divided(ctx, &w, HEED__CHUNK, 1, map_part, &map);
}

heed_status heed__map_run(heed_context *ctx, const heed__map *map, heed_tensor **out) {
  heed__result result = {0};
  const heed_tensor *inputs[HEED__MAP_INPUTS];
  int ndim;
  int64_t shape[HEED_MAX_DIMS];
  heed_status status = map_shape(ctx, map, &ndim, shape);
  if (status != HEED_OK) return status;
  for (int i = 0; i < map->count; i++) inputs[i] = map->input[i].tensor;
  status = heed__result_begin(ctx, map->function, &result, out, map->result, ndim, shape, true, map->count,
                              inputs);
  if (status != HEED_OK) return status;
  if (!map_all_rows(ctx, *map, result.tensor)) status = heed__stopped(ctx, map->function);
  return heed__result_end(ctx, &result, status);
}

heed_status heed__map_all(heed_context *ctx, const heed__map *map, bool *out) {
  int ndim;
  int64_t shape[HEED_MAX_DIMS];
  const heed_status status = map_shape(ctx, map, &ndim, shape);
  if (status != HEED_OK) return status;
  /* Operand 0 stands for the result, which is looked at and forgotten. */
  heed__number nothing;
  const heed_tensor *operands[HEED__MAP_INPUTS + 1] = {heed__number_tensor(&nothing, heed_boolean(false))};
  for (int i = 0; i < map->count; i++) operands[i + 1] = map->input[i].tensor;
  heed__walk w;
  heed__span in[HEED__MAP_INPUTS];
  buffers b;
  bool all = true;
  for (bool more = heed__walk_begin(&w, ndim, shape, map->count + 1, operands); more && all;
       more = heed__walk_next(&w)) {
    for (int64_t first = 0; first < w.count && all; first += HEED__CHUNK) {
      const int64_t n = w.count - first < HEED__CHUNK ? w.count - first : HEED__CHUNK;
      const uint8_t *holds = (const uint8_t *)b.out;
      fetch_inputs(map, &w, first, n, in, &b);
      map->row(map->user, b.out, in, (size_t)n);
      for (int64_t i = 0; i < n; i++) all = all && holds[i] != 0;
      if (heed__is_due(&ctx->pace)) {
        const heed_status stopped = heed__stopped(ctx, map->function);
        if (stopped != HEED_OK) return stopped;
      }
    }
  }
  *out = all;
  return HEED_OK;
}
