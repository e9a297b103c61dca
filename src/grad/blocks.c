/* Work on all elements of many tensors, in blocks that threads share. */
#include "grad.h"

void heed__blocks_divide(heed__blocks *blocks, int64_t count, const heed_tensor *const *x, int64_t *first) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; i++) {
    first[i] = total;
    total += x[i]->numel / HEED__BLOCK_ELEMENTS + (x[i]->numel % HEED__BLOCK_ELEMENTS > 0);
  }
  first[count] = total;
  *blocks = (heed__blocks){.count = count, .first = first};
}

/* The tensor to which a block belongs: the last one whose first block is not later. */
static int64_t block_owner(const heed__blocks *blocks, int64_t block) {
  int64_t low = 0, high = blocks->count - 1;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (blocks->first[middle] <= block)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

static void run_block(const heed__block_task *task, int64_t block, int64_t i) {
  const int64_t first = (block - task->blocks->first[i]) * HEED__BLOCK_ELEMENTS,
                left = task->x[i]->numel - first;
  task->work(task->user, block, i, first, left < HEED__BLOCK_ELEMENTS ? left : HEED__BLOCK_ELEMENTS);
}

static void block_task(void *argument, int64_t block, int worker) {
  const heed__block_task *task = argument;
  (void)worker;
  run_block(task, block, block_owner(task->blocks, block));
}

bool heed__blocks_run(heed_context *ctx, heed__block_task *task, bool in_order) {
  const heed__blocks *blocks = task->blocks;
  int64_t elements = 0;
  for (int64_t i = 0; i < blocks->count; i++) elements += task->x[i]->numel;
  if (!in_order && heed__workers(ctx) > 1 && elements > 2 * HEED__BLOCK_ELEMENTS)
    return heed__parallel(ctx, blocks->first[blocks->count], block_task, task);
  for (int64_t i = 0; i < blocks->count; i++) {
    for (int64_t block = blocks->first[i]; block < blocks->first[i + 1]; block++) {
      if (heed__is_due(&ctx->pace)) return false;
      run_block(task, block, i);
    }
  }
  return !heed__is_due(&ctx->pace);
}

void heed__move_elements(const heed_tensor *x, int64_t first, int64_t n, float *buffer, bool back) {
  int64_t at[HEED_MAX_DIMS], offset = 0, rest = first;
  float *const data = (float *)(void *)x->data;
  for (int d = x->ndim - 1; d >= 0; d--) {
    at[d] = rest % x->shape[d];
    rest /= x->shape[d];
    offset += at[d] * x->stride[d];
  }
  for (int64_t i = 0; i < n; i++) {
    if (back)
      data[offset] = buffer[i];
    else
      buffer[i] = data[offset];
    for (int d = x->ndim - 1; d >= 0; d--) {
      offset += x->stride[d];
      if (++at[d] < x->shape[d]) break;
      offset -= x->stride[d] * x->shape[d];
      at[d] = 0;
    }
  }
}
