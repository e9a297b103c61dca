/* The arguments of calls whose allocations fail in turn, and snapshots of them. */
#ifndef HEED_TEST_FAILING_FIXTURE_H
#define HEED_TEST_FAILING_FIXTURE_H

#include "support.h"

/* ---- Arguments of the calls ---- */

#define F    f->ctx
#define SIDE 8
#define LONG 1100 /* more rows than fit into buffers on the stack */

typedef struct fixture {
  test_memory memory;
  heed_context *ctx;
  heed_generator *generator;
  heed_tensor *square, *flipped; /* [8, 8] and its transpose on the same elements */
  heed_tensor *whole, *mask;     /* int64 with values 1…8, bool; [8, 8] */
  heed_tensor *row, *indices;    /* [8] float32, int64 */
  heed_tensor *lengths, *rows;   /* int64 [2]: 3 and 5; their tokens, float32 [8, 2, 8] */
  heed_tensor *tall, *batch;     /* [1100, 2], [2, 8, 8] */
  heed_tensor *thin, *bools;     /* [8, 1] expanded to [8, 8]; bool [2500] */
  heed_tensor *queries;          /* [1, 2500, 1]: longer rows than attention's buffers on the stack */
  heed_tensor *weight, *scale;   /* square in int8 */
  heed_tensor *heads, *rates;    /* [1, 2, 20, 4], [1, 2, 20] below 0 */
  heed_module *linear, *dropout, *self, *causal, *columns, *wrapper, *multi;
  unsigned char state[HEED_GENERATOR_STATE_BYTES];
} fixture;

#define TENSORS 16
#define MODULES 7
static heed_tensor **tensors_of(fixture *f, int i) {
  heed_tensor **const all[TENSORS] = {&f->square, &f->whole, &f->mask,    &f->row,     &f->indices, &f->tall,
                                      &f->batch,  &f->bools, &f->thin,    &f->queries, &f->weight,  &f->scale,
                                      &f->heads,  &f->rates, &f->lengths, &f->rows};
  return all[i];
}

static void open_fixture(fixture *f) {
  *f = (fixture){.memory = {0}};
  heed_allocator allocator = test_allocator(&f->memory);
  heed_context *ctx = NULL;
  heed_tensor *column = NULL;
  assert_ok(heed_context_new(&allocator, &ctx));
  f->ctx = ctx;
  assert_ok(heed_generator_new(ctx, 3, &f->generator));
  assert_ok(heed_uniform(ctx, NULL, 0.1, 0.9, 2, SHAPE(SIDE, SIDE), &f->square));
  assert_ok(heed_transpose(ctx, f->square, 1, 2, &f->flipped));
  assert_ok(heed_randint(ctx, NULL, 1, SIDE, 2, SHAPE(SIDE, SIDE), &f->whole));
  assert_ok(heed_gt(ctx, f->square, f->flipped, &f->mask));
  assert_ok(heed_uniform(ctx, NULL, 0.1, 0.9, 1, SHAPE(SIDE), &f->row));
  assert_ok(heed_randperm(ctx, NULL, SIDE, &f->indices));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(LONG, 2), &f->tall));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, SIDE, SIDE), &f->batch));
  assert_ok(heed_full(ctx, HEED_BOOL, 1, SHAPE(2500), heed_boolean(true), &f->bools));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(SIDE, 1), &column));
  assert_ok(heed_expand(ctx, column, 2, SHAPE(SIDE, SIDE), &f->thin));
  heed_tensor_free(column);
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(1, 2500, 1), &f->queries));
  assert_ok(heed_quantize_int8(ctx, f->square, &f->weight, &f->scale));
  assert_ok(heed_normal(ctx, NULL, 0, 0.5, 4, SHAPE(1, 2, 20, 4), &f->heads));
  assert_ok(heed_uniform(ctx, NULL, -1, 0, 3, SHAPE(1, 2, 20), &f->rates));
  assert_ok(heed_range(ctx, HEED_INT64, heed_integer(3), heed_integer(5), heed_integer(2), &f->lengths));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(SIDE, 2, SIDE), &f->rows));
  heed_attention_config c;
  heed_attention_config_init(&c, sizeof c);
  c.d_in = c.d_out = SIDE;
  c.context_length = SIDE;
  c.dropout = 0.5;
  c.num_heads = 2;
  c.qkv_bias = true;
  assert_ok(heed_linear_new(ctx, NULL, SIDE, SIDE, true, &f->linear));
  assert_ok(heed_dropout_new(ctx, 0.5, &f->dropout));
  assert_ok(heed_self_attention_new(ctx, NULL, &c, &f->self));
  assert_ok(heed_causal_attention_new(ctx, NULL, &c, &f->causal));
  assert_ok(heed_multi_head_attention_wrapper_new(ctx, NULL, &c, &f->wrapper));
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &c, &f->multi));
  c.softmax_dim = 1;
  assert_ok(heed_causal_attention_new(ctx, NULL, &c, &f->columns));
  heed_generator_get_state(heed_default_generator(ctx), f->state);
}

static void close_fixture(fixture *f) {
  heed_module *const modules[MODULES] = {f->linear,  f->dropout, f->self, f->causal,
                                         f->columns, f->wrapper, f->multi};
  for (int i = 0; i < MODULES; i++) heed_module_release(modules[i]);
  for (int i = 0; i < TENSORS; i++) heed_tensor_free(*tensors_of(f, i));
  heed_tensor_free(f->flipped);
  heed_generator_free(f->generator);
  heed_context_free(f->ctx);
  assert_int_equal(f->memory.blocks, 0);
  assert_int_equal(f->memory.bytes, 0);
}

/* ---- Snapshots ---- */

typedef struct snapshot {
  char *data[TENSORS];
  size_t bytes[TENSORS];
} snapshot;

static void take(snapshot *s, fixture *f) {
  for (int i = 0; i < TENSORS; i++) {
    const heed__storage *storage = (*tensors_of(f, i))->storage;
    s->bytes[i] = storage->bytes;
    s->data[i] = malloc(storage->bytes);
    assert_non_null(s->data[i]);
    memcpy(s->data[i], storage->data, storage->bytes);
  }
}

static void restore(const snapshot *s, fixture *f) {
  for (int i = 0; i < TENSORS; i++) memcpy((*tensors_of(f, i))->storage->data, s->data[i], s->bytes[i]);
  assert_ok(heed_generator_set_state(heed_default_generator(f->ctx), f->state, sizeof f->state));
}

static void assert_same(const snapshot *s, fixture *f) {
  unsigned char state[HEED_GENERATOR_STATE_BYTES];
  for (int i = 0; i < TENSORS; i++)
    assert_memory_equal((*tensors_of(f, i))->storage->data, s->data[i], s->bytes[i]);
  heed_generator_get_state(heed_default_generator(f->ctx), state);
  assert_memory_equal(state, f->state, sizeof state);
}

static void drop(snapshot *s) {
  for (int i = 0; i < TENSORS; i++) free(s->data[i]);
}

#endif
