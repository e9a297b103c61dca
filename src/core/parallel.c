/* The thread pool of a context, started at first use, whose workers take tasks from one queue. Only this file
 * uses threads: POSIX's, Windows's or none. They are not in system_*.c since a mutex or a condition is a
 * field of the pool, of the system's own type. */
#define _POSIX_C_SOURCE 200809L

#include "core.h"

#include <assert.h>
#include <fenv.h>
#include <math.h>
#include <stdatomic.h>
#if defined(_WIN32)
#include <windows.h>
#elif defined(__wasm__) && !defined(_REENTRANT) /* which -pthread defines */
#define NO_THREADS
#else
#include <pthread.h>
#include <signal.h>
#include <time.h>
#endif

/* A worker's stack; tasks use less than a tenth of it, but the host's thread-local data may be in it, too. */
#define STACK_BYTES ((size_t)1 << 20)

/* Seconds for which an idle worker, or a caller that waits for its workers, spins before it sleeps: about as
 * long as a wake-up takes (measured: 8 tasks of 50 µs on two processors take 202 µs with spinning, 212 to 223
 * µs without). */
#define SPIN 30e-6

/* Seconds after which a waiting caller looks again whether to poll, at the latest. */
#define LONGEST_WAIT 1.0

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
typedef DWORD thread_identity;
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
static void await_for(condition *c, mutex *m, double seconds) {
  SleepConditionVariableSRW(c, m, (DWORD)(seconds * 1000) + 1, 0);
}
static void wake_one(condition *c) {
  WakeConditionVariable(c);
}
static void wake_all(condition *c) {
  WakeAllConditionVariable(c);
}
static void destroy(mutex *m, condition *c1, condition *c2) {
  (void)m, (void)c1, (void)c2; /* own no resources */
}

static thread_identity this_thread(void) {
  return GetCurrentThreadId();
}
static bool is_this_thread(thread_identity caller) {
  return caller == GetCurrentThreadId();
}
static DWORD WINAPI work_for_windows(void *argument) {
  work(argument);
  return 0;
}
/* Starts up to `count` threads that run work(argument); returns how many were started. */
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

#elif defined(NO_THREADS) /* the pool is never started */

typedef char mutex, condition, thread, thread_identity;
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
static void await_for(condition *c, mutex *m, double seconds) {
  (void)c, (void)m, (void)seconds;
}
static thread_identity this_thread(void) {
  return 0;
}
static bool is_this_thread(thread_identity caller) {
  return caller == 0;
}
static void wake_one(condition *c) {
  (void)c;
}
static void wake_all(condition *c) {
  (void)c;
}
static void destroy(mutex *m, condition *c1, condition *c2) {
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
typedef pthread_t thread, thread_identity;
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
static void await_for(condition *c, mutex *m, double seconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  const double end = (double)until.tv_nsec * 1e-9 + seconds;
  until.tv_sec += (time_t)end;
  until.tv_nsec = (long)((end - (double)(time_t)end) * 1e9);
  pthread_cond_timedwait(c, m, &until);
}
static thread_identity this_thread(void) {
  return pthread_self();
}
static bool is_this_thread(thread_identity caller) {
  return pthread_equal(caller, pthread_self()) != 0;
}
static void wake_one(condition *c) {
  pthread_cond_signal(c);
}
static void wake_all(condition *c) {
  pthread_cond_broadcast(c);
}
static void destroy(mutex *m, condition *c1, condition *c2) {
  pthread_mutex_destroy(m);
  pthread_cond_destroy(c1);
  pthread_cond_destroy(c2);
}

/* Starts up to `count` threads that run work(argument); returns how many were started. They block all
 * signals, which the host's threads then receive. */
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

/* More tasks are split into several jobs: a position in the queue has 32 bits. */
#define MOST_TASKS ((int64_t)1 << 31)

/* Copied by each worker under the lock. */
typedef struct job {
  uint32_t number; /* wraps */
  uint32_t count;
  int64_t first;
  heed__task *task;
  void *argument;
  const heed__pace *pace;
  fenv_t environment; /* the caller's rounding and flush modes */
} job;

/* The queue holds the number of its job, so that a late worker takes no task of the next job, and the caller
 * waits for tasks only, not for workers that have none. */
struct heed__pool {
  mutex lock;      /* of job, closing and asleep */
  condition wake;  /* a new job, or closing */
  condition ended; /* the last task of a job is done */
  job job;
  bool closing;
  int asleep;
  bool busy;   /* a job is running; read by its tasks */
  int started; /* number of workers */
  double spin;
  thread_identity caller;                            /* the thread that runs the job, for heed__poll */
  _Alignas(HEED__ALIGNMENT) _Atomic(uint64_t) queue; /* job's number · 2³² + next task */
  _Alignas(HEED__ALIGNMENT) _Atomic(uint32_t) done;  /* number of completed tasks */
  _Atomic(int) numbers; /* of workers, assigned to threads at their first task: at most one per task */
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

/* Takes the next task of that job, if any is left. */
static bool take(struct heed__pool *pool, const job *j, uint32_t *i) {
  uint64_t at = atomic_load_explicit(&pool->queue, memory_order_relaxed);
  do {
    *i = (uint32_t)at;
    if ((uint32_t)(at >> 32) != j->number || *i >= j->count) return false;
  } while (!atomic_compare_exchange_weak_explicit(&pool->queue, &at, at + 1, memory_order_relaxed,
                                                  memory_order_relaxed));
  return true;
}

/* Takes all remaining tasks of that job, to skip them; returns their number. */
static uint32_t take_all(struct heed__pool *pool, const job *j) {
  const uint64_t end = (uint64_t)j->number << 32 | j->count;
  uint64_t at = atomic_load_explicit(&pool->queue, memory_order_relaxed);
  do {
    if ((uint32_t)(at >> 32) != j->number || (uint32_t)at >= j->count) return 0;
  } while (!atomic_compare_exchange_weak_explicit(&pool->queue, &at, end, memory_order_relaxed,
                                                  memory_order_relaxed));
  return j->count - (uint32_t)at;
}

/* Returns whether this thread completed the last task. Reads the pace only after taking a task: until that is
 * done, the caller waits and cannot change the pace. */
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

/* Spins until the condition holds or the thread should sleep. */
#define SPIN_UNTIL(pool, condition)                                                                          \
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
      lock_mutex(&pool->lock); /* so that the caller cannot be between its test and its sleep */
      wake_one(&pool->ended);
      unlock_mutex(&pool->lock);
    }
    SPIN_UNTIL(pool, job_in_queue(pool) != own.number);
    lock_mutex(&pool->lock);
  }
  unlock_mutex(&pool->lock);
  return NULL;
}

