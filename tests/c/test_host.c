/* Embedding guarantees, tested by a host that loads the built libraries at run time: its output, signals,
 * locale, floating-point settings, threads and memory are left alone, and two versions of heed can coexist.
 * The environment variable HEED_BUILD names the folder with plain/ (without OpenBLAS) and other/ (another
 * version). */
#define _GNU_SOURCE /* usleep, NSIG */

#include "support.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

/* The sanitizers' shadow memory and quarantine grow, and unloaded libraries are kept. */
#if defined(__SANITIZE_ADDRESS__)
#define UNDER_SANITIZER 1
#elif defined(__has_feature)
#define UNDER_SANITIZER __has_feature(address_sanitizer)
#else
#define UNDER_SANITIZER 0
#endif

/* ---- Loading ---- */

static const char *path_of(const char *name) {
  static char path[512];
  const char *build = getenv("HEED_BUILD");
  snprintf(path, sizeof(path), "%s/%s", build ? build : "build", name);
  return path;
}

static void *load(const char *name, int scope) {
  void *library = dlopen(path_of(name), RTLD_NOW | scope);
  if (library == NULL) fail_msg("%s", dlerror());
  return library;
}

static void unload(void *library) {
  assert_int_equal(dlclose(library), 0);
}

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (found == NULL) fail_msg("%s", dlerror());
  return found;
}

/* A function of the library, by the prototype in heed.h. */
#define FUNCTION(library, name) ((__typeof__(&name))symbol(library, #name))

/* Opens Lua's libraries, and heed as the global `name`. */
static void open_heed(lua_State *L, void *library, const char *name) {
  lua_pushcfunction(L, (lua_CFunction)symbol(library, "luaopen_heed"));
  if (lua_pcall(L, 0, 1, 0) != 0) fail_msg("%s", lua_tostring(L, -1));
  lua_setglobal(L, name);
}

static lua_State *new_state(void *library) {
  lua_State *L = luaL_newstate();
  assert_non_null(L);
  luaL_openlibs(L);
  open_heed(L, library, "heed");
  return L;
}

/* Runs the code and returns its result as text, which the caller frees. */
static char *run(lua_State *L, const char *code) {
  if (luaL_loadstring(L, code) != 0 || lua_pcall(L, 0, 1, 0) != 0) fail_msg("%s", lua_tostring(L, -1));
  const char *text = lua_tostring(L, -1);
  char *copy = strdup(text ? text : "");
  assert_non_null(copy);
  lua_pop(L, 1);
  return copy;
}

static void expect(lua_State *L, const char *code, const char *wanted) {
  char *text = run(L, code);
  assert_string_equal(text, wanted);
  free(text);
}

/* ---- Work ---- */

/* Successful and failing calls in all parts of the library; returns their results and messages as text. */
static const char battery[] =
    "local said = {}\n"
    "local function note(value) said[#said + 1] = tostring(value) end\n"
    "local function try(f, ...) note(select(2, pcall(f, ...))) end\n"
    "heed.manual_seed(7)\n"
    "note(heed.rand(2, 3)) note(heed.tensor{1e-8, 1.5}) note(heed.randn(3) * 1e9) note(heed.tensor(2.5))\n"
    "note(heed.nn.LayerNorm(4)) note(heed.nn.Dropout(0.1)) note(heed.nn.RMSNorm(4, 1.5e-7))\n"
    "local m = heed.nn.MultiHeadAttention(8, 8, 6, 0.25, 2)\n"
    "local y, info = m(heed.rand(2, 6, 8), {need_weights = true})\n"
    "note(y) note(info.weights) note(m)\n"
    "local cache = m:eval():new_cache{batch = 1, capacity = 8, dtype = 'bfloat16'}\n"
    "for _ = 1, 3 do m(heed.rand(1, 2, 8), {cache = cache}) end\n"
    "note(heed.nn.Sequential(heed.nn.Linear(8, 300), heed.nn.GELU(), heed.nn.Linear(300, 8))(y):sum())\n"
    "try(heed.matmul, heed.ones(6, 3), heed.ones(2, 3)) try(heed.dropout, heed.ones(2), 1.5)\n"
    "try(heed.zeros, 2.5) try(heed.range, 1, 1 / 0, 0.5) try(heed.zeros, 2 ^ 45) try(heed.nn.Linear, 'x', "
    "0.5)\n"
    "try(heed.nn.LayerNorm, 4, -0.25) try(heed.allclose, y, y, -0.5) try(m, 1.25) try(function() return "
    "y.nothing end)\n"
    "try(heed.rope, heed.rand(2, 4), heed.tensor{1, 2}, {base = -1.5}) try(function() return y[100.5] end)\n"
    "note(select(2, heed.load('no such file.safetensors'))) note(select(2, heed.load('Makefile')))\n"
    "local llama = assert(require('heed.models.llama').load 'tests/golden/decoders/llama_yarn')\n"
    "note(llama({{1, 2, 3}}):sum()) note(select(2, require('heed.models.bert').load 'nowhere'))\n"
    "local a, b = heed.rand(300, 300), heed.rand(300, 300)\n"
    "heed.set_num_threads(threads or 1)\n"
    "note(heed.matmul(a, b):sum()) note(heed.rand(1000, 300):softmax(2):sum())\n"
    "return table.concat(said, '\\n')";

