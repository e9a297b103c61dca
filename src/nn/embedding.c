/* Embedding: for each id, a row of the weight. */
#include "nn.h"

#include <stdio.h>
#include <string.h>

typedef struct embedding {
  heed_module base;
  int64_t num_embeddings, embedding_dim;
  int64_t padding_idx; /* 0: none */
} embedding;

static const heed__setting embedding_settings[] = {
    {"num_embeddings", HEED__SETTING_INTEGER, offsetof(embedding, num_embeddings), NULL},
    {"embedding_dim", HEED__SETTING_INTEGER, offsetof(embedding, embedding_dim), NULL},
    {"padding_idx", HEED__SETTING_INDEX, offsetof(embedding, padding_idx), NULL},
    {0},
};

static heed_status embedding_forward(heed_module *m, const heed_tensor *ids,
                                     const heed_forward_options *options, heed_tensor **out,
                                     heed_attention_taps *taps) {
  (void)options, (void)taps;
  return heed__embedding(m->context, m->class->name, ids, m->slots[0].parameter,
                         ((const embedding *)m)->padding_idx, out);
}

static void describe_embedding(const heed_module *m, char *text, size_t size) {
  const embedding *e = (const embedding *)m;
  const long long rows = e->num_embeddings, columns = e->embedding_dim, padding = e->padding_idx;
  if (padding > 0) {
    snprintf(text, size, "%lld, %lld, padding_idx=%lld", rows, columns, padding);
  } else {
    snprintf(text, size, "%lld, %lld", rows, columns);
  }
}

static heed_status resize_embedding(heed_module *m, const heed_tensor *weight) {
  embedding *e = (embedding *)m;
  if (weight->shape[0] < e->padding_idx) {
    return heed__fail(
        m->context, HEED_SHAPE,
        "Embedding: weight is [%lld, %lld]; its first size must be at least %lld, the padding_idx",
        (long long)weight->shape[0], (long long)weight->shape[1], (long long)e->padding_idx);
  }
  e->num_embeddings = weight->shape[0];
  e->embedding_dim = weight->shape[1];
  return HEED_OK;
}

static const heed__class embedding_class = {.name = "Embedding",
                                            .settings = embedding_settings,
                                            .storable = "weight",
                                            .forward = embedding_forward,
                                            .resize = resize_embedding,
                                            .describe = describe_embedding};

heed_status heed_embedding_new(heed_context *ctx, heed_generator *g, int64_t size, int64_t d,
                               int64_t padding_index, heed_module **out) {
  HEED__ENTER(ctx, "Embedding", out);
  HEED__MAY_ENTER(ctx, "Embedding", g);
  const int64_t shape[] = {size, d};
  heed_module *m = NULL;
  heed_status status;
  if ((status = heed__check_positive(ctx, embedding_class.name, "num_embeddings", size)) != HEED_OK)
    return status;
  if ((status = heed__check_positive(ctx, embedding_class.name, "embedding_dim", d)) != HEED_OK)
    return status;
  if (padding_index > size || padding_index < -size) {
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: padding_idx is %lld; it must be from 1 to %lld, or from -%lld to -1",
                      embedding_class.name, (long long)padding_index, (long long)size, (long long)size);
  }
  if (padding_index < 0) padding_index += size + 1;
  if ((status = heed__module_new(ctx, &embedding_class, sizeof(embedding), 0, &m)) != HEED_OK) return status;
  embedding *e = (embedding *)m;
  e->num_embeddings = size;
  e->embedding_dim = d;
  e->padding_idx = padding_index;
  const heed__new_entry weight = {HEED__WEIGHT, HEED__INIT_NORMAL, 0, 2, shape};
  if ((status = heed__module_finish(m, g, 1, &weight, out)) != HEED_OK) return status;
  const heed_tensor *made = m->slots[0].parameter;
  if (padding_index > 0 && !heed__is_placeholder(made)) {
    const size_t row = (size_t)d * sizeof(float);
    memset(made->data + (size_t)(padding_index - 1) * row, 0, row);
  }
  return HEED_OK;
}
