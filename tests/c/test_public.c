/* Every function of heed.h with arguments that are none: NULL, objects of another context, numbers out of
 * every range. Nothing may crash or leak; what is not allowed is refused with ARGUMENT and a message that
 * names the argument. The calls are written by scripts/dev/public_calls.lua from heed.h itself. */
#define _DEFAULT_SOURCE /* mkdtemp */

#include "support.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

/* ---- On what ---- */

/* A context with an object of each kind. */
typedef struct world {
  test_memory memory;
  heed_context *ctx;
  heed_tensor *x, *mask, *whole, *whole_row, *whole_one, *row, *narrow, *scale, *weight;
  const heed_tensor *list[2];
  heed_generator *g;
  heed_module *m, *dropout, *linear;
  heed_kv_cache *cache;
  heed_archive *archive;
  heed_steps *steps; /* done */
  heed_attention_config config;
  heed_rope_config rope;
} world;

static const int64_t sizes[HEED_MAX_DIMS] = {4, 4};
static const int dims[HEED_MAX_DIMS] = {1, 2};
static const char *const path = "/nowhere/at/all.safetensors"; /* no such folder */
static const char *const texts[] = {"one", "two"};
static union {
  int64_t aligned;
  unsigned char bytes[HEED_GENERATOR_STATE_BYTES];
  char text[HEED_GENERATOR_STATE_BYTES];
} block;

static void open_world(world *w, const char *file) {
  *w = (world){.memory = {0}};
  heed_allocator allocator = test_allocator(&w->memory);
  assert_ok(heed_context_new(&allocator, &w->ctx));
  heed_context *ctx = w->ctx;
  assert_ok(heed_uniform(ctx, NULL, 0, 1, 2, sizes, &w->x));
  assert_ok(heed_full(ctx, HEED_BOOL, 2, sizes, heed_boolean(true), &w->mask));
  assert_ok(heed_full(ctx, HEED_INT64, 2, sizes, heed_integer(1), &w->whole));
  assert_ok(heed_full(ctx, HEED_INT64, 1, sizes, heed_integer(1), &w->whole_row));
  assert_ok(heed_full(ctx, HEED_INT64, 1, SHAPE(1), heed_integer(1), &w->whole_one));
  assert_ok(heed_uniform(ctx, NULL, 0, 1, 1, sizes, &w->row));
  assert_ok(heed_uniform(ctx, NULL, 0, 1, 2, sizes, &w->weight));
  assert_ok(heed_quantize_int8(ctx, w->x, &w->narrow, &w->scale));
  w->list[0] = w->list[1] = w->x;
  assert_ok(heed_generator_new(ctx, 1, &w->g));
  heed_attention_config_init(&w->config, sizeof w->config);
  heed_rope_config_init(&w->rope, sizeof w->rope);
  w->config.d_in = w->config.d_out = w->config.context_length = 4;
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &w->config, &w->m));
  assert_ok(heed_dropout_new(ctx, 0.5, &w->dropout));
  assert_ok(heed_linear_new(ctx, NULL, 4, 4, true, &w->linear));
  assert_ok(heed_kv_cache_new(w->m, NULL, &w->cache));
  assert_ok(heed_load_archive(ctx, file, &w->archive));
  bool done = false;
  assert_ok(heed_steps_new(w->m, w->x, NULL, true, &w->steps));
  assert_ok(heed_steps_advance(w->steps, (double)INFINITY, &done));
  assert_true(done);
}

static void close_world(world *w) {
  heed_tensor *const all[] = {w->x,   w->mask,   w->whole, w->whole_row, w->whole_one,
                              w->row, w->narrow, w->scale, w->weight};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
  heed_generator_free(w->g);
  heed_module_release(w->m);
  heed_module_release(w->dropout);
  heed_module_release(w->linear);
  heed_kv_cache_free(w->cache);
  heed_archive_free(w->archive);
  heed_steps_free(w->steps);
  heed_context_free(w->ctx);
}

/* ---- The calls ---- */

typedef struct trial {
  int null, foreign, garbage; /* the argument, from 1, that is so; 0: none */
  int turn;                   /* which garbage */
  heed_status status;
  bool zero; /* what a function without a status returned */
} trial;

