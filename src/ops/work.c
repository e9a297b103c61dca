/* Resumable tasks on the threads of the context (works.h). */
#include "ops.h"

void heed__work_begin(heed_context *ctx, heed__work *work, int workers, int64_t count,
                      bool (*run)(void *argument, int64_t task, int slot, int64_t *position),
                      void *argument) {
  work->count = count;
  work->run = run;
  work->argument = argument;
  work->pace = &ctx->pace;
  atomic_init(&work->next, 0);
  atomic_init(&work->pieces, 0);
  work->slots = workers < count ? workers : count > 0 ? (int)count : 1;
  work->slot = &work->one;
  if (work->slots > 1) work->slot = heed__allocate(ctx, (size_t)work->slots * sizeof *work->slot);
  if (work->slot == NULL) {
    work->slots = 1;
    work->slot = &work->one;
  }
  for (int i = 0; i < work->slots; i++) work->slot[i] = (heed__work_slot){-1, 0};
}

void heed__work_end(heed_context *ctx, heed__work *work) {
  if (work->slot != &work->one) heed__release(ctx, work->slot);
  work->slot = &work->one;
  work->slots = 1;
}

/* Resumes the task of slot i, then begins further tasks, until none is left or a cancellation check stops it.
 */
static void run_slot(void *argument, int64_t i, int worker) {
  heed__work *work = argument;
  heed__work_slot own = work->slot[i];
  (void)worker;
  do {
    if (own.task < 0) {
      own.task = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed);
      if (own.task >= work->count) own.task = -1;
    }
    if (own.task < 0) break;
    atomic_fetch_add_explicit(&work->pieces, 1, memory_order_relaxed);
    if (!work->run(work->argument, own.task, (int)i, &own.position)) break;
    own = (heed__work_slot){-1, 0};
  } while (!heed__is_due(work->pace));
  work->slot[i] = own;
}

static bool is_done(const heed__work *work) {
  if (atomic_load_explicit(&work->next, memory_order_relaxed) < work->count) return false;
  for (int i = 0; i < work->slots; i++) {
    if (work->slot[i].task >= 0) return false;
  }
  return true;
}

/* The first slot with a task to resume, else 0. */
static int slot_to_run(const heed__work *work) {
  for (int i = 0; i < work->slots; i++) {
    if (work->slot[i].task >= 0) return i;
  }
  return 0;
}

bool heed__work_run(heed_context *ctx, heed__work *work) {
  if (is_done(work)) return true;
  const int64_t before = atomic_load_explicit(&work->pieces, memory_order_relaxed);
  /* Tasks that heed__parallel did not finish stay in their slots. */
  if (work->slots > 1 && heed__parallel(ctx, work->slots, run_slot, work)) return is_done(work);
  if (work->slots == 1 || atomic_load_explicit(&work->pieces, memory_order_relaxed) == before)
    run_slot(work, slot_to_run(work), 0);
  return is_done(work);
}

/* The progress within an unfinished task is not known: it is estimated by a function that grows with the
 * position. */
double heed__work_progress(const heed__work *work) {
  if (work->count <= 0) return 1;
  const int64_t next = atomic_load_explicit(&work->next, memory_order_relaxed);
  double done = (double)heed__min(next, work->count);
  for (int i = 0; i < work->slots; i++) {
    const heed__work_slot *slot = &work->slot[i];
    if (slot->task >= 0) done -= 64 / (64 + (double)slot->position);
  }
  return done / (double)work->count;
}