static char *run_battery(lua_State *L, int threads) {
  lua_pushinteger(L, threads);
  lua_setglobal(L, "threads");
  return run(L, battery);
}

/* The same in C: some operations, and failing calls. */
static void work_in_c(void *library, int threads) {
  heed_context *ctx = NULL;
  heed_tensor *x = NULL, *y = NULL, *none = NULL;
  assert_ok(FUNCTION(library, heed_context_new)(NULL, &ctx));
  assert_ok(FUNCTION(library, heed_set_num_threads)(ctx, threads));
  assert_ok(FUNCTION(library, heed_uniform)(ctx, NULL, 0, 1, 2, SHAPE(300, 300), &x));
  assert_ok(FUNCTION(library, heed_matmul)(ctx, x, x, &y));
  assert_ok(FUNCTION(library, heed_softmax)(ctx, y, 2, &y));
  assert_int_equal(FUNCTION(library, heed_uniform)(ctx, NULL, 0, 1, 1, SHAPE(-1), &none), HEED_SHAPE);
  assert_int_equal(FUNCTION(library, heed_softmax)(ctx, y, 9, &none), HEED_INDEX);
  assert_int_equal(FUNCTION(library, heed_set_num_threads)(ctx, -5), HEED_ARGUMENT);
  FUNCTION(library, heed_tensor_free)(x);
  FUNCTION(library, heed_tensor_free)(y);
  FUNCTION(library, heed_context_free)(ctx);
}

/* Both interfaces, in the libraries without OpenBLAS. */
static void do_everything(int threads) {
  void *c = load("plain/libheed.so", RTLD_LOCAL), *lua = load("plain/heed.so", RTLD_LOCAL);
  work_in_c(c, threads);
  lua_State *L = new_state(lua);
  free(run_battery(L, threads));
  lua_close(L);
  unload(lua);
  unload(c);
}

/* ---- Counting ---- */

static int count_entries(const char *folder) {
  DIR *d = opendir(folder);
  assert_non_null(d);
  int count = 0;
  for (const struct dirent *entry; (entry = readdir(d));) count += entry->d_name[0] != '.';
  closedir(d);
  return count;
}

/* A thread that was joined may remain visible for a moment. */
static int count_threads(int wanted) {
  int count = count_entries("/proc/self/task");
  for (int i = 0; i < 200 && count != wanted; i++) {
    usleep(5000);
    count = count_entries("/proc/self/task");
  }
  return count;
}

static long resident_kib(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%*s %ld", &pages), 1);
  fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static bool is_mapped(const char *name) {
  char line[1024];
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "r");
  assert_non_null(maps);
  while (fgets(line, sizeof(line), maps)) found = found || strstr(line, name);
  fclose(maps);
  return found;
}

/* ---- The host's settings ---- */

static void everything_works(void **state) {
  (void)state;
  do_everything(1);
}