typedef enum kind { FIXED, A_NUMBER, POINTER, POINTER_OR_NULL, OBJECT, OBJECT_OR_NULL } kind;

typedef struct function {
  const char *name;
  void (*call)(trial *t, world *mine, world *other);
  bool has_status;
  int count;
  struct {
    const char *name;
    kind kind;
  } argument[10];
} function;

#define TURNS 4
static int64_t garbage_number(int turn) {
  static const int64_t numbers[TURNS] = {-1, INT64_MAX, INT64_MIN, 99};
  return numbers[turn];
}
static double garbage_double(int turn) {
  const double numbers[TURNS] = {(double)NAN, (double)INFINITY, -1e300, 1e300};
  return numbers[turn];
}
static heed_scalar garbage_scalar(int turn) {
  heed_scalar value = heed_integer(garbage_number(turn));
  if (turn == 3) value.dtype = (heed_dtype)99;
  return value;
}

#define PICK(i, good, other) (t->null == (i) ? NULL : t->foreign == (i) ? (other) : (good))
#define NUMBER(i, type, good)                                                                                \
  (t->garbage == (i) ? (type)(sizeof(type) == sizeof(int) && t->turn == 1   ? INT_MAX                        \
                              : sizeof(type) == sizeof(int) && t->turn == 2 ? INT_MIN                        \
                                                                            : garbage_number(t->turn))       \
                     : (type)(good))
#define COUNT(i, good)  (t->garbage == (i) ? -1 - t->turn : (good)) /* more would be a lie about a list */
#define DOUBLE(i, good) (t->garbage == (i) ? garbage_double(t->turn) : (good))
#define SCALAR(i)       (t->garbage == (i) ? garbage_scalar(t->turn) : heed_integer(1))

#include "public_calls.h"

/* ---- The trials ---- */

static const char *file; /* of two tensors, for archives */

static void check(const function *f, const trial *t, const char *what, int at, const char *message,
                  const char *wanted) {
  const char *argument = f->argument[at - 1].name;
  if (!f->has_status) {
    if (t->null == at && !t->zero) fail_msg("%s gives something for %s = NULL", f->name, argument);
    return;
  }
  if (t->status != HEED_ARGUMENT)
    fail_msg("%s: %s is %s: %s, and not ARGUMENT", f->name, argument, what, heed_status_name(t->status));
  if (wanted == NULL) return;
  if (strstr(message, argument) == NULL || strstr(message, wanted) == NULL)
    fail_msg("%s: %s is %s: the message is '%s'", f->name, argument, what, message);
}

/* One call in worlds of its own. */
static void try_one(const function *f, trial t) {
  world mine, other;
  char message[HEED__MESSAGE];
  open_world(&mine, file);
  open_world(&other, file);
  t.status = HEED_OK;
  t.zero = true;
  f->call(&t, &mine, &other);
  snprintf(message, sizeof message, "%s", heed_message(mine.ctx));
  if (t.null > 0) {
    const kind k = f->argument[t.null - 1].kind;
    /* a message is on the context of the first argument, where that is one or has one */
    const bool told = f->argument[0].kind == OBJECT || strcmp(f->argument[0].name, "ctx") == 0;
    if (k == POINTER || k == OBJECT)
      check(f, &t, "NULL", t.null, message, told && t.null > 1 ? "missing" : NULL);
  } else if (t.foreign > 0) {
    check(f, &t, "of another context", t.foreign, message, "another context");
  } else if (t.garbage == 0 && f->has_status && t.status == HEED_ARGUMENT) {
    fail_msg("%s refuses good arguments: %s", f->name, message);
  } else if (t.status != HEED_OK && message[0] == '\0' && mine.ctx != NULL && f->count > 0 &&
             strcmp(f->argument[0].name, "ctx") == 0) {
    fail_msg("%s fails with %s and says nothing", f->name, heed_status_name(t.status));
  }
  close_world(&mine);
  close_world(&other);
  if (mine.memory.blocks != 0 || other.memory.blocks != 0)
    fail_msg("%s leaks (NULL %d, foreign %d, garbage %d)", f->name, t.null, t.foreign, t.garbage);
}

