/* m:verify on kernel tables of which one kernel is broken. This program's heed__kernels_for takes the place
 * of the library's, so that all of heed computes with the broken kernel. */
#include "tables.h"

#include "../../src/binding/compat.h"

static heed__kernels table; /* a copy of the best table, then changed */
static const heed__kernels *sound;

const heed__kernels *heed__kernels_for(heed__cpu cpu) {
  static const heed__kernels *const tables[] = {
#define X(name) [HEED__CPU_##name] = &heed__kernels_##name,
      HEED__CPU_LIST(X)
#undef X
  };
  heed__cpu best;
  if (sound == NULL && heed__cpu_choose(&best)) table = *(sound = tables[best]);
  return sound != NULL && tables[cpu] == sound ? &table : tables[cpu];
}

/* ---- Broken kernels ---- */

static bool wrong_gemm(size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row, ptrdiff_t a_column,
                       const float *b, ptrdiff_t b_row, ptrdiff_t b_column, const float *bias, float *c,
                       ptrdiff_t c_row, float *scratch, const heed__pace *pace, int64_t *position) {
  if (!sound->gemm(m, n, k, a, a_row, a_column, b, b_row, b_column, bias, c, c_row, scratch, pace, position))
    return false;
  c[n - 1] += 0.01f;
  return true;
}

static bool wrong_attention(const heed__attention_task *task, const heed__pace *pace, int64_t *position) {
  heed__attention_task changed = *task;
  changed.scale *= 1.01f;
  return sound->attention(&changed, pace, position);
}

static bool wrong_decode(const heed__decode_task *task, const heed__pace *pace, int64_t *position) {
  heed__decode_task changed = *task;
  changed.scale *= 1.01f;
  return sound->decode(&changed, pace, position);
}

static void wrong_small_pass(const heed__small_pass *pass) {
  sound->small_pass(pass);
  pass->out[0] += 0.01f;
}

static void wrong_rms_norm(float *out, const float *x, const float *weight, float epsilon, size_t n) {
  sound->rms_norm(out, x, weight, epsilon, n);
  out[n - 1] *= 1.01f;
}

static bool wrong_lowp(const heed__lowp_task *task, const heed__pace *pace, int64_t *position) {
  if (!sound->lowp(task, pace, position)) return false;
  task->c[task->n - 1] += 0.01f;
  return true;
}

/* ---- Tests ---- */

static const char *const modules[] = {
    "local heed = ... heed.manual_seed(3) "
    "local m = heed.nn.MultiHeadAttention{d_in = 24, d_out = 32, num_heads = 4, context_length = 64, dropout "
    "= 0, "
    "qk_norm = true, causal = true}:eval() return m:verify(heed.randn(2, 40, 24)).ok",
    "local heed = ... heed.manual_seed(3) "
    "local m = heed.nn.MultiHeadAttention{d_in = 8, d_out = 8, num_heads = 2, context_length = 64, dropout = "
    "0}:eval() "
    "return m:verify(heed.randn(3, 8)).ok",
    "local heed = ... heed.manual_seed(3) "
    "local m = heed.nn.MultiHeadAttention{d_in = 128, d_out = 128, num_heads = 2, context_length = 64, "
    "dropout = 0, "
    "causal = false}:eval() local key = heed.randn(1, 2000, 128) "
    "m.context_length = 4096 return m:verify(heed.randn(1, 1, 128), {key = key}).ok",
    "local heed = ... heed.manual_seed(3) "
    "local m = heed.nn.MultiHeadAttention{d_in = 24, d_out = 32, num_heads = 4, context_length = 64, dropout "
    "= 0}:eval() "
    "return m:to('bfloat16'):verify(heed.randn(2, 9, 24)).ok",
};
enum { PLAIN, SMALL, FEW_QUERIES, LOW_PRECISION };

/* Whether verify says ok. */
static bool verified(int module) {
  lua_State *L = luaL_newstate();
  assert_non_null(L);
  luaL_openlibs(L);
  if (luaL_loadstring(L, modules[module]) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
  luaL_requiref(L, "heed", luaopen_heed, 0);
  if (lua_pcall(L, 1, 1, 0) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
  assert_true(lua_isboolean(L, -1));
  const bool ok = lua_toboolean(L, -1);
  lua_close(L);
  return ok;
}

static void reset(void) {
  heed__cpu best;
  assert_true(heed__cpu_choose(&best));
  heed__kernels_for(best);
  table = *sound;
}

static void verify_accepts_sound_kernels(void **state) {
  (void)state;
  reset();
  for (int i = PLAIN; i <= LOW_PRECISION; i++) assert_true(verified(i));
}

#define IS_FOUND(kernel, module)                                                                             \
  do {                                                                                                       \
    reset();                                                                                                 \
    table.kernel = wrong_##kernel;                                                                           \
    assert_false(verified(module));                                                                          \
  } while (0)

static void verify_finds_a_broken_kernel(void **state) {
  (void)state;
  IS_FOUND(attention, PLAIN);
  if (strcmp(sound->name, "scalar") == 0) return; /* these passes reach fewer of its kernels */
  IS_FOUND(gemm, PLAIN);
  IS_FOUND(rms_norm, PLAIN);
  IS_FOUND(small_pass, SMALL);
  IS_FOUND(decode, FEW_QUERIES);
  IS_FOUND(lowp, LOW_PRECISION);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(verify_accepts_sound_kernels),
      cmocka_unit_test(verify_finds_a_broken_kernel),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