/* ---- The pool ---- */

/* The pool of a context with several threads; NULL if out of memory. */
static struct heed__pool *pool_of(heed_context *ctx) {
  if (ctx->pool) return ctx->pool;
  const int count = ctx->threads - 1;
  struct heed__pool *pool = heed__allocate(ctx, sizeof *pool + (size_t)count * sizeof *pool->workers);
  if (!pool) return NULL;
  *pool = (struct heed__pool){.lock = NEW_MUTEX,
                              .wake = NEW_CONDITION,
                              .ended = NEW_CONDITION,
                              .spin = ctx->threads <= heed__system_processors() ? SPIN : 0};
  pool->started = start_threads(pool->workers, count, pool); /* fewer if the system refuses */
  if (pool->started < count) {
    ctx->threads = pool->started + 1;
    heed__log(ctx, HEED_LOG_WARNING, "the system started %d worker thread%s of the %d requested",
              pool->started, HEED__S(pool->started), count);
  }
  return ctx->pool = pool;
}

static bool is_forked(const heed_context *ctx) {
  return ctx->process != heed__system_process();
}

void heed__stop_threads(heed_context *ctx) {
  struct heed__pool *pool = ctx->pool;
  if (!pool) return;
  if (!is_forked(ctx)) { /* in a child, the threads do not exist and the locks may be held */
    assert(!pool->busy);
    lock_mutex(&pool->lock);
    pool->closing = true;
    unlock_mutex(&pool->lock);
    wake_all(&pool->wake);
    for (int i = 0; i < pool->started; i++) join_thread(pool->workers[i]);
    destroy(&pool->lock, &pool->wake, &pool->ended);
  }
  ctx->pool = NULL;
  heed__release(ctx, pool);
}

/* ---- Interface ---- */

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
    return heed__fail(ctx, HEED_LIMIT, "set_num_threads: n is %lld; it must be at most %d, the limit",
                      (long long)n, ctx->limits.threads);
  if (n > MOST_THREADS) {
    heed__log(ctx, HEED_LOG_WARNING, "this system has no threads: all work runs on the caller's");
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

/* Publishes the job, and wakes as many sleeping workers as there are tasks beyond those for the awake ones.
 */
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
  heed__poll_state *poll = j->pace->poll;
  SPIN_UNTIL(pool, has_ended(pool, j));
  if (has_ended(pool, j)) return;
  lock_mutex(&pool->lock);
  while (!has_ended(pool, j)) {
    if (poll == NULL) {
      await(&pool->ended, &pool->lock);
      continue;
    }
    await_for(&pool->ended, &pool->lock, fmin(poll->seconds, LONGEST_WAIT));
    unlock_mutex(&pool->lock);
    heed__poll(poll);
    lock_mutex(&pool->lock);
  }
  unlock_mutex(&pool->lock);
}

/* Called by all threads that check for cancellation. While a job runs, all but the caller's belong to the
 * pool. */
void heed__poll(heed__poll_state *poll) {
  const struct heed__pool *pool = poll->context->pool;
  if (pool != NULL && pool->busy && !is_this_thread(pool->caller)) return;
  const double now = heed_clock();
  if (poll->runs || now < poll->next) return;
  poll->runs = true;
  poll->function(poll->user);
  poll->runs = false;
  poll->next = heed_clock() + poll->seconds;
}

bool heed__parallel(heed_context *ctx, int64_t count, heed__task *task, void *argument) {
  struct heed__pool *pool = count > 1 && heed__workers(ctx) > 1 ? pool_of(ctx) : NULL;
  if (!pool) {
    for (int64_t i = 0; i < count && !heed__is_due(&ctx->pace); i++) task(argument, i, 0);
    return !heed__is_due(&ctx->pace);
  }
  job j = {.task = task, .argument = argument, .pace = &ctx->pace};
  fegetenv(&j.environment);
  pool->caller = this_thread();
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
