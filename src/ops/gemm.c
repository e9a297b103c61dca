/* Matrix products of float32, divided into slices for the threads, computed by heed's kernels or by BLAS
 * where that is faster. The only file that includes cblas. HEED_BLAS is 0 without BLAS (make BLAS=none). With
 * HEED_BLAS_LIBRARY, a name for dlopen, BLAS is not linked but loaded when a product first needs it. */
#include "ops.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#if HEED_BLAS
#include <cblas.h>
#endif

#if HEED_BLAS && defined(HEED_BLAS_LIBRARY)
#include <dlfcn.h>
#endif

typedef heed__product product;

/* Products of fewer multiply-adds are not divided. */
#define SMALL (32.0 * 32.0 * 32.0)

/* ---- BLAS ---- */

#if !HEED_BLAS

const char *heed__blas_name(heed_context *ctx) {
  (void)ctx;
  return "none";
}
const char *heed__blas_core(heed_context *ctx) {
  (void)ctx;
  return "";
}
static bool blas_takes(heed_context *ctx, const product *p) {
  (void)ctx;
  (void)p;
  return false;
}
static void blas_product(const heed__blas *blas, const product *p, bool first) {
  (void)blas, (void)p, (void)first;
}

#else

/* BLAS replaces the scalar kernel alone, which it outruns from small products on. The rate of heed's other
 * kernels relative to OpenBLAS 0.3.21 on the same instruction set (one thread, Intel Cascade Lake): AVX-512
 * 256³ 1.2, 512³ 1.05, 1024³ 1.05, 2048³ 1.0; AVX2 256³ 1.15, 512³ 1.0, 1024³ 1.05, 2048³ 0.9, and OpenBLAS
 * reaches that only with calls too long between two cancellation checks. NEON was not measured and is treated
 * like AVX2. */
static bool needs_blas(const heed_context *ctx) {
  return ctx->cpu == HEED__CPU_scalar;
}

/* The functions of BLAS in use; a library other than OpenBLAS has only the first. */
#define BLAS_FUNCTIONS(X)                                                                                    \
  X(cblas_sgemm)                                                                                             \
  X(openblas_get_num_threads) X(openblas_set_num_threads) X(openblas_get_parallel) X(openblas_get_corename)
enum {
#define BLAS_NUMBER(name) BLAS_##name,
  BLAS_FUNCTIONS(BLAS_NUMBER)
#undef BLAS_NUMBER
      BLAS_FUNCTION_COUNT
};
_Static_assert(BLAS_FUNCTION_COUNT == HEED__BLAS_FUNCTIONS, "a context holds a pointer to each");

/* The function of that name, with its prototype of cblas.h; NULL if the library lacks it. */
#define BLAS_FUNCTION(blas, name) ((__typeof__(&name))(blas)->function[BLAS_##name])

#if defined(HEED_BLAS_LIBRARY)

/* Loads OpenBLAS, which starts its threads when it is loaded; it stays loaded, like its threads. The system
 * loads it once for all contexts and threads. Each context keeps its own pointers, so that heed writes to no
 * global variable. */
enum { IS_LOADED_LATE = true };
static void find_functions(heed_context *ctx, heed__blas *blas) {
  void *library = dlopen(HEED_BLAS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    heed__log(ctx, HEED_LOG_INFO, "BLAS is not used, since it cannot be loaded: %s", dlerror());
    return;
  }
#define BLAS_FIND(name) blas->function[BLAS_##name] = (heed__function)dlsym(library, #name);
  BLAS_FUNCTIONS(BLAS_FIND)
#undef BLAS_FIND
}

#else

#pragma weak openblas_get_num_threads
#pragma weak openblas_set_num_threads
#pragma weak openblas_get_parallel
#pragma weak openblas_get_corename

enum { IS_LOADED_LATE = false };
static void find_functions(heed_context *ctx, heed__blas *blas) {
  (void)ctx;
#define BLAS_FIND(name) blas->function[BLAS_##name] = (heed__function)(name);
  BLAS_FUNCTIONS(BLAS_FIND)
#undef BLAS_FIND
}

#endif

/* Of OpenBLAS's builds, only the one on POSIX threads may be called from several threads and be set to one
 * thread. The build without threads is not safe (one product in 160,000 was wrong with two callers); with
 * OpenMP each of our threads would start a team. */