static void nothing_is_printed(void **state) {
  (void)state;
  if (UNDER_SANITIZER) skip(); /* sanitizers print when memory is insufficient */
  int kept[2], pipes[2][2];
  char text[256];
  fflush(NULL);
  for (int i = 0; i < 2; i++) {
    kept[i] = dup(i + 1);
    assert_int_equal(pipe(pipes[i]), 0);
    dup2(pipes[i][1], i + 1);
    close(pipes[i][1]);
  }
  do_everything(2);
  fflush(NULL);
  for (int i = 0; i < 2; i++) {
    dup2(kept[i], i + 1);
    close(kept[i]);
    const ssize_t length = read(pipes[i][0], text, sizeof(text) - 1);
    text[length > 0 ? length : 0] = '\0';
    close(pipes[i][0]);
    assert_string_equal(text, "");
  }
}

/* Rounding mode, flush-to-zero, masks: everything except the exception flags. */
static uint64_t floating_point_settings(void) {
#if defined(__x86_64__)
  uint16_t x87;
  __asm__ volatile("fnstcw %0" : "=m"(x87));
  return (uint64_t)(__builtin_ia32_stmxcsr() & ~0x3fu) << 16 | x87;
#elif defined(__aarch64__)
  uint64_t settings;
  __asm__ volatile("mrs %0, fpcr" : "=r"(settings));
  return settings;
#else
  return (uint64_t)fegetround();
#endif
}

static void floating_point_settings_are_unchanged(void **state) {
  (void)state;
  const int roundings[] = {FE_TONEAREST, FE_UPWARD};
  for (int flush = 0; flush < 2; flush++) {
    for (int i = 0; i < 2; i++) {
      fesetround(roundings[i]);
#if defined(__x86_64__)
      if (flush)
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); /* denormals are zero, in and out */
#endif
      const uint64_t before = floating_point_settings();
      do_everything(3);
      assert_true(floating_point_settings() == before);
      fesetenv(FE_DFL_ENV);
    }
  }
}

static volatile sig_atomic_t signals_seen;
static void on_signal(int number) {
  (void)number;
  signals_seen++;
}

static void signal_handlers_are_unchanged(void **state) {
  (void)state;
  struct sigaction before[NSIG], own = {.sa_handler = on_signal}, now;
  sigset_t mask, kept;
  for (int i = 1; i < NSIG; i++) { /* some cannot be set, or are used by the C library */
    if (sigaction(i, NULL, &before[i]) == 0) sigaction(i, &own, NULL);
  }
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR1);
  sigprocmask(SIG_SETMASK, &mask, &kept);
  signals_seen = 0;
  do_everything(3);
  sigprocmask(SIG_SETMASK, NULL, &mask);
  int changed = 0;
  for (int i = 1; i < NSIG; i++) {
    if (i == SIGKILL || i == SIGSTOP || sigaction(i, NULL, &now) != 0) continue;
    changed += now.sa_handler != on_signal;
    changed += sigismember(&mask, i) != (i == SIGUSR1);
  }
  for (int i = 1; i < NSIG; i++) sigaction(i, &before[i], NULL);
  sigprocmask(SIG_SETMASK, &kept, NULL);
  assert_int_equal(changed, 0);
  assert_int_equal(signals_seen, 0);
}

static void the_process_is_unchanged(void **state) {
  (void)state;
  char folder[2][4096];
  int drawn[2];
  extern char **environ;
  assert_non_null(getcwd(folder[0], sizeof(folder[0])));
  const mode_t mask = umask(027);
  char **const variables = environ;
  const int files = count_entries("/proc/self/fd");
  srand(5);
  drawn[0] = rand();
  srand(5);
  do_everything(2);
  drawn[1] = rand();
  assert_int_equal(drawn[0], drawn[1]);
  assert_int_equal(umask(mask), 027);
  assert_ptr_equal(environ, variables);
  assert_int_equal(count_entries("/proc/self/fd"), files);
  assert_non_null(getcwd(folder[1], sizeof(folder[1])));
  assert_string_equal(folder[0], folder[1]);
}

/* ---- The host's locale ---- */

static bool set_locale(const char *name) {
  setenv("LOCPATH", path_of("locale"), 1);
  return setlocale(LC_ALL, name) != NULL;
}

