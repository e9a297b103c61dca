/* A backward pass in slices of time. The unit is a node. Between two slices the nodes keep nothing of the
 * pass, so that other passes may go through the same graph. */
#include "pass.h"

#include <math.h>
#include <string.h>

static const char backward_steps_name[] = "backward_steps";

/* A node that the pass has reached, between two slices. */
typedef struct parked_node {
  heed__node *node;
  heed_tensor **pending; /* node->outputs */
} parked_node;

struct heed_backward_steps {
  heed_context *context; /* holds a reference */
  heed__pass pass;
  heed_status failed;
  bool finished;
  int64_t done, total;     /* nodes */
  parked_node *parked;     /* in the order of the list */
  heed_tensor **gradients; /* theirs */
  size_t count;
  heed__node **passed; /* nodes that have been gone through, and keep no gradient */
  size_t passed_count, passed_capacity;
};

/* ---- Between two slices ---- */

static void release_parked(heed_backward_steps *s) {
  heed__release(s->context, s->parked);
  heed__release(s->context, s->gradients);
  s->parked = NULL;
  s->gradients = NULL;
  s->count = 0;
}

/* Lets go of the nodes that have been gone through. spend: of what they saved, too. */
static void release_passed(heed_backward_steps *s, bool spend) {
  for (size_t i = 0; i < s->passed_count; i++) {
    if (spend) heed__node_spend(s->passed[i]);
    heed__node_drop(s->passed[i]);
  }
  heed__release(s->context, s->passed);
  s->passed = NULL;
  s->passed_count = s->passed_capacity = 0;
}

static bool waits(const heed__node *node) {
  for (int i = 0; i < node->outputs; i++)
    if (node->pending[i] != NULL) return true;
  return node->gradient == NULL;
}

static heed_status reserve_passed(heed_backward_steps *s, size_t more) {
  if (s->passed_count + more <= s->passed_capacity) return HEED_OK;
  const size_t capacity = 2 * s->passed_capacity + more,
               bytes = heed__array_bytes(capacity, sizeof(heed__node *));
  heed__node **larger = heed__allocate(s->context, bytes);
  if (larger == NULL) return heed__fail_memory(s->context, backward_steps_name, bytes);
  if (s->passed_count > 0) memcpy(larger, s->passed, s->passed_count * sizeof(*larger));
  heed__release(s->context, s->passed);
  s->passed = larger;
  s->passed_capacity = capacity;
  return HEED_OK;
}

/* Takes the gradients out of the nodes. Those without any are set aside for good, so that the time of a slice
 * does not grow with what has been done. */
static heed_status park(heed_backward_steps *s) {
  uint64_t nodes = 0, outputs = 0;
  size_t passed = 0;
  for (const heed__node *node = s->pass.touched; node != NULL; node = node->next) {
    const bool kept = waits(node);
    passed += !kept;
    nodes += kept;
    outputs += kept ? (uint64_t)node->outputs : 0;
  }
  const heed_status status = reserve_passed(s, passed);
  if (status) return status;
  const size_t bytes = heed__array_bytes(nodes, sizeof(parked_node)),
               more = heed__array_bytes(outputs, sizeof(heed_tensor *));
  s->parked = heed__allocate(s->context, bytes);
  s->gradients = heed__allocate(s->context, more);
  if (s->parked == NULL || s->gradients == NULL) {
    release_parked(s);
    return heed__fail_memory(s->context, backward_steps_name, bytes + more);
  }
  heed_tensor **at = s->gradients;
  for (heed__node *node = s->pass.touched, *next; node != NULL; node = next) {
    next = node->next;
    node->next = NULL;
    node->is_touched = false;
    if (!waits(node)) {
      s->passed[s->passed_count++] = node;
      continue;
    }
    s->parked[s->count++] = (parked_node){node, at};
    memcpy(at, node->pending, (size_t)node->outputs * sizeof(*at));
    memset(node->pending, 0, (size_t)node->outputs * sizeof(*at));
    at += node->outputs;
  }
  s->pass.touched = NULL;
  return HEED_OK;
}

static void unpark(heed_backward_steps *s) {
  for (size_t i = s->count; i-- > 0;) {
    heed__node *node = s->parked[i].node;
    memcpy(node->pending, s->parked[i].pending, (size_t)node->outputs * sizeof(heed_tensor *));
    node->is_touched = true;
    node->next = s->pass.touched;
    s->pass.touched = node;
  }
  release_parked(s);
}

/* ---- Progress ---- */

/* Counts the nodes that the pass will go through: in the order of their numbers, so that the same ones come
 * one after the other. */
static heed_status count_nodes(heed_backward_steps *s) {
  heed_context *ctx = s->context;
  heed__pass counting = {.ctx = ctx};
  heed_status status = HEED_OK;
  for (size_t i = 0; i < s->pass.count && status == HEED_OK; i++)
    status = heed__pass_push(&counting, s->pass.heap[i]);
  const heed__node *last = NULL;
  while (status == HEED_OK && counting.count > 0) {
    if (heed__is_due(&ctx->pace)) status = heed__stopped(ctx, backward_steps_name);
    const heed__node *node = heed__pass_next(&counting);
    if (node == last) continue;
    last = node;
    s->total++;
    for (int i = 0; i < node->inputs && status == HEED_OK; i++)
      if (node->input[i] != NULL && node->input[i]->gradient != NULL)
        status = heed__pass_push(&counting, node->input[i]);
  }
  heed__release(ctx, counting.heap);
  return status;
}