static bool is_usable(heed_context *ctx) {
  enum { ON_THREADS = 1 }; /* openblas_get_parallel returns 0 without threads, 2 with OpenMP */
  heed__blas *blas = &ctx->blas;
  if (!blas->is_known) {
    blas->is_known = true; /* set first: the log function may call back into here */
    find_functions(ctx, blas);
    blas->is_usable =
        BLAS_FUNCTION(blas, cblas_sgemm) && (!BLAS_FUNCTION(blas, openblas_get_parallel) ||
                                             BLAS_FUNCTION(blas, openblas_get_parallel)() == ON_THREADS);
  }
  return blas->is_usable;
}

const char *heed__blas_name(heed_context *ctx) {
  if (!needs_blas(ctx)) return "none";
  if (IS_LOADED_LATE && !ctx->blas.is_known) return "not loaded";
  return !is_usable(ctx) ? "none" : BLAS_FUNCTION(&ctx->blas, openblas_get_corename) ? "OpenBLAS" : "BLAS";
}
const char *heed__blas_core(heed_context *ctx) {
  return strcmp(heed__blas_name(ctx), "OpenBLAS") == 0 ? BLAS_FUNCTION(&ctx->blas, openblas_get_corename)()
                                                       : "";
}

/* A matrix as BLAS reads it: contiguous rows `leading` elements apart, or the transpose of such a matrix. */
typedef struct operand {
  CBLAS_TRANSPOSE transpose;
  int leading;
} operand;

/* Whether BLAS accepts rows of `columns` elements, `row` apart, with their elements `column` apart. Strides
 * of dimensions of size 1 do not matter. */
static bool has_leading(int64_t rows, int64_t columns, ptrdiff_t row, ptrdiff_t column, int *leading) {
  if (columns > INT_MAX || (columns > 1 && column != 1)) return false;
  if (rows > 1 && (row < columns || row > INT_MAX)) return false;
  *leading = rows > 1 ? (int)row : (int)columns;
  return true;
}

static bool as_operand(int64_t rows, int64_t columns, ptrdiff_t row, ptrdiff_t column, operand *out) {
  *out = (operand){CblasNoTrans, 0};
  if (has_leading(rows, columns, row, column, &out->leading)) return true;
  out->transpose = CblasTrans;
  return has_leading(columns, rows, column, row, &out->leading);
}

/* Two threads that call an OpenBLAS with threads of its own were six times slower than one. So OpenBLAS is
 * set to one thread, for the whole process, unless the host has set keep_blas_threads. */
static bool has_one_thread(heed_context *ctx) {
  const __typeof__(&openblas_get_num_threads) count = BLAS_FUNCTION(&ctx->blas, openblas_get_num_threads);
  const __typeof__(&openblas_set_num_threads) set = BLAS_FUNCTION(&ctx->blas, openblas_set_num_threads);
  if (!count || !set) return true;
  const int threads = count();
  if (threads > 1 && !ctx->keep_blas_threads) {
    set(1);
    heed__log(ctx, HEED_LOG_INFO, "OpenBLAS had %d threads and now uses one, in the whole process", threads);
  }
  return count() <= 1;
}

static bool blas_takes(heed_context *ctx, const product *p) {
  operand any;
  return needs_blas(ctx) && p->m > 1 && p->n > 1 && p->k <= INT_MAX && p->c_row >= p->n &&
         p->c_row <= INT_MAX && as_operand(p->m, p->k, p->a_row, p->a_column, &any) &&
         as_operand(p->k, p->n, p->b_row, p->b_column, &any) && is_usable(ctx) && has_one_thread(ctx);
}

/* c = a · b + bias if `first`, else c + a · b. */
static void blas_product(const heed__blas *blas, const product *p, bool first) {
  operand a, b;
  (void)as_operand(p->m, p->k, p->a_row, p->a_column, &a);
  (void)as_operand(p->k, p->n, p->b_row, p->b_column, &b);
  /* c is set before, like PyTorch does: with a beta of 0 some BLAS keep a nan of c. */
  for (int64_t i = 0; first && i < p->m; i++) {
    float *row = p->c + i * p->c_row;
    if (p->bias)
      memcpy(row, p->bias, (size_t)p->n * sizeof(float));
    else
      memset(row, 0, (size_t)p->n * sizeof(float));
  }
  BLAS_FUNCTION(blas, cblas_sgemm)
  (CblasRowMajor, a.transpose, b.transpose, (int)p->m, (int)p->n, (int)p->k, 1, p->a, a.leading, p->b,
   b.leading, 1, p->c, (int)p->c_row);
}

#endif

/* ---- Slices ---- */

/* Multiply-adds of a slice, about 40 µs of one thread. Waking a thread for less costs more than it saves. */
#define SLICE ((int64_t)1 << 21)