static void try_each(void (*with)(const function *f, int argument)) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    for (int a = 1; a <= functions[i].count; a++) with(&functions[i], a);
  }
}

static void without(const function *f, int argument) {
  if (f->argument[argument - 1].kind >= POINTER) try_one(f, (trial){.null = argument});
}
static void with_foreign(const function *f, int argument) {
  if (f->has_status && f->argument[argument - 1].kind >= OBJECT) try_one(f, (trial){.foreign = argument});
}
static void with_garbage(const function *f, int argument) {
  if (f->argument[argument - 1].kind != A_NUMBER) return;
  for (int turn = 0; turn < TURNS; turn++) try_one(f, (trial){.garbage = argument, .turn = turn});
}

static void every_function_takes_good_arguments(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) try_one(&functions[i], (trial){0});
}

static void every_function_refuses_null(void **state) {
  (void)state;
  try_each(without);
}

static void every_function_refuses_objects_of_another_context(void **state) {
  (void)state;
  try_each(with_foreign);
}

static void every_function_survives_numbers_out_of_every_range(void **state) {
  (void)state;
  try_each(with_garbage);
}

/* ---- The names in messages ---- */

/* The beginning of the context's message up to the colon: the function's name. */
static void name_in(char name[HEED__MESSAGE], heed_context *ctx) {
  snprintf(name, HEED__MESSAGE, "%.*s", (int)strcspn(heed_message(ctx), ":"), heed_message(ctx));
}

/* The name by which f refuses NULL; false if it refuses none with a message. */
static bool own_name(const function *f, char name[HEED__MESSAGE]) {
  for (int a = 2; a <= f->count; a++) {
    if (f->argument[a - 1].kind != POINTER && f->argument[a - 1].kind != OBJECT) continue;
    world mine, other;
    trial t = {.null = a};
    open_world(&mine, file);
    open_world(&other, file);
    f->call(&t, &mine, &other);
    name_in(name, mine.ctx);
    close_world(&mine);
    close_world(&other);
    return name[0] != '\0';
  }
  return false;
}

/* Whether a call may also fail under this name: a module's class, of a module or a part of it that is made or
 * run, or what reads archives, whose tensors come later. */
static bool is_part(const char *name) {
  return (name[0] >= 'A' && name[0] <= 'Z') || strcmp(name, "load") == 0;
}

/* Calls f with good arguments, its allocation number `failing` failing, or cancelled if that is 0; false if
 * it does not come so far. */
static bool fails_under_its_name(const function *f, int failing, const char *wanted) {
  world mine, other;
  trial t = {0};
  char name[HEED__MESSAGE];
  open_world(&mine, file);
  open_world(&other, file);
  if (failing > 0)
    mine.memory.fail_at = mine.memory.calls + failing;
  else
    heed_cancel(mine.ctx);
  f->call(&t, &mine, &other);
  const bool failed = t.status == HEED_MEMORY || t.status == HEED_CANCELLED;
  if (failed) {
    name_in(name, mine.ctx);
    if (strcmp(name, wanted) != 0 && !is_part(name))
      fail_msg("%s says '%s' and not '%s'", f->name, heed_message(mine.ctx), wanted);
  }
  heed_clear_cancel(mine.ctx);
  close_world(&mine);
  close_world(&other);
  return failed;
}

static void messages_begin_with_the_name_of_the_function_that_was_called(void **state) {
  char wanted[HEED__MESSAGE];
  (void)state;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    const function *f = &functions[i];
    if (!f->has_status || f->count == 0 || !own_name(f, wanted)) continue;
    fails_under_its_name(f, 0, wanted);
    for (int failing = 1; fails_under_its_name(f, failing, wanted);) failing++;
  }
}

/* ---- What options point to ---- */