static void text_is_the_same_in_every_locale(void **state) {
  (void)state;
  if (!set_locale("de_DE.UTF-8")) skip(); /* the locale is not installed */
  char number[8];
  snprintf(number, sizeof(number), "%.1f", 0.5);
  assert_string_equal(number, "0,5");
  const char *const names[] = {"C", "de_DE.UTF-8"};
  char *said[2];
  for (int i = 0; i < 2; i++) {
    char before[512];
    assert_true(set_locale(names[i]));
    setlocale(LC_MESSAGES, "C"); /* the operating system's messages about files depend on the locale */
    snprintf(before, sizeof(before), "%s", setlocale(LC_ALL, NULL));
    void *library = load("plain/heed.so", RTLD_LOCAL);
    lua_State *L = new_state(library);
    said[i] = run_battery(L, 1);
    lua_close(L);
    unload(library);
    assert_string_equal(setlocale(LC_ALL, NULL), before);
  }
  setlocale(LC_ALL, "C");
  assert_string_equal(said[0], said[1]);
  free(said[0]);
  free(said[1]);
}

/* Pashto's decimal separator has two bytes, which Lua's own number parser does not support. */
static void messages_have_a_decimal_point_in_every_locale(void **state) {
  (void)state;
  if (!set_locale("ps_AF.UTF-8")) skip();
  void *library = load("plain/libheed.so", RTLD_LOCAL);
  heed_context *ctx = NULL;
  heed_tensor *none = NULL;
  heed_module *dropout = NULL;
  char text[100];
  assert_ok(FUNCTION(library, heed_context_new)(NULL, &ctx));
  assert_int_equal(FUNCTION(library, heed_dropout_new)(ctx, 1.5, &dropout), HEED_ARGUMENT);
  assert_string_equal(FUNCTION(library, heed_message)(ctx), "Dropout: p is 1.5; it must be from 0 to 1");
  assert_int_equal(FUNCTION(library, heed_tensor_new)(ctx, HEED_FLOAT32, 1, SHAPE((int64_t)3 << 44), &none),
                   HEED_MEMORY);
  assert_non_null(strstr(FUNCTION(library, heed_message)(ctx), "(192.0 TiB requested)"));
  assert_ok(FUNCTION(library, heed_dropout_new)(ctx, 0.1, &dropout));
  FUNCTION(library, heed_module_describe)(dropout, text, sizeof(text));
  assert_string_equal(text, "p=0.1, inplace=False");
  FUNCTION(library, heed_module_release)(dropout);
  FUNCTION(library, heed_context_free)(ctx);
  setlocale(LC_ALL, "C");
  unload(library);
}

/* ---- Threads ---- */

static void threads_start_on_request(void **state) {
  (void)state;
  const int before = count_entries("/proc/self/task");
  void *library = load("plain/heed.so", RTLD_LOCAL);
  lua_State *L = new_state(library);
  free(run_battery(L, 1));
  assert_int_equal(count_entries("/proc/self/task"), before);
  free(run(L, "heed.set_num_threads(3) x = heed.rand(500, 500)"));
  assert_int_equal(count_entries("/proc/self/task"), before);
  free(run(L, "y = heed.matmul(x, x)"));
  assert_int_equal(count_entries("/proc/self/task"), before + 2);
  lua_close(L);
  assert_int_equal(count_threads(before), before);
  unload(library);
}

/* The only other threads in this test are OpenBLAS's, started when a product needs it. */
static void no_thread_is_started_unless_openblas_is_needed(void **state) {
  (void)state;
  const int before = count_entries("/proc/self/task");
  void *library = load("heed.so", RTLD_LOCAL);
  lua_State *L = new_state(library);
  assert_int_equal(count_entries("/proc/self/task"), before);
  char *kernels = run(L, "return heed.info().kernels");
  const bool needed = strcmp(kernels, "scalar") == 0;
  free(kernels);
  if (needed) {
    lua_close(L);
    unload(library);
    skip();
  }
  free(run_battery(L, 1));
  assert_int_equal(count_entries("/proc/self/task"), before);
  free(run_battery(L, 3));
  lua_close(L);
  assert_int_equal(count_threads(before), before);
  unload(library);
}

#define SIDE 100

