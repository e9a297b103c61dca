/* The only owner of threads: a pool for each context, started at the first need, whose workers take tasks
 * from one queue. The platform is POSIX threads, Windows's or none, and nothing outside of this file knows.
 */
#define _POSIX_C_SOURCE 200809L

#include "core.h"

#include <assert.h>
#include <fenv.h>
#include <stdatomic.h>
#if defined(_WIN32)
#include <windows.h>
#elif defined(__wasm__) && !defined(_REENTRANT) /* which -pthread defines */
#define NO_THREADS
#else
#include <pthread.h>
#include <signal.h>
#endif

/* Of a worker's stack; tasks keep less than a tenth of it, and the host's thread-local data lie there, too.
 */
#define STACK_BYTES ((size_t)1 << 20)

/* Seconds that a worker without work, or a caller whose workers have not ended, looks out before it sleeps:
 * about what it costs to be woken (measured: 8 tasks of 50 µs on two processors take 202 µs where the worker
 * looks out, 212 to 223 where it sleeps). */
#define SPIN 30e-6

/* ---- The platform ---- */

static void *work(void *argument);

#if defined(NO_THREADS)
enum { MOST_THREADS = 1 };
#else
enum { MOST_THREADS = HEED_MAX_THREADS };
#endif

#if defined(_WIN32)

typedef SRWLOCK mutex;
typedef CONDITION_VARIABLE condition;
typedef HANDLE thread;
#define NEW_MUTEX     SRWLOCK_INIT
#define NEW_CONDITION CONDITION_VARIABLE_INIT

static void lock_mutex(mutex *m) {
  AcquireSRWLockExclusive(m);
}
static void unlock_mutex(mutex *m) {
  ReleaseSRWLockExclusive(m);
}
static void await(condition *c, mutex *m) {
  SleepConditionVariableSRW(c, m, INFINITE, 0);
}
static void wake_one(condition *c) {
  WakeConditionVariable(c);
}
static void wake_all(condition *c) {
  WakeAllConditionVariable(c);
}
static void forget(mutex *m, condition *c1, condition *c2) {
  (void)m, (void)c1, (void)c2; /* they hold nothing */
}

