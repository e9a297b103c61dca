/* Lua states in a host: several in one process, on several threads, and with failing allocators. */
#include "support.h"

#include <pthread.h>
#include <stdio.h>

#include "../../src/binding/compat.h"

/* ---- States with an allocator that counts ---- */

typedef struct lua_memory {
  int64_t blocks, bytes;
  int64_t calls;
  int64_t fail_from, fail_to; /* the calls that fail, counted from 1; 0: none */
} lua_memory;

static void *count_and_allocate(void *user, void *block, size_t old_bytes, size_t bytes) {
  lua_memory *memory = user;
  if (block == NULL) old_bytes = 0; /* Lua then passes the kind of object instead */
  if (bytes == 0) {
    memory->blocks -= block != NULL;
    memory->bytes -= (int64_t)old_bytes;
    free(block);
    return NULL;
  }
  if (bytes > old_bytes && ++memory->calls >= memory->fail_from && memory->calls <= memory->fail_to)
    return NULL;
  void *moved = realloc(block, bytes);
  if (moved == NULL) return NULL;
  memory->blocks += block == NULL;
  memory->bytes += (int64_t)bytes - (int64_t)old_bytes;
  return moved;
}

static int open_libraries(lua_State *L) {
  static const luaL_Reg libraries[] = {
      {LUA_GNAME, luaopen_base},       {LUA_TABLIBNAME, luaopen_table},    {LUA_STRLIBNAME, luaopen_string},
      {LUA_MATHLIBNAME, luaopen_math}, {LUA_COLIBNAME, luaopen_coroutine}, {LUA_DBLIBNAME, luaopen_debug},
      {"heed", luaopen_heed}};
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
    luaL_requiref(L, libraries[i].name, libraries[i].func, 1);
    lua_pop(L, 1);
  }
  return 0;
}

static lua_State *open_state(lua_memory *memory) {
  *memory = (lua_memory){.blocks = 0};
  lua_State *L = lua_newstate(count_and_allocate, memory);
  assert_non_null(L);
  lua_pushcfunction(L, open_libraries);
  assert_int_equal(lua_pcall(L, 0, 0, 0), LUA_OK);
  return L;
}

static void close_state(lua_State *L, const lua_memory *memory) {
  lua_close(L);
  assert_int_equal(memory->blocks, 0);
  /* LuaJIT reports wrong sizes of its blocks after a lack of memory */
  if (!LHEED_JIT) assert_int_equal(memory->bytes, 0);
}

