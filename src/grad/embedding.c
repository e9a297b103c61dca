/* The gradient of an embedding: rows summed by id. The positions are sorted by id (by counting), so that each
 * row of the result is summed by one task, in the order of the positions. */
#include <inttypes.h>
#include <string.h>

#include "grad.h"

#define SUMMED_COLUMNS 128 /* columns that a task sums */
#define SUMMED_IDS     512 /* of the result, for a task */
#define SUM_TASKS      64  /* about as many ranges of rows, if there are fewer than SUMMED_IDS each */
#define SUMMED_ROWS    32  /* rows that are added in float32, before they are in double */
#define SUMS_CHECKED   ((int64_t)1 << 10) /* slices of rows between cancellation checks */

typedef struct embedding_job {
  const heed__kernels *kernels;
  const heed__pace *pace;
  const float *dy;      /* [count, d] */
  float *out;           /* [rows, d] */
  const int64_t *order; /* positions, those of id i at first[i - 1] … first[i] - 1 */
  const int64_t *first;
  int64_t rows, d, padding, slices, part; /* part: rows of a task */
} embedding_job;

/* out = the sum of the slices at these positions. */
static void sum_slices(const embedding_job *j, float *out, const int64_t *order, int64_t count,
                       int64_t column, int64_t width) {
  double total[SUMMED_COLUMNS];
  float sum[SUMMED_COLUMNS];
  const size_t n = (size_t)width;
  if (count > SUMMED_ROWS) memset(total, 0, sizeof total);
  for (int64_t done = 0; done < count; done += SUMMED_ROWS) {
    const int64_t some = heed__min(SUMMED_ROWS, count - done);
    float *to = count > SUMMED_ROWS ? sum : out;
    memcpy(to, j->dy + order[done] * j->d + column, n * sizeof *to);
    for (int64_t i = 1; i < some; i++)
      j->kernels->add(to, to, 1, j->dy + order[done + i] * j->d + column, 1, n);
    for (int64_t c = 0; count > SUMMED_ROWS && c < width; c++) total[c] += (double)sum[c];
    if (done % (SUMS_CHECKED * SUMMED_ROWS) == 0 && done > 0 && heed__is_due(j->pace)) return;
  }
  for (int64_t c = 0; count > SUMMED_ROWS && c < width; c++) out[c] = (float)total[c];
}

static void embedding_part(void *argument, int64_t task, int worker) {
  const embedding_job *j = argument;
  const int64_t column = task % j->slices * SUMMED_COLUMNS, width = heed__min(SUMMED_COLUMNS, j->d - column);
  const int64_t from = task / j->slices * j->part, to = heed__min(from + j->part, j->rows);
  int64_t since = 0;
  (void)worker;
  for (int64_t row = from; row < to; row++) {
    const int64_t count = row + 1 == j->padding ? 0 : j->first[row + 1] - j->first[row];
    float *out = j->out + row * j->d + column;
    if (count == 0) {
      memset(out, 0, (size_t)width * sizeof *out);
      continue;
    }
    sum_slices(j, out, j->order + j->first[row], count, column, width);
    if ((since += count) < SUMS_CHECKED) continue;
    since = 0;
    if (heed__is_due(j->pace)) return; /* which heed__parallel reports */
  }
}

/* Fills first [rows + 1] and order [count]. A host may have written other ids since the forward pass. */
static heed_status sort_positions(heed_context *ctx, const char *function, const int64_t *ids, int64_t count,
                                  int64_t rows, int64_t *first, int64_t *order) {
  heed_status status;
  memset(first, 0, (size_t)(rows + 1) * sizeof *first);
  for (int64_t i = 0; i < count; i++) {
    if (ids[i] < 1 || ids[i] > rows)
      return heed__fail(ctx, HEED_INDEX,
                        "%s: id %" PRId64 " is out of range for %" PRId64
                        " rows; the ids must stay as they were in the forward pass",
                        function, ids[i], rows);
    first[ids[i]]++; /* ids count from 1 */
    if (heed__is_due_at(&ctx->pace, i) && (status = heed__stopped(ctx, function)) != HEED_OK) return status;
  }
  for (int64_t row = 0; row < rows; row++) first[row + 1] += first[row];
  for (int64_t i = count - 1; i >= 0; i--) {
    order[--first[ids[i]]] = i;
    if (heed__is_due_at(&ctx->pace, i) && (status = heed__stopped(ctx, function)) != HEED_OK) return status;
  }
  /* first[i] is now where id i begins: one row further than wanted */
  memmove(first, first + 1, (size_t)rows * sizeof *first);
  first[rows] = count;
  return HEED_OK;
}

heed_status heed__embedding_gradient(heed_context *ctx, const char *function, const heed_tensor *ids,
                                     int64_t rows, int64_t padding_idx, const heed_tensor *dy,
                                     heed_tensor **dweight) {
  const int64_t d = dy->shape[dy->ndim - 1], count = ids->numel;
  const heed_tensor *packed_ids, *packed_dy;
  heed_tensor *made_ids = NULL, *made_dy = NULL, *made = NULL;
  int64_t *first = NULL;
  heed_status status = heed__as_contiguous(ctx, function, ids, HEED_INT64, &packed_ids, &made_ids);
  if (status == HEED_OK) status = heed__as_contiguous(ctx, function, dy, HEED_FLOAT32, &packed_dy, &made_dy);
  if (status == HEED_OK)
    status = heed__tensor_new(ctx, function, HEED_FLOAT32, 2, (const int64_t[]){rows, d}, &made);
  if (status != HEED_OK) goto done;
  if (made->numel > 0) {
    const size_t bytes = heed__array_bytes((uint64_t)rows + 1 + (uint64_t)count, sizeof *first);
    first = heed__allocate(ctx, bytes);
    if (first == NULL) {
      status = heed__fail_memory(ctx, function, bytes);
      goto done;
    }
    const int64_t *id = (const int64_t *)(const void *)packed_ids->data;
    status = sort_positions(ctx, function, id, count, rows, first, first + rows + 1);
    if (status != HEED_OK) goto done;
    embedding_job job = {.kernels = heed__kernels_of(ctx),
                         .pace = &ctx->pace,
                         .dy = (const float *)(const void *)packed_dy->data,
                         .out = (float *)(void *)made->data,
                         .order = first + rows + 1,
                         .first = first,
                         .rows = rows,
                         .d = d,
                         .padding = padding_idx,
                         .slices = heed__parts(d, SUMMED_COLUMNS),
                         .part = heed__min(SUMMED_IDS, heed__parts(rows, SUM_TASKS))};
    if (!heed__parallel(ctx, job.slices * heed__parts(rows, job.part), embedding_part, &job))
      status = heed__stopped(ctx, function);
  }
done:
  heed__release(ctx, first);
  heed_tensor_free(made_ids);
  heed_tensor_free(made_dy);
  if (status == HEED_OK)
    *dweight = made;
  else
    heed_tensor_free(made);
  return status;
}

heed_status heed__embedding_backward(heed__backward *b) {
  const int64_t *padding_idx = b->values;
  heed_tensor ids;
  if (!heed__backward_wants(b, 1)) return HEED_OK;
  return heed__embedding_gradient(b->ctx, b->function, heed__backward_input(b, 0, &ids),
                                  b->node->saved[1].dims[0], *padding_idx, b->dy[0], &b->dx[1]);
}
