/* Nodes and leaves: their memory and their life. */
#include "core.h"

#include <assert.h>
#include <string.h>

/* ---- Nodes ---- */

#define ALIGNED(bytes) (((bytes) + 15) / 16 * 16)

/* A node of a write at 16 indices of 16 dimensions needs 7 KB; a leaf of 16 dimensions and its node less than
 * 400 bytes each. */
static const size_t spare_bytes[HEED__SPARES] = {8192, 512, 512};

heed_status heed__spare_make(heed_context *ctx, const char *function) {
  for (int i = 0; i < HEED__SPARES; i++) {
    if (ctx->spare[i] != NULL) continue;
    ctx->spare[i] = heed__allocate(ctx, spare_bytes[i]);
    if (ctx->spare[i] == NULL) return heed__fail_memory(ctx, function, spare_bytes[i]);
  }
  return HEED_OK;
}

void heed__spare_free(heed_context *ctx) {
  for (int i = 0; i < HEED__SPARES; i++) {
    heed__release(ctx, ctx->spare[i]);
    ctx->spare[i] = NULL;
  }
}

/* New memory, or a spare block. */
static void *allocate_or_spare(heed_context *ctx, size_t bytes) {
  void *block = heed__allocate(ctx, bytes);
  for (int i = HEED__SPARES - 1; block == NULL && i >= 0; i--) {
    if (bytes > spare_bytes[i]) continue;
    block = ctx->spare[i];
    if (block != NULL) ctx->spare[i] = NULL;
  }
  return block;
}

heed__node *heed__node_new(heed_context *ctx, int inputs, int outputs, int saved, int dims, size_t values) {
  assert(inputs >= 0 && outputs > 0 && saved >= 0 && dims >= 0);
  const size_t at_inputs = ALIGNED(sizeof(heed__node)),
               at_pending = at_inputs + heed__array_bytes((uint64_t)inputs, sizeof(heed__node *)),
               at_grad = at_pending + heed__array_bytes((uint64_t)outputs, sizeof(heed_tensor *)),
               at_saved = at_grad + heed__array_bytes((uint64_t)outputs, sizeof(heed_tensor *)),
               at_dims = at_saved + heed__array_bytes((uint64_t)saved, sizeof(heed__saved)),
               at_values = ALIGNED(at_dims + heed__array_bytes((uint64_t)dims, sizeof(int64_t))),
               at_outputs = at_values + ALIGNED(values),
               bytes = at_outputs + heed__array_bytes((uint64_t)inputs, sizeof(uint32_t));
  char *block = allocate_or_spare(ctx, bytes);
  if (block == NULL) return NULL;
  memset(block, 0, bytes);
  heed__node *node = (heed__node *)(void *)block;
  node->context = ctx;
  node->references = 1;
  node->inputs = inputs;
  node->outputs = outputs;
  node->saved_count = saved;
  node->input = (heed__node **)(void *)(block + at_inputs);
  node->pending = (heed_tensor **)(void *)(block + at_pending);
  node->grad = (heed_tensor **)(void *)(block + at_grad);
  node->saved = (heed__saved *)(void *)(block + at_saved);
  int64_t *const first = (int64_t *)(void *)(block + at_dims);
  for (int i = 0; i < saved; i++) node->saved[i].dims = first; /* the caller divides them */
  node->values = block + at_values;
  node->input_output = (uint32_t *)(void *)(block + at_outputs);
  return node;
}

void heed__node_retain(heed__node *node) {
  node->references++;
}

void heed__node_spend(heed__node *node) {
  for (int i = 0; i < node->saved_count; i++) {
    heed__storage *storage = node->saved[i].storage;
    if (storage == NULL) continue;
    node->saved[i].storage = NULL;
    node->spent = true;
    heed__storage_drop(storage);
  }
  if (node->release_values != NULL) {
    node->spent = true;
    node->release_values(node->values);
  }
  node->release_values = NULL;
}

/* Frees one node; those that it alone referred to are put on the list of the context. */
static void node_free(heed__node *node) {
  heed__node_spend(node);
  for (int i = 0; i < node->inputs; i++) heed__node_drop(node->input[i]);
  for (int i = 0; i < node->outputs; i++) {
    heed_tensor_free(node->pending[i]);
    heed_tensor_free(node->grad[i]);
  }
  for (heed__tensor_hook *hook = node->hooks, *next; hook != NULL; hook = next) {
    next = hook->next;
    if (hook->release != NULL) hook->release(hook->user);
    heed__release(node->context, hook);
  }
  heed__release(node->context, node);
}