/* Runs the code and returns its result as text, which the caller frees. */
static char *run(lua_State *L, const char *code) {
  if (luaL_dostring(L, code) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
  size_t length;
  const char *text = luaL_tolstring(L, -1, &length);
  char *copy = malloc(length + 1);
  assert_non_null(copy);
  memcpy(copy, text, length + 1);
  lua_settop(L, 0);
  return copy;
}

static void expect(lua_State *L, const char *code, const char *wanted) {
  char *text = run(L, code);
  assert_string_equal(text, wanted);
  free(text);
}

/* ---- One state, and two ---- */

static void opening_twice_gives_the_same_library(void **state) {
  (void)state;
  lua_memory memory;
  lua_State *L = open_state(&memory);
  for (int i = 0; i < 2; i++) {
    lua_pushcfunction(L, luaopen_heed);
    lua_call(L, 0, 1);
  }
  lua_getglobal(L, "heed");
  assert_true(lua_rawequal(L, 1, 2));
  assert_true(lua_rawequal(L, 2, 3));
  lua_pushcfunction(L, luaopen_heed_core);
  lua_call(L, 0, 1);
  lua_pushcfunction(L, luaopen_heed_core);
  lua_call(L, 0, 1);
  assert_true(lua_rawequal(L, 4, 5));
  close_state(L, &memory);
}

/* Whether the garbage collector runs; in 5.1 there is no other way to find out. */
static bool collector_runs(lua_State *L) {
  char *text = run(L, "local kept, most = {}, 0\n"
                      "for i = 1, 20000 do\n"
                      "  kept[1] = ('x'):rep(1000) .. i\n"
                      "  local taken = collectgarbage 'count'\n"
                      "  if taken < most then return true end\n"
                      "  most = taken\n"
                      "end\n"
                      "return false\n");
  const bool runs = strcmp(text, "true") == 0;
  free(text);
  return runs;
}

static void opening_does_not_change_the_garbage_collector(void **state) {
  (void)state;
  for (int stopped = 0; stopped <= 1; stopped++) {
    lua_memory memory = {.blocks = 0};
    lua_State *L = lua_newstate(count_and_allocate, &memory);
    assert_non_null(L);
    if (stopped) lua_gc(L, LUA_GCSTOP, 0);
    lua_pushcfunction(L, open_libraries);
    assert_int_equal(lua_pcall(L, 0, 0, 0), LUA_OK);
    assert_int_equal(collector_runs(L), !stopped);
    close_state(L, &memory);
  }
}

static void closing_frees_live_objects(void **state) {
  (void)state;
  lua_memory memory;
  lua_State *L = open_state(&memory);
  free(run(L,
           "x, m, g = heed.rand(100, 100), heed.nn.MultiHeadAttention(3, 4, 6, 0.5, 2), heed.Generator(1)\n"
           "y, info = m(heed.rand(2, 6, 3), {need_weights = true})\n"
           "views = x:split(1)\n"
           "seq = heed.nn.Sequential(heed.nn.Linear(3, 3), heed.nn.Dropout(0.5))\n"
           /* finalizers that use the library, before and after it is closed */
           "for i = 1, 10 do\n"
           "  setmetatable({}, {__gc = function()\n"
           "    kept = heed.ones(10) + 1\n"
           "    x:release()\n"
           "    seq(heed.rand(2, 3))\n"
           "    setmetatable({}, {__gc = function() kept = heed.ones(5) end})\n"
           "  end})\n"
           "end\n"
           "early = setmetatable({}, {__gc = function() heed.manual_seed(1) heed.ones(3) end})"));
  close_state(L, &memory);
}

static void tensors_come_from_the_allocator_of_the_state(void **state) {
  (void)state;
  lua_memory memory;
  lua_State *L = open_state(&memory);
  const int64_t before = memory.bytes;
  free(run(L, "x = heed.zeros(1000, 1000)"));
  assert_true(memory.bytes - before >= 4000000);
  free(run(L, "x:release()"));
  assert_true(memory.bytes - before < 100000);
  close_state(L, &memory);
}

static const char draws[] = "return heed.rand(3):to_string() .. heed.dropout(heed.ones(50)):to_string() .. "
                            "heed.randn(20):to_string()";

static void a_host_reaches_the_context_of_a_state(void **state) {
  (void)state;
  lua_memory memory, other_memory;
  lua_State *L = open_state(&memory), *other = open_state(&other_memory), *bare = luaL_newstate();
  heed_context *ctx = heed_lua_context(L);
  assert_non_null(ctx);
  assert_ptr_not_equal(ctx, heed_lua_context(other));
  assert_ptr_equal(ctx, heed_lua_context(lua_newthread(L)));
  assert_null(heed_lua_context(NULL));
  assert_null(heed_lua_context(bare));
  lua_settop(L, 0);
  const heed_limits limits = {.size = sizeof limits, .threads = 3, .no_files = true};
  assert_int_equal(heed_set_limits(ctx, &limits), HEED_OK);
  expect(L, "return heed.limit().threads .. ' ' .. tostring(heed.limit().files)", "3 false");
  expect(other, "return tostring(heed.limit().files)", "true");
  expect(L, "x = heed.ones(9, 9) return ''", "");
  heed_cancel(ctx);
  expect(L, "local ok, what = pcall(x.matmul, x, x) return what", "matmul: cancelled by heed_cancel");
  expect(L, "return tostring(x:matmul(x):sum():item() == 729)", "true");
  /* the time of a script's call ends with the script */
  const heed_limits timed = {.size = sizeof timed, .call_seconds = 0.001};
  assert_int_equal(heed_set_limits(ctx, &timed), HEED_OK);
  expect(L, "x = heed.ones(9, 9) return ''", "");
  for (const double end = heed_clock() + 0.002; heed_clock() < end;) continue;
  heed_tensor *y = NULL;
  assert_int_equal(heed_full(heed_lua_context(L), HEED_FLOAT32, 0, NULL, heed_number(1), &y), HEED_OK);
  heed_tensor_free(y);
  lua_close(bare);
  close_state(other, &other_memory);
  close_state(L, &memory);
}

static void two_states_are_independent(void **state) {
  (void)state;
  lua_memory memory[2];
  lua_State *a = open_state(&memory[0]), *b = open_state(&memory[1]);
  expect(a, "heed.manual_seed(7) return tostring(heed.rand(2))", "tensor([0.5349, 0.1988])");
  expect(b, "heed.manual_seed(7) return tostring(heed.rand(2))", "tensor([0.5349, 0.1988])");
  /* draws, seeds and streams are separate */
  free(run(a, "heed.manual_seed(1)"));
  free(run(b, "heed.manual_seed(1)"));
  free(run(b, "heed.set_dropout_stream 'mkl' heed.rand(1000) heed.manual_seed(99) heed.randn(3)"));
  char *here = run(a, draws);
  free(run(b, "heed.manual_seed(1) heed.set_dropout_stream 'native'"));
  char *there = run(b, draws);
  assert_string_equal(here, there);
  free(here);
  free(there);
  /* errors are separate */
  expect(a, "heed.set_printoptions{precision = 1} return tostring(heed.ones(1) / 2)", "tensor([0.5])");
  expect(b, "return tostring(heed.ones(1) / 2)", "tensor([0.5000])");
  expect(a, "heed.set_printoptions{profile = 'default'} return tostring(heed.ones(1) / 2)",
         "tensor([0.5000])");
  expect(a, "return select(2, pcall(heed.zeros, -1))",
         "zeros: the shape is [-1]; its sizes must not be negative");
  expect(b, "return select(2, pcall(heed.eye, 'x'))", "eye: n is a string ('x'); it must be an integer");
  /* one may be closed while the other continues */
  free(run(a, "x = heed.ones(3, 3)"));
  close_state(b, &memory[1]);
  expect(a, "return ('%.1f'):format(x:matmul(x):sum():item())", "27.0");
  close_state(a, &memory[0]);
}

/* ---- Threads ---- */

static const char lesson[] =
    "heed.manual_seed(5)\n"
    "local x = heed.rand(2, 16, 64)\n"
    "local mha = heed.nn.MultiHeadAttention(64, 64, 16, 0.5, 4)\n"
    "local wrapper = heed.nn.MultiHeadAttentionWrapper(64, 16, 16, 0.5, 4)\n"
    "local out = {}\n"
    "for i = 1, 5 do\n"
    "  local y, info = mha(x, {need_weights = true})\n"
    "  out[#out + 1] = y:to_string() .. info.weights:to_string() .. wrapper(x):softmax(-1):to_string()\n"
    "  out[#out + 1] = tostring(y) .. select(2, pcall(mha, heed.rand(2, 3)))\n"
    "  out[#out + 1] = heed.randn(100):sort():to_string() .. heed.rand(80, 90):matmul(heed.rand(90, "
    "70)):to_string()\n"
    "end\n"
    "local all, sum = table.concat(out), 0\n"
    "for i = 1, #all do sum = (sum * 31 + all:byte(i)) % 1000000007 end\n"
    "return #all .. ' bytes, ' .. sum";

#define THREADS 4

/* Opens a new state, runs the lesson in it and closes it. Returns the text. */
static void *learn(void *unused) {
  (void)unused;
  lua_State *L = luaL_newstate();
  char *text = NULL;
  if (L == NULL) return NULL;
  lua_pushcfunction(L, open_libraries);
  if (lua_pcall(L, 0, 0, 0) == LUA_OK && luaL_dostring(L, lesson) == LUA_OK) {
    size_t length;
    const char *result = lua_tolstring(L, -1, &length);
    text = malloc(length + 1);
    if (text != NULL) memcpy(text, result, length + 1);
  }
  lua_close(L);
  return text;
}

static void threads_compute_what_each_computes_alone(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  char *alone = learn(NULL);
  assert_non_null(alone);
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, learn, NULL), 0);
  for (int i = 0; i < THREADS; i++) {
    void *text = NULL;
    assert_int_equal(pthread_join(thread[i], &text), 0);
    assert_non_null(text);
    assert_string_equal(text, alone);
    free(text);
  }
  free(alone);
}

