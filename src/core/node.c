/* Nodes and leaves: their memory and their life. */
#include "core.h"

#include <assert.h>
#include <string.h>

/* ---- Nodes ---- */

#define ALIGNED(bytes) (((bytes) + 15) / 16 * 16)

/* Three inputs and a result of 16 dimensions need 2 KB. */
#define SPARE_BYTES ((size_t)4096)

heed_status heed__spare_make(heed_context *ctx, const char *function) {
  if (ctx->spare != NULL) return HEED_OK;
  ctx->spare = heed__allocate(ctx, SPARE_BYTES);
  return ctx->spare != NULL ? HEED_OK : heed__fail_memory(ctx, function, SPARE_BYTES);
}

void heed__spare_free(heed_context *ctx) {
  heed__release(ctx, ctx->spare);
  ctx->spare = NULL;
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
  char *block = heed__allocate(ctx, bytes);
  if (block == NULL && bytes <= SPARE_BYTES) {
    block = ctx->spare;
    ctx->spare = NULL;
  }
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

heed__leaf *heed__leaf_of(const heed_tensor *x) {
  if (x->node != NULL || x->storage == NULL) return NULL;
  if (x->leaf != NULL || !x->parameter) return x->leaf;
  for (heed__leaf *leaf = x->storage->leaves; leaf != NULL; leaf = leaf->next) {
    const size_t bytes = (size_t)x->ndim * sizeof(*x->shape);
    if (leaf->data == x->data && leaf->ndim == x->ndim && memcmp(leaf->dims, x->shape, bytes) == 0 &&
        memcmp(leaf->dims + x->ndim, x->stride, bytes) == 0)
      return leaf;
  }
  return NULL;
}

/* A leaf with one reference. */
static heed_status new_leaf(heed_context *ctx, const char *function, const heed_tensor *x, heed__leaf **out) {
  const size_t dims = (size_t)x->ndim * sizeof(*x->shape);
  heed__leaf *leaf = heed__allocate(ctx, sizeof(*leaf) + 2 * dims);
  if (leaf == NULL) return heed__fail_memory(ctx, function, sizeof(*leaf) + 2 * dims);
  *leaf = (heed__leaf){.references = 1, .data = x->data, .ndim = x->ndim};
  memcpy(leaf->dims, x->shape, dims);
  memcpy(leaf->dims + x->ndim, x->stride, dims);
  leaf->wants = x->parameter && x->dtype == HEED_FLOAT32;
  leaf->node = heed__node_new(ctx, 0, 1, 0, 0, 0);
  if (leaf->node == NULL) {
    heed__release(ctx, leaf);
    return heed__fail_memory(ctx, function, sizeof(*leaf->node));
  }
  leaf->node->keeps_gradient = true;
  *out = leaf;
  return HEED_OK;
}

heed_status heed__leaf_make(heed_context *ctx, const char *function, const heed_tensor *x, heed__leaf **out) {
  *out = heed__leaf_of(x);
  if (*out != NULL) return HEED_OK;
  assert(x->parameter);
  const heed_status status = new_leaf(ctx, function, x, out);
  if (status) return status;
  (*out)->next = x->storage->leaves;
  x->storage->leaves = *out;
  return HEED_OK;
}

heed_status heed__leaf_own(heed_context *ctx, const char *function, heed_tensor *x, heed__leaf **out) {
  assert(x->node == NULL);
  if (x->parameter && x->leaf == NULL) {
    const heed_status status = heed__leaf_make(ctx, function, x, out);
    if (status) return status;
    x->leaf = *out;
    x->leaf->references++;
  } else if (x->leaf == NULL) {
    const heed_status status = new_leaf(ctx, function, x, &x->leaf);
    if (status) return status;
  }
  *out = x->leaf;
  return HEED_OK;
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