void heed__node_drop(heed__node *node) {
  if (node == NULL || --node->references > 0) return;
  heed_context *ctx = node->context;
  node->next = ctx->unreferenced;
  ctx->unreferenced = node;
  if (ctx->frees_nodes) return;
  ctx->references++; /* the last node may hold the last block of the context */
  ctx->frees_nodes = true;
  while (ctx->unreferenced != NULL) {
    heed__node *first = ctx->unreferenced;
    ctx->unreferenced = first->next;
    node_free(first);
  }
  ctx->frees_nodes = false;
  heed__context_drop(ctx);
}

void heed__set_node(heed_tensor *x, heed__node *node, uint32_t output) {
  heed__node *old = x->node;
  if (node != NULL) heed__node_retain(node);
  x->node = node;
  x->output = node != NULL ? output : 0;
  heed__node_drop(old);
}

/* ---- Leaves ---- */

static bool is_leaf_of(const heed__leaf *leaf, const heed_tensor *x) {
  if (leaf->data != x->data || leaf->ndim != x->ndim) return false;
  for (int d = 0; d < x->ndim; d++) {
    if (leaf->dims[d] != x->shape[d]) return false;
    if (x->shape[d] > 1 && leaf->dims[x->ndim + d] != x->stride[d]) return false;
  }
  return true;
}

heed__leaf *heed__leaf_of(const heed_tensor *x) {
  if (x->node != NULL || x->leaf != NULL) return x->node != NULL ? NULL : x->leaf;
  if (x->storage == NULL || !x->parameter) return NULL;
  for (heed__leaf *leaf = x->storage->leaves; leaf != NULL; leaf = leaf->next) {
    if (is_leaf_of(leaf, x)) return leaf;
  }
  return NULL;
}

static heed_status new_leaf(heed_context *ctx, const char *function, const heed_tensor *x, heed__leaf **out) {
  const size_t sizes = (size_t)x->ndim * sizeof(*x->shape), bytes = sizeof(heed__leaf) + 2 * sizes;
  heed__leaf *leaf = allocate_or_spare(ctx, bytes);
  if (leaf == NULL) return heed__fail_memory(ctx, function, bytes);
  *leaf = (heed__leaf){.references = 1, .data = x->data, .ndim = x->ndim};
  memcpy(leaf->dims, x->shape, sizes);
  memcpy(leaf->dims + x->ndim, x->stride, sizes);
  leaf->wants = x->parameter && x->dtype == HEED_FLOAT32;
  leaf->node = heed__node_new(ctx, 0, 1, 0, 0, 0);
  if (leaf->node == NULL) {
    heed__release(ctx, leaf);
    return heed__fail_memory(ctx, function, sizeof(*leaf->node));
  }
  heed__node_set_keeps(leaf->node, 0, true);
  *out = leaf;
  return HEED_OK;
}

heed_status heed__leaf_make(heed_context *ctx, const char *function, const heed_tensor *x, heed__leaf **out) {
  *out = heed__leaf_of(x);
  if (*out != NULL) return HEED_OK;
  assert(x->parameter);
  const heed_status status = new_leaf(ctx, function, x, out);
  if (status != HEED_OK) return status;
  (*out)->next = x->storage->leaves;
  x->storage->leaves = *out;
  return HEED_OK;
}

heed_status heed__leaf_begin(heed_context *ctx, const char *function, heed_tensor *x, heed__leaf **out) {
  if (x->leaf != NULL || x->parameter) return heed__leaf_make(ctx, function, x, out);
  const heed_status status = new_leaf(ctx, function, x, out);
  if (status == HEED_OK) x->leaf = *out;
  return status;
}

void heed__leaf_drop(heed__leaf *leaf) {
  if (leaf == NULL || --leaf->references > 0) return;
  heed_context *ctx = leaf->node->context;
  heed__node_drop(leaf->node);
  heed__release(ctx, leaf);
}

void heed__leaves_free(heed__storage *storage) {
  for (heed__leaf *leaf = storage->leaves, *next; leaf != NULL; leaf = next) {
    next = leaf->next;
    heed__leaf_drop(leaf);
  }
  storage->leaves = NULL;
}

/* ---- Writes in place ---- */

heed_status heed__written(heed_context *ctx, const char *function, const heed_tensor *x) {
  if (x->storage == NULL) return HEED_OK;
  if (ctx->recorder != NULL) {
    const heed_status status = ctx->recorder->check_write(ctx, function, x);
    if (status != HEED_OK) return status;
  }
  x->storage->version++;
  x->storage->written_by = function;
  return HEED_OK;
}
