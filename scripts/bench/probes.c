/* The best rates of the machine, measured between the contenders: multiply-adds in registers, bytes read.
 * Also a loop for calls that are shorter than a call from Python. `make bench` builds it in build/bench. */
#include "../../src/heed.h"

#include <pthread.h>
#include <string.h>

enum { MAX_THREADS = 256 };

HEED_API double probe_multiply_add(const char *kernels, int64_t turns, int threads);
HEED_API double probe_read(const char *kernels, const void *const *blocks, const int64_t *bytes, int count,
                           int threads);
HEED_API double probe_forward(heed_module *m, const heed_tensor *x, int64_t turns);

/* ---- One thread's work, for each width of vector ---- */

/* `parts` independent chains hide the latency of the multiply-add and fit into the registers; they stay there
 * only if each loop over them is unrolled. */
#if defined(__clang__)
#define UNROLLED(parts) _Pragma("clang loop unroll(full)") for (int part = 0; part < parts; part++)
#else
#define UNROLLED(parts) _Pragma("GCC unroll 32") for (int part = 0; part < parts; part++)
#endif
#define PROBES(name, attributes, lanes, parts)                                                               \
  typedef float name##_vector __attribute__((vector_size(4 * lanes), aligned(4)));                           \
  attributes static double multiply_add_##name(int64_t turns, float *sink) {                                 \
    name##_vector sum[parts], factor = {0}, term = {0};                                                      \
    factor += 0.5f, term += sink[0];                                                                         \
    UNROLLED(parts) sum[part] = term * (float)part;                                                          \
    for (int64_t turn = 0; turn < turns; turn++) {                                                           \
      UNROLLED(parts) sum[part] = sum[part] * factor + term;                                                 \
    }                                                                                                        \
    UNROLLED(parts) sink[0] += sum[part][0];                                                                 \
    return 2.0 * lanes * parts * (double)turns;                                                              \
  }                                                                                                          \
  attributes static void read_##name(const char *data, int64_t bytes, float *sink) {                         \
    name##_vector sum[8];                                                                                    \
    UNROLLED(8) sum[part] = (name##_vector){0};                                                              \
    for (int64_t i = 0; i + (int64_t)sizeof(sum) <= bytes; i += (int64_t)sizeof(sum)) {                      \
      UNROLLED(8) sum[part] += ((const name##_vector *)(const void *)(data + i))[part];                      \
    }                                                                                                        \
    for (int lane = 0; lane < lanes; lane++) {                                                               \
      UNROLLED(8) sink[0] += sum[part][lane];                                                                \
    }                                                                                                        \
  }

#if defined(__x86_64__)
PROBES(scalar, , 4, 12)
PROBES(avx2, __attribute__((target("avx2,fma"))), 8, 12)
PROBES(avx512, __attribute__((target("avx512f"))), 16, 24)
#else
PROBES(scalar, , 4, 24)
#endif

/* ---- On several threads ---- */

typedef struct job {
  pthread_t thread;
  const char *kernels;
  int64_t turns; /* multiply-adds if above 0, else reading */
  const void *const *blocks;
  const int64_t *bytes;
  int count, index, threads;
  double work, seconds;
  float sink; /* the result, which keeps the computation from being removed */
} job;

static void multiply_add(job *j) {
  j->sink = 1;
#if defined(__x86_64__)
  if (strcmp(j->kernels, "avx512") == 0)
    j->work = multiply_add_avx512(j->turns, &j->sink);
  else if (strcmp(j->kernels, "avx2") == 0)
    j->work = multiply_add_avx2(j->turns, &j->sink);
  else
#endif
    j->work = multiply_add_scalar(j->turns, &j->sink);
}

static void read_share(job *j) {
  for (int i = 0; i < j->count; i++) {
    const int64_t share = j->bytes[i] / j->threads / 64 * 64;
    const char *data = (const char *)j->blocks[i] + share * j->index;
#if defined(__x86_64__)
    if (strcmp(j->kernels, "avx512") == 0)
      read_avx512(data, share, &j->sink);
    else if (strcmp(j->kernels, "avx2") == 0)
      read_avx2(data, share, &j->sink);
    else
#endif
      read_scalar(data, share, &j->sink);
    j->work += (double)share;
  }
}

static void *run(void *argument) {
  job *j = argument;
  const double start = heed_clock();
  if (j->turns > 0)
    multiply_add(j);
  else
    read_share(j);
  j->seconds = heed_clock() - start;
  return NULL;
}

/* The sum of the threads' rates, each over its own time, which excludes the start of the threads. */
static double rate(job wanted) {
  static job jobs[MAX_THREADS];
  const int threads = wanted.threads < MAX_THREADS ? wanted.threads : MAX_THREADS;
  double sum = 0;
  int started = 1;
  for (int i = 0; i < threads; i++) {
    jobs[i] = wanted;
    jobs[i].index = i;
  }
  while (started < threads && pthread_create(&jobs[started].thread, NULL, run, &jobs[started]) == 0)
    started++;
  run(&jobs[0]);
  for (int i = 1; i < started; i++) pthread_join(jobs[i].thread, NULL);
  for (int i = 0; i < started; i++) sum += jobs[i].work / jobs[i].seconds;
  return sum;
}

/** Floating-point operations per second, two for each multiply-add. */
double probe_multiply_add(const char *kernels, int64_t turns, int threads) {
  return rate((job){.kernels = kernels, .turns = turns, .threads = threads});
}

/** Bytes read per second, from several blocks of memory in sequence. */
double probe_read(const char *kernels, const void *const *blocks, const int64_t *bytes, int count,
                  int threads) {
  return rate(
      (job){.kernels = kernels, .blocks = blocks, .bytes = bytes, .count = count, .threads = threads});
}

/** Seconds for a forward pass of a module, with a new result each time; negative after a failure. */
double probe_forward(heed_module *m, const heed_tensor *x, int64_t turns) {
  const double start = heed_clock();
  for (int64_t i = 0; i < turns; i++) {
    heed_tensor *out = NULL;
    if (heed_module_forward(m, x, NULL, &out, NULL) != HEED_OK) return -1;
    heed_tensor_free(out);
  }
  return (heed_clock() - start) / (double)turns;
}