/* With at most this many rows of a, the kernel reads a row-major b in long runs. */
#define FEW_ROWS 8

/* Fewer rows of a take as long as this many, since they wait for the memory of b. */
#define MEMORY_ROWS 16

/* Rows, columns and depth of one call of BLAS: 1 ms with SSE. */
#define BLAS_SIDE  128
#define BLAS_DEPTH 512

/* Elements of a dot product between cancellation checks: 0.2 ms if they are not contiguous. Each part is
 * summed on its own, which is also more exact. */
#define DOT_DEPTH ((int64_t)1 << 16)

/* Blocked slices may have any size, since an element does not depend on them. Otherwise the division depends
 * on the sizes of the product alone, so that results do not depend on the number of threads: columns are
 * divided first, so that their panels are packed once; rows only if even the narrowest slice is too large.
 * Where b is read row by row slices are wider, since memory is fastest in long runs. */
static product slice_of(const heed__gemm_work *g, int64_t i) {
  const int64_t down = i / g->across, row = down * g->rows, column = (i - down * g->across) * g->columns;
  product p = g->whole;
  p.m = heed__min(p.m - row, g->rows);
  p.n = heed__min(p.n - column, g->columns);
  p.a += row * p.a_row;
  p.b += column * p.b_column;
  p.c += row * p.c_row + column;
  if (p.bias) p.bias += column;
  return p;
}

static bool multiply_slice(void *argument, int64_t i, int slot, int64_t *position) {
  const heed__gemm_work *g = argument;
  const product p = slice_of(g, i);
  return g->kernels->gemm(
      (size_t)p.m, (size_t)p.n, (size_t)p.k, p.a, p.a_row, p.a_column, p.b, p.b_row, p.b_column, p.bias, p.c,
      p.c_row, g->scratch ? g->scratch + (size_t)slot * g->scratch_each : NULL, g->work.pace, position);
}

/* position is an index of depth. */
static bool multiply_by_blas(void *argument, int64_t i, int slot, int64_t *position) {
  const heed__gemm_work *g = argument;
  const product p = slice_of(g, i);
  (void)slot;
  for (int64_t at = *position; at == 0 || at < p.k;) {
    product part = p;
    part.k = heed__min(p.k - at, BLAS_DEPTH);
    part.a += at * p.a_column;
    part.b += at * p.b_row;
    blas_product(g->blas, &part, at == 0);
    at += BLAS_DEPTH;
    if (at < p.k && heed__should_yield(g->work.pace)) {
      *position = at;
      return false;
    }
  }
  return true;
}

/* Both sides are vectors; position is an index of depth. */
static bool multiply_dot(void *argument, int64_t i, int slot, int64_t *position) {
  const heed__gemm_work *g = argument;
  const product *p = &g->whole;
  (void)i, (void)slot;
  for (int64_t at = *position; at < p->k;) {
    const float part = g->kernels->dot(p->a + at * p->a_column, p->a_column, p->b + at * p->b_row, p->b_row,
                                       (size_t)heed__min(p->k - at, DOT_DEPTH));
    p->c[0] = at == 0 ? part : p->c[0] + part;
    at += DOT_DEPTH;
    if (at < p->k && heed__should_yield(g->work.pace)) {
      *position = at;
      return false;
    }
  }
  if (p->bias) p->c[0] += p->bias[0];
  return true;
}

/* Blocked slices: each packs its part of both sides again, so they are as few and as square as possible; two
 * for each of several threads, so that none waits long for another. */
static void divide_evenly(heed__gemm_work *d, int64_t workers) {
  const int64_t m = d->whole.m, n = d->whole.n, wanted = workers > 1 ? 2 * workers : 1;
  int64_t down = 1, across = 1;
  while (down * across < wanted && heed__max(m / down, n / across) >= 128) {
    if (m / down >= n / across)
      down++;
    else
      across++;
  }
  d->rows = heed__parts(heed__parts(m, down), 12) * 12;
  d->columns = heed__parts(heed__parts(n, across), 64) * 64;
}

/* Divides into blocked slices and allocates their scratch, where blocks are faster. If out of memory the
 * product is computed without blocks, with its sums in another order. */
