/* The loop of all elementwise operations (map.h). Rows with the dtypes and strides that the row function
 * accepts go to it whole, others in chunks through buffers on the stack. Inputs that are contiguous across
 * the rows are transposed in tiles (but not by heed__map_all). */
#include "map.h"

enum { TILE = 2048, TILE_COLUMNS = 128 }; /* elements of a tile, and at most of a row of it */
_Static_assert(TILE >= HEED__TILE * TILE_COLUMNS, "a tile holds the rows that are not divided");

typedef union input_buffer {
  int64_t chunk[HEED__CHUNK]; /* fits elements of any dtype */
  float tile[TILE];
} input_buffer;

typedef struct buffers {
  input_buffer input[HEED__MAP_INPUTS];
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

/* The message names the input that does not broadcast and the first one that it does not fit. */
static heed_status fail_shape(heed_context *ctx, const heed__map *map, int bad) {
  const heed_tensor *b = map->input[bad].tensor;
  int first = 0;
  while (first < bad - 1 && fit_each_other(map->input[first].tensor, b)) first++;
  return heed__fail_pair(ctx, map->function, map->input[first].name, map->input[first].tensor,
                         map->input[bad].name, b,
                         "to broadcast, sizes counted from the last must be equal or 1");
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

typedef struct map_job {
  const heed__map *map;
  const heed__kernels *kernels;
  int across; /* the dimension of the walk along which inputs are contiguous, if not along its rows; 0: none
               */
} map_job;

static bool is_float(const heed__map *map, int i) {
  return map->input[i].tensor->dtype == HEED_FLOAT32 && map->input[i].read_as == HEED_FLOAT32;
}

/* Whether input i is transposed in tiles. */
static bool is_tiled(const heed__map *map, const heed__walk *w, int i, int across) {
  return is_float(map, i) && heed__walk_lies_across(w, i + 1, across);
}

/* map_job.across: of the first input that has one; 0 where rows are so short that reading with strides is
 * faster, if the function can. */
static int dimension_across(const heed__map *map, const heed__walk *w) {
  int across = 0;
  if (w->count < 2 * HEED__SHORT_ROW && !map->packed) return 0;
  for (int i = 0; i < map->count && across == 0; i++)
    across = is_float(map, i) ? heed__walk_across(w, i + 1) : 0;
  return across;
}

/* The address of element `column` of a row of operand i, `row` steps along dimension d from the walk's
 * current row. */
static char *element_in(const heed__walk *w, int i, heed_dtype dtype, int d, int64_t row, int64_t column) {
  return w->data[i] + (ptrdiff_t)row * w->step[i][d] +
         (ptrdiff_t)column * w->stride[i] * (ptrdiff_t)heed__element_bytes(dtype);
}

static void fetch_tiles(const map_job *job, const heed__walk *w, int64_t row, int64_t rows, int64_t column,
                        int64_t columns, buffers *b) {
  for (int i = 0; i < job->map->count; i++) {
    if (!is_tiled(job->map, w, i, job->across)) continue;
    const void *from = element_in(w, i + 1, HEED_FLOAT32, job->across, row, column);
    job->kernels->transpose(b->input[i].tile, columns, from, w->stride[i + 1], (size_t)columns, (size_t)rows);
  }
}

/* The inputs of a row from element `column` on; row: index of the dimension across; line: row of the tiles.
 */
static void fetch_inputs(const heed__map *map, const heed__walk *w, int across, int64_t row, int64_t column,
                         int64_t n, int64_t line, heed__span *in, buffers *b) {
  for (int i = 0; i < map->count; i++) {
    const heed_dtype dtype = map->input[i].tensor->dtype;
    in[i] = is_tiled(map, w, i, across) ? (heed__span){b->input[i].tile + line * n, 1}
                                        : heed__fetch(map->input[i].read_as, map->packed, dtype,
                                                      element_in(w, i + 1, dtype, across, row, column),
                                                      w->stride[i + 1], n, b->input[i].chunk);
  }
}

static bool inputs_fit(const heed__map *map, const heed__walk *w) {
  for (int i = 0; i < map->count; i++) {
    const ptrdiff_t stride = w->stride[i + 1];
    const bool one_value = stride == 0 && !map->packed; /* converted once for the whole row */
    if (!one_value &&
        !fits(map->input[i].read_as, map->packed, map->input[i].tensor->dtype, stride, w->count))
      return false;
  }
  return true;
}

/* Whether all rows can go to the row function as they are. */
static bool ready(const heed__map *map, const heed__walk *w) {
  bool all = w->stride[0] == 1;
  for (int i = 0; i < map->count; i++)
    all = all &&
          fits(map->input[i].read_as, map->packed, map->input[i].tensor->dtype, w->stride[i + 1], w->count);
  return all;
}

/* For short rows: the work that all of them share is done once. */
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

/* The `rows` rows along the dimension across (1 without), a tile or a chunk at a time. */
static void map_group(const map_job *job, const heed__walk *w, int64_t rows, buffers *b) {
  const heed__map *map = job->map;
  const bool packed = w->stride[0] == 1 || w->count == 1;
  const int64_t most = job->across ? TILE_COLUMNS : packed && inputs_fit(map, w) ? w->count : HEED__CHUNK;
  const int64_t width = heed__min(w->count, most), height = job->across ? TILE / width : 1;
  heed__span in[HEED__MAP_INPUTS];
  for (int64_t column = 0; column < w->count; column += width) {
    const int64_t n = heed__min(w->count - column, width);
    for (int64_t row = 0; row < rows; row += height) {
      const int64_t lines = heed__min(rows - row, height);
      fetch_tiles(job, w, row, lines, column, n, b);
      for (int64_t line = 0; line < lines; line++) {
        char *out = element_in(w, 0, map->result, job->across, row + line, column);
        fetch_inputs(map, w, job->across, row + line, column, n, line, in, b);
        map->row(map->user, packed ? (void *)out : b->out, in, (size_t)n);
        if (!packed) heed__copy_row(map->result, out, w->stride[0], map->result, b->out, 1, n);
      }
    }
  }
}

static void map_part(void *user, heed__walk *w, int worker) {
  const map_job *job = user;
  int64_t rows = 1;
  buffers b;
  (void)worker;
  if (!job->across && ready(job->map, w)) {
    map_ready_rows(job->map, w);
    return;
  }
  if (job->across) {
    rows = w->size[job->across];
    w->size[job->across] = 1; /* map_group does all of this dimension */
  }
  do map_group(job, w, rows, &b);
  while (heed__walk_next(w));
}

/* False if a cancellation check stops it. */
static bool map_all_rows(heed_context *ctx, const heed__map *map, const heed_tensor *out) {
  const heed_tensor *operands[HEED__MAP_INPUTS + 1] = {out};
  for (int i = 0; i < map->count; i++) operands[i + 1] = map->input[i].tensor;
  heed__walk w;
  if (!heed__walk_begin(&w, out->ndim, out->shape, map->count + 1, operands)) return true;
  heed__walk_turn(&w, operands);
  map_job job = {map, heed__kernels_of(ctx), dimension_across(map, &w)};
  return heed__walk_divided_across(ctx, &w, HEED__CHUNK, job.across, 1, map_part, &job);
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
  if (!map_all_rows(ctx, map, result.tensor)) status = heed__stopped(ctx, map->function);
  return heed__result_end(ctx, &result, status);
}

heed_status heed__map_all(heed_context *ctx, const heed__map *map, bool *out) {
  int ndim;
  int64_t shape[HEED_MAX_DIMS];
  const heed_status status = map_shape(ctx, map, &ndim, shape);
  if (status != HEED_OK) return status;
  /* Operand 0 stands for the result, which is not stored. */
  heed__number nothing;
  const heed_tensor *operands[HEED__MAP_INPUTS + 1] = {heed__number_tensor(&nothing, heed_boolean(false))};
  for (int i = 0; i < map->count; i++) operands[i + 1] = map->input[i].tensor;
  double elements = map->count;
  for (int d = 0; d < ndim; d++) elements *= (double)shape[d];
  const heed_status charged = heed__charge(ctx, map->function, elements + 1);
  if (charged != HEED_OK) return charged;
  heed__walk w;
  heed__span in[HEED__MAP_INPUTS];
  buffers b;
  bool all = true;
  for (bool more = heed__walk_begin(&w, ndim, shape, map->count + 1, operands); more && all;
       more = heed__walk_next(&w)) {
    for (int64_t first = 0; first < w.count && all; first += HEED__CHUNK) {
      const int64_t n = heed__min(w.count - first, HEED__CHUNK);
      const uint8_t *holds = (const uint8_t *)b.out;
      fetch_inputs(map, &w, 0, 0, first, n, 0, in, &b);
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