/* ---- Without memory ---- */

static const char script[] =
    "local nn = heed.nn\n"
    "local x = heed.tensor {{1, 2, 3}, {4, 5, 6}}\n"
    "local y = (x * 2 + heed.rand(3)):transpose(1, 2):matmul(x):softmax(-1)\n"
    "local first = y[1][2] + y[{2, 1}] + #y + y.shape[1]\n"
    "y[{ {1, 2}, {} }] = 0\n"
    "local parts, joined = y:split(2), heed.cat({y, y}, 2)\n"
    "local best, indices = joined:topk(2)\n"
    "local list, text, bytes = best:tolist(), tostring(joined), joined:to_string()\n"
    "assert(heed.from_string(bytes, 'float32', joined.shape):equal(joined))\n"
    "local mha = nn.MultiHeadAttention(3, 4, 6, 0.5, 2)\n"
    "local out, info = mha(heed.rand(1, 6, 3), {need_weights = true})\n"
    "local Own = nn.Module.class 'Own'\n"
    "function Own:init() self.part, self.w = nn.Linear(3, 3), nn.Parameter(heed.ones(2)) end\n"
    "function Own:forward(x) local z = self.part(x) return z end\n"
    "local model = nn.Sequential(Own(), nn.Dropout(0.1))\n"
    "model(x)\n"
    "model:load_state_dict(model:state_dict())\n"
    "local names = {}\n"
    "for name, p in model:named_parameters() do names[#names + 1] = name .. tostring(p.shape) end\n"
    "text = tostring(model) .. tostring(mha:split().heads[2].W_key.weight)\n"
    "assert(not pcall(mha, 'x') and not pcall(model, 'x') and not pcall(heed.tensor, {1, {2}}))\n"
    "for i, row in x:iter() do local t = row + i t:release() end\n"
    "local scope = (loadstring or load)('local t <close> = ...')\n" /* nil before 5.4 */
    "if scope then scope(x + 1) end\n"
    "x:release()\n"
    "return #names\n";