/* A product that the scalar kernels delegate to BLAS, in a context of this thread. */
static void *multiply_on_a_thread(void *library) {
  heed_context *ctx = NULL;
  heed_tensor *x = NULL, *y = NULL, *product = NULL;
  bool right =
      FUNCTION(library, heed_context_new)(NULL, &ctx) == HEED_OK &&
      FUNCTION(library, heed_full)(ctx, HEED_FLOAT32, 2, SHAPE(SIDE, SIDE), heed_number(2), &x) == HEED_OK &&
      FUNCTION(library, heed_full)(ctx, HEED_FLOAT32, 2, SHAPE(SIDE, SIDE), heed_number(3), &y) == HEED_OK &&
      FUNCTION(library, heed_matmul)(ctx, x, y, &product) == HEED_OK;
  const float *c = right ? FUNCTION(library, heed_tensor_data)(product) : NULL;
  for (int i = 0; right && i < SIDE * SIDE; i++) right = c[i] == 2.0f * 3.0f * SIDE;
  FUNCTION(library, heed_tensor_free)(x);
  FUNCTION(library, heed_tensor_free)(y);
  FUNCTION(library, heed_tensor_free)(product);
  FUNCTION(library, heed_context_free)(ctx);
  return right ? library : NULL;
}

static void threads_may_load_openblas_at_the_same_time(void **state) {
  (void)state;
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  const char *set = getenv("HEED_CPU");
  char *before = set ? strdup(set) : NULL;
  setenv("HEED_CPU", "scalar", 1);
  void *library = load("libheed.so", RTLD_LOCAL);
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, multiply_on_a_thread, library), 0);
  for (int i = 0; i < THREADS; i++) {
    void *right;
    assert_int_equal(pthread_join(threads[i], &right), 0);
    assert_non_null(right);
  }
  unload(library);
  if (before)
    setenv("HEED_CPU", before, 1);
  else
    unsetenv("HEED_CPU");
  free(before);
}

/* ---- Costs ---- */

static void an_idle_library_uses_little_of_the_states_memory(void **state) {
  (void)state;
  void *library = load("plain/heed.so", RTLD_LOCAL);
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  lua_gc(L, LUA_GCCOLLECT, 0);
  const int before = lua_gc(L, LUA_GCCOUNT, 0); /* in KiB, including the context */
  open_heed(L, library, "heed");
  lua_gc(L, LUA_GCCOLLECT, 0);
  const int taken = lua_gc(L, LUA_GCCOUNT, 0) - before;
  if (taken > 128) fail_msg("%d KiB", taken);
  lua_close(L);
  unload(library);
}

/* ---- Loading and unloading ---- */

#define ROUNDS (UNDER_SANITIZER ? 50 : 1000)

/* Loads, uses and unloads the library repeatedly; resident memory must not grow after the first tenth. */
static void load_repeatedly(const char *name, long allowed_kib) {
  const int threads = count_entries("/proc/self/task"), files = count_entries("/proc/self/fd");
  long before = 0;
  for (int i = 0; i < ROUNDS; i++) {
    if (i == ROUNDS / 10) before = resident_kib();
    void *library = load(name, RTLD_LOCAL);
    lua_State *L = new_state(library);
    if (i % 10 == 0) free(run(L, "heed.set_num_threads(2) x = heed.rand(200, 200) y = heed.matmul(x, x)"));
    expect(L, "return tostring(heed.nn.CausalAttention(3, 2, 6, 0.0)(heed.ones(2, 6, 3)):numel())", "24");
    if (i % 2 == 0) free(run(L, "heed.nn.Sequential(heed.nn.Linear(2, 2)):state_dict()"));
    lua_close(L);
    unload(library);
  }
  const long grown = resident_kib() - before;
  if (!UNDER_SANITIZER && grown > allowed_kib) fail_msg("%s: %ld KiB stay", name, grown);
  assert_int_equal(count_threads(threads), threads);
  assert_int_equal(count_entries("/proc/self/fd"), files);
}

static void loading_a_thousand_times_leaks_nothing(void **state) {
  (void)state;
  load_repeatedly("plain/heed.so", 256);
  if (!UNDER_SANITIZER) assert_false(is_mapped(path_of("plain/heed.so")));
}

/* OpenBLAS stays loaded, since repeated loading of it is beyond heed's control. */
static void loading_a_thousand_times_with_openblas_leaks_nothing(void **state) {
  (void)state;
  void *openblas = dlopen("libopenblas.so.0", RTLD_NOW);
  load_repeatedly("heed.so", 256);
  if (openblas) dlclose(openblas);
}

/* ---- Two versions ---- */