static void options_with_objects_of_another_context_are_refused(void **state) {
  (void)state;
  world mine, other;
  heed_tensor *y = NULL;
  open_world(&mine, file);
  open_world(&other, file);
#define REFUSED(call, name, ...)                                                                             \
  assert_fails(mine.ctx, call, HEED_ARGUMENT, name " is of another context; all must be of one")
#define FORWARD(field, value)                                                                                \
  REFUSED(heed_module_forward(                                                                               \
              mine.m, mine.x,                                                                                \
              &(heed_forward_options){.size = sizeof(heed_forward_options), .field = other.value}, &y,       \
              NULL),                                                                                         \
          "MultiHeadAttention: " #field)
  FORWARD(attn_mask, mask);
  FORWARD(key_padding_mask, mask);
  FORWARD(generator, g);
  FORWARD(kv_lengths, whole_one);
  FORWARD(key, x);
  FORWARD(value, x);
  FORWARD(cache, cache);
#define ATTEND(field, value)                                                                                 \
  REFUSED(heed_scaled_dot_product_attention(                                                                 \
              mine.ctx, mine.x, mine.x, mine.x,                                                              \
              &(heed_attention_options){.size = sizeof(heed_attention_options), .field = other.value}, &y,   \
              NULL),                                                                                         \
          "scaled_dot_product_attention: " #field)
  ATTEND(attn_mask, mask);
  ATTEND(generator, g);
  ATTEND(kv_lengths, whole_one);
  ATTEND(past_key, x);
  ATTEND(past_value, x);
  ATTEND(alibi_slopes, row);
  ATTEND(sinks, row);
  assert_null(y);
  close_world(&mine);
  close_world(&other);
}

static void two_results_in_one_place_are_refused(void **state) {
  (void)state;
  world w;
  heed_tensor *y = NULL, *z = NULL;
  open_world(&w, file);
#define ONE_PLACE(name, call)                                                                                \
  assert_fails(w.ctx, call, HEED_ARGUMENT,                                                                   \
               name ": two results have the same address; each must have its own");                          \
  assert_null(y)
  ONE_PLACE("max", heed_max(w.ctx, w.x, 1, false, &y, &y));
  ONE_PLACE("min", heed_min(w.ctx, w.x, 0, false, &y, &y));
  ONE_PLACE("sort", heed_sort(w.ctx, w.x, 1, false, &y, &y));
  ONE_PLACE("topk", heed_topk(w.ctx, w.x, 2, 1, true, &y, &y));
  ONE_PLACE("quantize_int8", heed_quantize_int8(w.ctx, w.x, &y, &y));
  ONE_PLACE("head", heed_module_head(w.m, 1, &y, &z, &y));
  assert_null(z);
  z = w.whole;
  y = w.whole;
  assert_int_equal(heed_sort(w.ctx, w.whole, 1, false, &y, &z), HEED_ARGUMENT); /* one tensor */
  assert_int_equal(heed_module_head(w.m, 1, &y, &z, &w.x), HEED_ARGUMENT);
  close_world(&w);
}

/* ---- Around all of them ---- */

static int write_file(void **state) {
  static char folder[] = "/tmp/heed_public_XXXXXX", name[64];
  heed_context *ctx = NULL;
  heed_tensor *x = NULL;
  (void)state;
  if (mkdtemp(folder) == NULL) return -1;
  snprintf(name, sizeof name, "%s/two.safetensors", folder);
  file = name;
  if (heed_context_new(NULL, &ctx) != HEED_OK || heed_eye(ctx, HEED_FLOAT32, 2, 2, &x) != HEED_OK) return -1;
  const heed_tensor *const both[] = {x, x};
  const heed_status status = heed_save_archive(ctx, file, 2, texts, both, 1, texts);
  heed_tensor_free(x);
  heed_context_free(ctx);
  return status == HEED_OK ? 0 : -1;
}

static int remove_file(void **state) {
  char folder[64];
  (void)state;
  snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(file, '/') - file), file);
  return remove(file) == 0 ? rmdir(folder) : -1;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_function_takes_good_arguments),
      cmocka_unit_test(every_function_refuses_null),
      cmocka_unit_test(every_function_refuses_objects_of_another_context),
      cmocka_unit_test(every_function_survives_numbers_out_of_every_range),
      cmocka_unit_test(messages_begin_with_the_name_of_the_function_that_was_called),
      cmocka_unit_test(options_with_objects_of_another_context_are_refused),
      cmocka_unit_test(two_results_in_one_place_are_refused),
  };
  return cmocka_run_group_tests_name("the public functions", tests, write_file, remove_file);
}