static int run_script(lua_State *L) {
  if (luaL_loadstring(L, script) != LUA_OK) return lua_error(L);
  lua_call(L, 0, 1);
  return 1;
}

/* Runs f while the n-th allocation (`single`), or all from the n-th on, fail. Returns whether f succeeded. */
static bool survives(lua_State *L, lua_memory *memory, lua_CFunction f, int64_t n, bool single) {
  lua_pushcfunction(L, f); /* allocates memory in 5.1 */
  memory->calls = 0;
  memory->fail_from = n;
  memory->fail_to = single ? n : INT64_MAX;
  const int status = lua_pcall(L, 0, 0, 0);
  memory->fail_from = memory->fail_to = 0;
  const char *message = status == LUA_OK ? NULL : lua_tostring(L, -1);
  if (status != LUA_OK && (message == NULL || strstr(message, "memory") == NULL)) fail_msg("%s", message);
  lua_settop(L, 0);
  return status == LUA_OK;
}

/* First single allocations fail, which Lua and heed retry after a collection; then all from the n-th on. */
static void scripts_survive_every_failing_allocation(void **state) {
  (void)state;
  for (int single = 0; single <= 1; single++) {
    lua_memory memory;
    lua_State *L = open_state(&memory);
    int64_t n = 0, failed = 0;
    do {
      failed += !survives(L, &memory, run_script, ++n, single == 1);
    } while (memory.calls >= n);
    assert_true(n > 400); /* LuaJIT makes the fewest allocations: 411 */
    assert_true(single == 1 || failed > 400);
    expect(L, "collectgarbage() return ('%.1f'):format(heed.ones(2):sum():item())", "2.0");
    close_state(L, &memory);
  }
}

/* All names in heed and heed.nn. Those of classes that are loaded on demand are in an upvalue of __pairs;
 * in 5.1 and LuaJIT opening loads everything. */
static const char listed_names[] =
    "local names, seen = {}, {}\n"
    "local function add(of)\n"
    "  for name in next, of do if not seen[name] then seen[name], names[#names + 1] = true, name end end\n"
    "end\n"
    "for _, of in ipairs {heed, heed.nn} do\n"
    "  add(of)\n"
    "  local _, late = debug.getupvalue(debug.getmetatable(of).__pairs, 2)\n"
    "  add(late or {})\n"
    "end\n"
    "table.sort(names)\n"
    "return table.concat(names, ' ')\n";