static DWORD WINAPI work_for_windows(void *argument) {
  work(argument);
  return 0;
}
/* Starts up to `count` threads that work(argument); returns how many there are. */
static int start_threads(thread *threads, int count, void *argument) {
  for (int i = 0; i < count; i++) {
    threads[i] =
        CreateThread(NULL, STACK_BYTES, work_for_windows, argument, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    if (threads[i] == NULL) return i;
  }
  return count;
}
static void join_thread(thread t) {
  WaitForSingleObject(t, INFINITE);
  CloseHandle(t);
}

#elif defined(NO_THREADS) /* nothing is ever locked, or waited for */

typedef char mutex, condition, thread;
#define NEW_MUTEX     0
#define NEW_CONDITION 0

static void lock_mutex(mutex *m) {
  (void)m;
}
static void unlock_mutex(mutex *m) {
  (void)m;
}
static void await(condition *c, mutex *m) {
  (void)c, (void)m;
}
static void wake_one(condition *c) {
  (void)c;
}
static void wake_all(condition *c) {
  (void)c;
}
static void forget(mutex *m, condition *c1, condition *c2) {
  (void)m, (void)c1, (void)c2;
}
static void join_thread(thread t) {
  (void)t;
}
static int start_threads(thread *threads, int count, void *argument) {
  (void)threads, (void)count, (void)argument, (void)work;
  return 0;
}

#else

typedef pthread_mutex_t mutex;
typedef pthread_cond_t condition;
typedef pthread_t thread;
#define NEW_MUTEX     PTHREAD_MUTEX_INITIALIZER
#define NEW_CONDITION PTHREAD_COND_INITIALIZER

static void lock_mutex(mutex *m) {
  pthread_mutex_lock(m);
}
static void unlock_mutex(mutex *m) {
  pthread_mutex_unlock(m);
}
static void await(condition *c, mutex *m) {
  pthread_cond_wait(c, m);
}
static void wake_one(condition *c) {
  pthread_cond_signal(c);
}
static void wake_all(condition *c) {
  pthread_cond_broadcast(c);
}
static void forget(mutex *m, condition *c1, condition *c2) {
  pthread_mutex_destroy(m);
  pthread_cond_destroy(c1);
  pthread_cond_destroy(c2);
}

/* Starts up to `count` threads that work(argument); returns how many there are. They leave all signals to the
 * host's threads. */
static int start_threads(thread *threads, int count, void *argument) {
  pthread_attr_t attributes;
  sigset_t all, before;
  int started = 0;
  if (pthread_attr_init(&attributes) != 0) return 0;
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (started < count && pthread_create(&threads[started], &attributes, work, argument) == 0) started++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return started;
}
static void join_thread(thread t) {
  pthread_join(t, NULL);
}

#endif

/* ---- The queue ---- */

/* More tasks than that come in turns: a place in the queue has 32 bits. */
#define MOST_TASKS ((int64_t)1 << 31)

/* What a worker copies under the lock. */
typedef struct job {
  uint32_t number; /* wraps */
  uint32_t count;
  int64_t first;
  heed__task *task;
  void *argument;
  const heed__pace *pace;
  fenv_t environment; /* the caller's rounding and flushing */
} job;

/* The queue tells which job it belongs to, so that a worker that comes late takes nothing from the next one,
 * and the caller waits for tasks, never for workers that are kept from running without one. */
struct heed__pool {
  mutex lock;      /* of job, closing and asleep */
  condition wake;  /* a job has come, or the end */
  condition ended; /* the last task of a job */
  job job;
  bool closing;
  int asleep;
  bool busy;   /* there is a job; read by its tasks */
  int started; /* workers, asleep or not */
  double spin;
  _Alignas(HEED__ALIGNMENT) _Atomic(uint64_t) queue; /* number of the job · 2³² + its next task */
  _Alignas(HEED__ALIGNMENT) _Atomic(uint32_t) done;  /* tasks of the job */
  _Atomic(int) numbers; /* given out, each to a thread at its first task: no more than the job has tasks */
  _Alignas(HEED__ALIGNMENT) thread workers[];
};

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* ---- Tasks ---- */

/* The next task of that job, if there is one. */
static bool take(struct heed__pool *pool, const job *j, uint32_t *i) {
  uint64_t at = atomic_load_explicit(&pool->queue, memory_order_relaxed);
  do {
    *i = (uint32_t)at;
    if ((uint32_t)(at >> 32) != j->number || *i >= j->count) return false;
  } while (!atomic_compare_exchange_weak_explicit(&pool->queue, &at, at + 1, memory_order_relaxed,
                                                  memory_order_relaxed));
  return true;
}

/* Takes all that are left of that job, to leave them out; how many. */
static uint32_t take_all(struct heed__pool *pool, const job *j) {
  const uint64_t end = (uint64_t)j->number << 32 | j->count;
  uint64_t at = atomic_load_explicit(&pool->queue, memory_order_relaxed);
  do {
    if ((uint32_t)(at >> 32) != j->number || (uint32_t)at >= j->count) return 0;
  } while (!atomic_compare_exchange_weak_explicit(&pool->queue, &at, end, memory_order_relaxed,
                                                  memory_order_relaxed));
  return j->count - (uint32_t)at;
}

/* Whether this thread ended the last one. The pace is looked at with a task in hand only: the caller, who may
 * change it, then waits. */
static bool run_tasks(struct heed__pool *pool, const job *j) {
  bool last = false;
  int number = -1;
  for (uint32_t i; take(pool, j, &i);) {
    uint32_t count = 1;
    if (heed__is_due(j->pace)) {
      count += take_all(pool, j);
    } else {
      if (number < 0) number = atomic_fetch_add_explicit(&pool->numbers, 1, memory_order_relaxed);
      j->task(j->argument, j->first + i, number);
    }
    last = atomic_fetch_add_explicit(&pool->done, count, memory_order_acq_rel) == j->count - count;
  }
  return last;
}

/* Looks at the condition until it holds or it is time to sleep. */
#define LOOK_OUT(pool, condition)                                                                            \
  do {                                                                                                       \
    const double end_ = heed_clock() + (pool)->spin;                                                         \
    do {                                                                                                     \
      for (int i_ = 0; i_ < 32 && !(condition); i_++) relax();                                               \
    } while (!(condition) && heed_clock() < end_);                                                           \
  } while (0)

/* ---- Workers ---- */

static uint32_t job_in_queue(struct heed__pool *pool) {
  return (uint32_t)(atomic_load_explicit(&pool->queue, memory_order_relaxed) >> 32);
}

static void *work(void *argument) {
  struct heed__pool *pool = argument;
  job own = {0};
  lock_mutex(&pool->lock);
  while (!pool->closing) {
    if (pool->job.number == own.number) {
      pool->asleep++;
      await(&pool->wake, &pool->lock);
      pool->asleep--;
      continue;
    }
    own = pool->job;
    unlock_mutex(&pool->lock);
    fesetenv(&own.environment);
    if (run_tasks(pool, &own)) {
      lock_mutex(&pool->lock); /* the caller is either asleep or yet to look */
      wake_one(&pool->ended);
      unlock_mutex(&pool->lock);
    }
    LOOK_OUT(pool, job_in_queue(pool) != own.number);
    lock_mutex(&pool->lock);
  }
  unlock_mutex(&pool->lock);
  return NULL;
}

/* ---- The pool ---- */

/* The pool of a context with several threads; NULL if there is no memory for it. */
static struct heed__pool *pool_of(heed_context *ctx) {
  if (ctx->pool) return ctx->pool;
  const int count = ctx->threads - 1;
  struct heed__pool *pool = heed__allocate(ctx, sizeof *pool + (size_t)count * sizeof *pool->workers);
  if (!pool) return NULL;
  *pool = (struct heed__pool){.lock = NEW_MUTEX,
                              .wake = NEW_CONDITION,
                              .ended = NEW_CONDITION,
                              .spin = ctx->threads <= heed__system_processors() ? SPIN : 0};
  pool->started = start_threads(pool->workers, count, pool); /* fewer, or none, where the system refuses */
  if (pool->started < count) {
    ctx->threads = pool->started + 1;
    heed__log(ctx, HEED_LOG_WARNING, "the system gave %d thread%s of the %d that were to help", pool->started,
              HEED__S(pool->started), count);
  }
  return ctx->pool = pool;
}

static bool is_forked(const heed_context *ctx) {
  return ctx->process != heed__system_process();
}

void heed__stop_threads(heed_context *ctx) {
  struct heed__pool *pool = ctx->pool;
  if (!pool) return;
  if (!is_forked(ctx)) { /* else the threads are the parent's, and the locks as they were at the fork */
    assert(!pool->busy);
    lock_mutex(&pool->lock);
    pool->closing = true;
    unlock_mutex(&pool->lock);
    wake_all(&pool->wake);
    for (int i = 0; i < pool->started; i++) join_thread(pool->workers[i]);
    forget(&pool->lock, &pool->wake, &pool->ended);
  }
  ctx->pool = NULL;
  heed__release(ctx, pool);
}

/* ---- What others call ---- */

int heed_num_threads(const heed_context *ctx) {
  if (ctx == NULL) return 0;
  return ctx->threads == 1 || is_forked(ctx) ? 1 : ctx->threads;
}

heed_status heed_set_num_threads(heed_context *ctx, int64_t n) {
  HEED__ENTER(ctx, "set_num_threads", ctx);
  if (n < 1 || n > HEED_MAX_THREADS)
    return heed__fail(ctx, HEED_ARGUMENT, "set_num_threads: n is %lld; it must be from 1 to %d", (long long)n,
                      HEED_MAX_THREADS);
  if (ctx->limits.threads > 0 && n > ctx->limits.threads)
    return heed__fail(ctx, HEED_LIMIT, "set_num_threads: n is %lld and the limit is %d", (long long)n,
                      ctx->limits.threads);
  if (n > MOST_THREADS) {
    heed__log(ctx, HEED_LOG_WARNING, "this system has no threads: the caller's does all the work");
    n = MOST_THREADS;
  }
  if (n == heed_num_threads(ctx)) return HEED_OK;
  heed__stop_threads(ctx);
  ctx->threads = (int)n;
  ctx->process = heed__system_process();
  return HEED_OK;
}

int heed__workers(const heed_context *ctx) {
  return ctx->threads == 1 || (ctx->pool && ctx->pool->busy) ? 1 : heed_num_threads(ctx);
}

/* Hands the job to the queue, and wakes as many workers as it has tasks for and are not awake. */
static void open_job(struct heed__pool *pool, job *j) {
  lock_mutex(&pool->lock);
  j->number = pool->job.number + 1;
  pool->job = *j;
  const int64_t asleep = pool->asleep, wanted = (int64_t)j->count - 1 - (pool->started - asleep);
  atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
  atomic_store_explicit(&pool->numbers, 0, memory_order_relaxed);
  atomic_store_explicit(&pool->queue, (uint64_t)j->number << 32, memory_order_relaxed);
  unlock_mutex(&pool->lock);
  if (wanted >= asleep) {
    if (asleep > 0) wake_all(&pool->wake);
  } else {
    for (int64_t i = 0; i < wanted; i++) wake_one(&pool->wake);
  }
}

static bool has_ended(struct heed__pool *pool, const job *j) {
  return atomic_load_explicit(&pool->done, memory_order_acquire) == j->count;
}

static void await_end(struct heed__pool *pool, const job *j) {
  LOOK_OUT(pool, has_ended(pool, j));
  if (has_ended(pool, j)) return;
  lock_mutex(&pool->lock);
  while (!has_ended(pool, j)) await(&pool->ended, &pool->lock);
  unlock_mutex(&pool->lock);
}

bool heed__parallel(heed_context *ctx, int64_t count, heed__task *task, void *argument) {
  struct heed__pool *pool = count > 1 && heed__workers(ctx) > 1 ? pool_of(ctx) : NULL;
  if (!pool) {
    for (int64_t i = 0; i < count && !heed__is_due(&ctx->pace); i++) task(argument, i, 0);
    return !heed__is_due(&ctx->pace);
  }
  job j = {.task = task, .argument = argument, .pace = &ctx->pace};
  fegetenv(&j.environment);
  pool->busy = true;
  for (; j.first < count && !heed__is_due(&ctx->pace); j.first += MOST_TASKS) {
    j.count = (uint32_t)(count - j.first < MOST_TASKS ? count - j.first : MOST_TASKS);
    open_job(pool, &j);
    run_tasks(pool, &j);
    await_end(pool, &j);
  }
  pool->busy = false;
  return !heed__is_due(&ctx->pace);
}