static bool divide_into_blocks(heed_context *ctx, heed__gemm_work *d) {
  const product *p = &d->whole;
  const size_t align = HEED__ALIGNMENT / sizeof(float);
  const size_t floats = d->kernels->gemm_scratch((size_t)p->m, (size_t)p->n, (size_t)p->k);
  if (floats == 0) return false;
  const int workers = heed__workers(ctx);
  d->scratch_each = (floats + align - 1) / align * align;
  d->scratch = heed__allocate(
      ctx, heed__array_bytes((uint64_t)workers, heed__array_bytes(d->scratch_each, sizeof(float))));
  if (d->scratch) divide_evenly(d, workers);
  return d->scratch != NULL;
}

void heed_keep_blas_threads(heed_context *ctx, bool keep) {
  if (ctx != NULL) ctx->keep_blas_threads = keep;
}

/* A dot product, which sums in lanes and is more exact for long rows. */
static bool is_dot(const product *p) {
  return p->m == 1 && p->n == 1;
}

/* Products that are not divided: empty ones, short dot products, and small ones. */
static bool is_whole(const product *p) {
  return p->m == 0 || p->n == 0 || (is_dot(p) && p->k <= DOT_DEPTH) ||
         (double)p->m * (double)p->n * (double)p->k < SMALL;
}

static void multiply_whole(const heed__kernels *kernels, const product *p) {
  if (p->m == 0 || p->n == 0) return;
  if (is_dot(p))
    p->c[0] = kernels->dot(p->a, p->a_column, p->b, p->b_row, (size_t)p->k) + (p->bias ? p->bias[0] : 0);
  else
    (void)kernels->gemm((size_t)p->m, (size_t)p->n, (size_t)p->k, p->a, p->a_row, p->a_column, p->b, p->b_row,
                        p->b_column, p->bias, p->c, p->c_row, NULL, NULL, NULL);
}

void heed__gemm_prepare(heed_context *ctx, const product *p) {
  if (!is_whole(p)) (void)blas_takes(ctx, p);
}

void heed__gemm_begin(heed_context *ctx, heed__gemm_work *g, const product *p) {
  const int64_t m = p->m, n = p->n, k = p->k;
  g->kernels = heed__kernels_of(ctx);
  g->whole = *p;
  g->divided = !is_whole(p);
  if (!g->divided) return;
  g->rows = m;
  g->columns = n;
  g->scratch = NULL;
  g->blas = blas_takes(ctx, p) ? &ctx->blas : NULL;
  if (is_dot(p)) {
    g->across = 1;
    heed__work_begin(ctx, &g->work, 1, 1, multiply_dot, g);
    return;
  }
  if (g->blas) { /* it packs both sides again in each slice */
    g->rows = heed__part_of(m, BLAS_SIDE, 1);
    g->columns = heed__part_of(n, BLAS_SIDE, 1);
  } else if (!divide_into_blocks(ctx, g)) {
    const bool in_runs = m <= FEW_ROWS && p->b_column == 1 && n > 1;
    const double columns = (double)SLICE / ((double)heed__max(m, MEMORY_ROWS) * (double)heed__max(k, 1));
    g->columns =
        columns >= (double)n ? n : heed__part_of(n, heed__max(in_runs ? 2048 : 64, (int64_t)columns), 64);
    const double rows = (double)SLICE / ((double)g->columns * (double)heed__max(k, 1));
    g->rows = rows >= (double)m ? m : heed__part_of(m, heed__max(n == 1 ? 2048 : 384, (int64_t)rows), 12);
  }
  g->across = heed__parts(n, g->columns);
  heed__work_begin(ctx, &g->work, heed__workers(ctx), g->across * heed__parts(m, g->rows),
                   g->blas ? multiply_by_blas : multiply_slice, g);
}

bool heed__gemm_run(heed_context *ctx, heed__gemm_work *g) {
  if (g->divided) return heed__work_run(ctx, &g->work);
  multiply_whole(g->kernels, &g->whole);
  return true;
}

void heed__gemm_end(heed_context *ctx, heed__gemm_work *g) {
  if (!g->divided) return;
  heed__work_end(ctx, &g->work);
  heed__release(ctx, g->scratch);
}

bool heed__gemm(heed_context *ctx, int64_t m, int64_t n, int64_t k, const float *a, ptrdiff_t a_row,
                ptrdiff_t a_column, const float *b, ptrdiff_t b_row, ptrdiff_t b_column, const float *bias,
                float *c, ptrdiff_t c_row) {
  const product p = {m, n, k, a, b, bias, c, a_row, a_column, b_row, b_column, c_row};
  heed__gemm_work g;
  heed__gemm_begin(ctx, &g, &p);
  const bool done = heed__gemm_run(ctx, &g);
  heed__gemm_end(ctx, &g);
  return done;
}