/* The same, which compiles all files in Lua. */
static const char loaded_names[] =
    "local names, seen = {}, {}\n"
    "for _, of in heed.pairs {heed, heed.nn} do\n"
    "  for name in heed.pairs(of) do\n"
    "    if not seen[name] then seen[name], names[#names + 1] = true, name end\n"
    "  end\n"
    "end\n"
    "table.sort(names)\n"
    "assert(tostring(heed.nn.Sequential(heed.nn.ModuleList())) == 'Sequential(\\n  (0): ModuleList()\\n)')\n"
    "return table.concat(names, ' ')\n";

/* Lua 5.1 compiles all files in opening, which takes ten times as many allocations: there the later ones are
 * sampled. */
static int64_t next_allocation(int64_t n) {
  return n + 1 + (LHEED_HAS_PAIRS ? 0 : nightly(0, (int)(n / 100)));
}

static void opening_survives_failing_allocations(void **state) {
  (void)state;
  bool opened = false;
  lua_memory undisturbed;
  lua_State *whole = open_state(&undisturbed);
  char *names = run(whole, listed_names);
  expect(whole, loaded_names, names);
  close_state(whole, &undisturbed);
  int64_t attempts = 0;
  for (int64_t n = 1; !opened; n = next_allocation(n)) {
    lua_memory memory = {.blocks = 0};
    lua_State *L = lua_newstate(count_and_allocate, &memory);
    assert_non_null(L);
    opened = survives(L, &memory, open_libraries, n, false);
    if (!opened) { /* a second attempt must succeed */
      lua_pushcfunction(L, open_libraries);
      if (lua_pcall(L, 0, 0, 0) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
    }
    assert_true(collector_runs(L));
    expect(L, listed_names, names);
    if (attempts++ % 16 == 0) expect(L, loaded_names, names);
    close_state(L, &memory);
  }
  free(names);
}

/* ---- The budget of work ---- */

typedef struct budget {
  heed_context *ctx;
  int64_t least, polls;
} budget;

/* Reads the limits of the context itself: builds with assertions refuse heed_get_limits here. */
static void note_what_is_left(void *user) {
  budget *b = user;
  b->polls++;
  if (b->ctx->limits.work < b->least) b->least = b->ctx->limits.work;
}

static void a_poll_function_never_sees_the_budget_switched_off(void **state) {
  static const char copies[] =
      "m = m or heed.nn.Linear(300, 300)  s = s or m:state_dict()  m:load_state_dict(s)\n"
      "n = n or heed.nn.Linear(300, 300):state_dict()  m:load_state_dict(n)\n"
      "return (pcall(function() return heed.softmaxx end)), m.weight:equal(n.weight)";
  lua_memory memory;
  lua_State *L = open_state(&memory);
  heed_context *ctx = heed_lua_context(L);
  budget b = {.ctx = ctx, .least = INT64_MAX};
  heed_limits limits = {.size = sizeof limits, .work = INT64_C(1) << 40, .call_seconds = 1000};
  (void)state;
  assert_ok(heed_set_limits(ctx, &limits));
  assert_ok(heed_set_poll(ctx, 0, note_what_is_left, &b));
  expect(L, copies, "true");
  assert_true(b.polls > 0);
  assert_true(b.least > limits.work - (INT64_C(1) << 30) && b.least < limits.work);
  assert_ok(heed_set_poll(ctx, 0, NULL, NULL));
  close_state(L, &memory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(opening_twice_gives_the_same_library),
      cmocka_unit_test(opening_does_not_change_the_garbage_collector),
      cmocka_unit_test(closing_frees_live_objects),
      cmocka_unit_test(tensors_come_from_the_allocator_of_the_state),
      cmocka_unit_test(a_host_reaches_the_context_of_a_state),
      cmocka_unit_test(two_states_are_independent),
      cmocka_unit_test(a_poll_function_never_sees_the_budget_switched_off),
      cmocka_unit_test(threads_compute_what_each_computes_alone),
      cmocka_unit_test(scripts_survive_every_failing_allocation),
      cmocka_unit_test(opening_survives_failing_allocations),
  };
  return cmocka_run_group_tests_name("states", tests, NULL, NULL);
}