void heed_backward_steps_progress(const heed_backward_steps *s, int64_t *done, int64_t *total) {
  if (done != NULL) *done = s != NULL ? s->done : 0;
  if (total != NULL) *total = s != NULL ? s->total : 0;
}

/* ---- Slices ---- */

static heed_status check_idle(heed_context *ctx) {
  if (ctx->backward == NULL) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT,
                    "backward_steps: a backward pass is running; a hook or a function must not begin another "
                    "one");
}

heed_status heed_backward_steps_new(heed_context *ctx, int count, const heed_tensor *const *y,
                                    const heed_tensor *const *dy, const heed_backward_options *options,
                                    heed_backward_steps **out) {
  HEED__ENTER(ctx, backward_steps_name, y, out);
  heed_status status = heed__pass_check_count(ctx, backward_steps_name, "count", count);
  if (status == HEED_OK) status = heed__check_tensors(ctx, backward_steps_name, "y", count, y);
  for (int i = 0; i < count && dy != NULL && status == HEED_OK; i++)
    if (dy[i] != NULL) status = heed__check_tensors(ctx, backward_steps_name, "dy", 1, &dy[i]);
  if (status == HEED_OK) status = check_idle(ctx);
  if (status) return status;
  heed_backward_steps *s = heed__allocate(ctx, sizeof(*s));
  if (s == NULL) return heed__fail_memory(ctx, backward_steps_name, sizeof(*s));
  *s = (heed_backward_steps){.context = ctx, .pass = {.ctx = ctx}};
  ctx->references++;
  status = heed__pass_options(ctx, backward_steps_name, options, &s->pass.options);
  const heed__recorder *recorder = heed__pause_recording(ctx);
  for (int i = 0; i < count && status == HEED_OK; i++)
    status = heed__pass_start(&s->pass, backward_steps_name, i, y[i], dy != NULL ? dy[i] : NULL);
  heed__resume_recording(ctx, recorder);
  if (status == HEED_OK) status = count_nodes(s);
  s->total++; /* the end of the pass */
  if (status == HEED_OK) status = park(s);
  if (status) {
    heed_backward_steps_free(s);
    return heed__name_failure(ctx, backward_steps_name, status);
  }
  *out = s;
  return HEED_OK;
}

static void fail_steps(heed_backward_steps *s, heed_status status) {
  heed__pass_clean(&s->pass, false);
  release_passed(s, false);
  s->pass = (heed__pass){.ctx = s->context};
  s->failed = status;
}

heed_status heed_backward_steps_advance(heed_backward_steps *s, double seconds, bool *done) {
  heed_context *ctx = s != NULL ? s->context : NULL;
  HEED__ENTER(ctx, backward_steps_name, done);
  if (!(seconds >= 0))
    return heed__fail(ctx, HEED_ARGUMENT, "%s: seconds is %s; it must be 0 or more", backward_steps_name,
                      HEED__G(seconds));
  if (s->failed)
    return heed__fail(ctx, s->failed, "%s: an earlier slice has failed; begin a new pass",
                      backward_steps_name);
  *done = s->finished;
  if (s->finished) return HEED_OK;
  heed_status status = check_idle(ctx);
  if (status) return status;
  const double end = heed_clock() + seconds;
  const heed__recorder *recorder = heed__pause_recording(ctx);
  ctx->backward = &s->pass;
  unpark(s);
  do {
    if (s->pass.count == 0) {
      status = heed__pass_end(&s->pass);
      s->finished = status == HEED_OK;
    } else {
      if (heed__is_due(&ctx->pace)) status = heed__stopped(ctx, backward_steps_name);
      if (status == HEED_OK) status = heed__pass_through(&s->pass, heed__pass_next(&s->pass));
    }
    s->done += status == HEED_OK;
  } while (status == HEED_OK && !s->finished && heed_clock() < end);
  ctx->backward = NULL;
  heed__resume_recording(ctx, recorder);
  if (s->finished) {
    heed__pass_clean(&s->pass, !s->pass.options.retain_graph);
    release_passed(s, !s->pass.options.retain_graph);
    s->pass = (heed__pass){.ctx = ctx};
    s->done = s->total;
  } else if (status == HEED_OK) {
    if (s->done >= s->total) s->done = s->total - 1; /* hooks and checkpoints may have added nodes */
    status = park(s);
  }
  if (status) fail_steps(s, status);
  *done = s->finished;
  return heed__name_failure(ctx, backward_steps_name, status);
}

void heed_backward_steps_free(heed_backward_steps *s) {
  if (s == NULL) return;
  heed_context *ctx = s->context;
  for (size_t i = 0; i < s->count; i++) { /* without a look at what the nodes have of another pass */
    for (int k = 0; k < s->parked[i].node->outputs; k++) heed_tensor_free(s->parked[i].pending[k]);
    heed__node_drop(s->parked[i].node);
  }
  release_parked(s);
  release_passed(s, false);
  heed__pass_clean(&s->pass, false);
  heed__release(ctx, s);
  heed__context_drop(ctx);
}