static const char refusals[] =
    "local said = {}\n"
    "local function refused(f, ...)\n"
    "  local ok, message = pcall(f, ...)\n"
    "  said[#said + 1] = ok and 'taken' or message:match 'of another copy of heed' or message\n"
    "end\n"
    "for _, pair in ipairs{{one, two}, {two, one}} do\n"
    "  local a, b = pair[1], pair[2]\n"
    "  local x, m = b.rand(2, 6, 4), b.nn.MultiHeadAttention(4, 4, 6, 0.0, 2)\n"
    "  refused(a.exp, x) refused(a.matmul, a.rand(2, 6, 4), x) refused(function() return a.rand(2, 6, 4) + x "
    "end)\n"
    "  refused(a.nn.Linear(4, 4), x) refused(a.nn.Sequential, m) refused(getmetatable(a.rand(2)).__index, x, "
    "1)\n"
    "  refused(a.rand, 2, {generator = b.Generator(1)}) refused(a.nn.Parameter, x) refused(a.save, 'x.npy', "
    "x)\n"
    "  local own = a.nn.MultiHeadAttention(4, 4, 6, 0.0, 2)\n"
    "  refused(own, a.rand(1, 1, 4), {cache = m:new_cache{batch = 1, capacity = 4}})\n"
    "  refused(own.load_state_dict, own, m:state_dict()) refused(own.forward, m, x)\n"
    "  refused(function() own.W_query = m.W_query end) refused(function() own.W_query.weight = x end)\n"
    "  own(a.rand(2, 6, 4)) m(x)\n"
    "  for i, text in ipairs(said) do assert(text == 'of another copy of heed', i .. ': ' .. text) end\n"
    "end\n"
    "return one.version .. ' ' .. two.version .. ' ' .. #said";

static void two_versions_in_one_state_reject_each_others_objects(void **state) {
  (void)state;
  const char *const names[] = {"plain/heed.so", "other/build/heed.so"};
  for (int first = 0; first < 2; first++) {
    void *one = load(names[first], RTLD_GLOBAL), *two = load(names[1 - first], RTLD_GLOBAL);
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    open_heed(L, one, "one");
    open_heed(L, two, "two");
    expect(L, refusals, first == 0 ? HEED_VERSION " 9.9.9 28" : "9.9.9 " HEED_VERSION " 28");
    lua_close(L);
    unload(first ? one : two);
    unload(first ? two : one);
  }
}

static void two_versions_in_one_program_are_independent(void **state) {
  (void)state;
  const char *const names[] = {"plain/libheed.so", "other/build/libheed.so"};
  for (int first = 0; first < 2; first++) {
    void *library[2] = {load(names[first], RTLD_GLOBAL), load(names[1 - first], RTLD_GLOBAL)};
    for (int i = 0; i < 2; i++) {
      heed_context *ctx = NULL;
      heed_information info = {.size = sizeof(info)};
      work_in_c(library[i], 2);
      assert_ok(FUNCTION(library[i], heed_context_new)(NULL, &ctx));
      assert_ok(FUNCTION(library[i], heed_info)(ctx, &info));
      assert_string_equal(info.version, i == first ? HEED_VERSION : "9.9.9");
      FUNCTION(library[i], heed_context_free)(ctx);
    }
    unload(library[0]);
    unload(library[1]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(
          everything_works), /* runs with output, so that failures are visible; the next test hides it */
      cmocka_unit_test(nothing_is_printed),
      cmocka_unit_test(floating_point_settings_are_unchanged),
      cmocka_unit_test(signal_handlers_are_unchanged),
      cmocka_unit_test(the_process_is_unchanged),
      cmocka_unit_test(text_is_the_same_in_every_locale),
      cmocka_unit_test(messages_have_a_decimal_point_in_every_locale),
      cmocka_unit_test(threads_start_on_request),
      cmocka_unit_test(no_thread_is_started_unless_openblas_is_needed),
      cmocka_unit_test(threads_may_load_openblas_at_the_same_time),
      cmocka_unit_test(an_idle_library_uses_little_of_the_states_memory),
      cmocka_unit_test(loading_a_thousand_times_leaks_nothing),
      cmocka_unit_test(loading_a_thousand_times_with_openblas_leaks_nothing),
      cmocka_unit_test(two_versions_in_one_state_reject_each_others_objects),
      cmocka_unit_test(two_versions_in_one_program_are_independent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
