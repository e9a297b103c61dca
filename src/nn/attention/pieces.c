/* The stages that process tokens piece by piece: norms and rotation of queries and keys, in place; writing
 * keys and values into the span of a cache. */
#include "stages.h"

enum {
  PIECE = 1 << 18, /* elements, 100 µs: enough to be divided among threads */
  LEAST_TOKENS =
      128, /* from here on heed__rope adds angles, so that pieces have the same bits as the whole */
};

/* The pieces of heads [b, h, n, d] or [h, n, d]: a part of the tokens of one batch item, or all tokens of
 * several items. */
typedef struct pieces {
  int64_t items, tokens; /* of a piece */
  int64_t parts, count;  /* pieces of an item, if they all have as many; pieces in all */
  bool ragged;           /* each piece is of one item, which has pieces of its own number */
} pieces;

/* The new tokens of an item, if the items differ. */
static int64_t tokens_of_item(const heed__attention_stages *p, const heed_tensor *heads, int64_t item) {
  return p->added != NULL ? p->added[item] : heads->shape[heads->ndim - 2];
}

static pieces pieces_of(const heed__attention_stages *p, const heed_tensor *heads) {
  const int64_t batch = heads->ndim == 4 ? heads->shape[0] : 1, n = heads->shape[heads->ndim - 2];
  if (heads->numel == 0) return (pieces){0};
  const int64_t item = heads->numel / batch, token = item / n,
                wanted = heed__max(LEAST_TOKENS, PIECE / token);
  if (p->ragged) {
    pieces c = {.items = 1, .tokens = wanted, .ragged = true};
    for (int64_t i = 0; i < p->options.cache->batch; i++)
      c.count += heed__parts(tokens_of_item(p, heads, i), c.tokens);
    return c;
  }
  pieces c = {.items = heed__max(1, PIECE / item), .tokens = n};
  if (c.items == 1) c.tokens = heed__parts(n, heed__max(1, n / wanted));
  c.parts = heed__parts(n, c.tokens);
  c.count = heed__parts(batch, c.items) * c.parts;
  return c;
}

static void narrow_view(heed_tensor *view, int dim, int64_t first, int64_t most) {
  heed__narrow_on_stack(view, dim, first, heed__min(view->shape[dim] - first, most));
}

/* The same where the items differ: of *item, which is a part of the packed tokens, or an item of heads. */
static int64_t ragged_piece_of(const heed__attention_stages *p, const heed_tensor *heads, const pieces *c,
                               int64_t i, heed_tensor *view, int64_t *item) {
  int64_t before = 0, tokens, parts; /* tokens of the items before */
  for (*item = 0;; ++*item, i -= parts, before += tokens) {
    tokens = tokens_of_item(p, heads, *item);
    parts = heed__parts(tokens, c->tokens);
    if (i < parts) break;
  }
  const int64_t first = i * c->tokens, count = heed__min(tokens - first, c->tokens);
  heed__alias_on_stack(view, heads);
  if (view->ndim == 4) narrow_view(view, 0, *item, 1);
  narrow_view(view, view->ndim - 2, (p->added != NULL ? before : 0) + first, count);
  return first;
}

/* Sets *view to piece i of heads, and *item to the first of its items; returns its first token, from 0. */
static int64_t piece_of(const heed__attention_stages *p, const heed_tensor *heads, const pieces *c, int64_t i,
                        heed_tensor *view, int64_t *item) {
  if (c->ragged) return ragged_piece_of(p, heads, c, i, view, item);
  const int64_t first = i % c->parts * c->tokens;
  *item = i / c->parts * c->items;
  heed__alias_on_stack(view, heads);
  if (view->ndim == 4) narrow_view(view, 0, i / c->parts * c->items, c->items);
  narrow_view(view, view->ndim - 2, first, c->tokens);
  return first;
}

/* Normalises and rotates a piece of queries (0) or keys (1), in place. */
static heed_status shape_piece(heed__attention_stages *p, int which, const pieces *c, int64_t i) {
  static const heed_forward_options none = {.size = sizeof none};
  heed_tensor view, *target = &view;
  int64_t item;
  const int64_t first = piece_of(p, &p->view[which], c, i, &view, &item);
  const int64_t past = c->ragged ? p->options.cache->lengths[item] : p->past;
  heed_module *norm = p->norm[which];
  heed_status status = HEED_OK;
  if (norm != NULL && !p->normed) status = norm->class->forward(norm, &view, &none, &target, NULL);
  if (status != HEED_OK) return status;
  p->normed = true; /* for a retry, in case allocating the angles fails */
  const heed_tensor *positions = heed__stages_positions(p, which);
  if (p->rotary && positions != NULL) {
    heed_tensor own;
    heed__alias_on_stack(&own, positions);
    heed__narrow_on_stack(&own, 0, first, view.shape[view.ndim - 2]);
    status = heed__rope_at(p->m->context, p->m->class->name, &view, &own, &p->rope, &target);
  } else if (p->rotary) {
    status = heed__rope(p->m->context, p->m->class->name, &view, past + first, &p->rope, &target);
  }
  if (status == HEED_OK) p->normed = false;
  return status;
}

/* Turns the rows of heads [b, h, n, d] or [h, n, d], whose elements are contiguous, in place. */
static void turn_heads(heed_tensor *heads) {
  const int last = heads->ndim - 1;
  const int64_t batch = heads->ndim == 4 ? heads->shape[0] : 1;
  const int64_t step = heads->ndim == 4 ? heads->stride[0] : 0;
  for (int64_t i = 0; i < batch; i++)
    for (int64_t h = 0; h < heads->shape[last - 2]; h++)
      for (int64_t r = 0; r < heads->shape[last - 1]; r++)
        heed__kv_turn((float *)(void *)heads->data + i * step + h * heads->stride[last - 2] +
                          r * heads->stride[last - 1],
                      heads->shape[last]);
}

/* Writes a piece of keys (0) or values (1) into the span. */
static heed_status cache_piece(heed__attention_stages *p, int which, const pieces *c, int64_t i) {
  heed_tensor view;
  int64_t item;
  const int64_t first = piece_of(p, &p->view[1 + which], c, i, &view, &item);
  if (p->turned != NULL) turn_heads(&view);
  const bool whole =
      heed__kv_span_write(&p->span, which == 0 ? HEED__KV_KEYS : HEED__KV_VALUES, &view, item, first);
  return whole ? HEED_OK : heed__stopped(p->m->context, p->m->class->name);
}

/* Processes the pieces of two tensors. A piece is never stopped in the middle. */
static heed_status run_pieces(heed__attention_stages *p, const heed_tensor views[2],
                              heed_status (*piece)(heed__attention_stages *p, int which, const pieces *c,
                                                   int64_t i),
                              bool *done) {
  heed__pace *pace = &p->m->context->pace;
  const pieces of[2] = {pieces_of(p, &views[0]), pieces_of(p, &views[1])};
  while (p->piece < of[0].count + of[1].count) {
    const int which = p->piece >= of[0].count;
    const bool held = pace->held;
    pace->held = true;
    const heed_status status = piece(p, which, &of[which], which == 0 ? p->piece : p->piece - of[0].count);
    pace->held = held;
    if (status != HEED_OK) return status;
    p->piece++;
    if (heed__is_due(pace)) break;
  }
  *done = p->piece >= of[0].count + of[1].count;
  return HEED_OK;
}

heed_status heed__stages_run_shape(heed__attention_stages *p, bool *done) {
  return run_pieces(p, p->view, shape_piece, done);
}

heed_status heed__stages_run_cache(heed__attention_stages *p, bool *done) {
  const heed_status status = run_pieces(p, &p->view[1], cache_piece, done);
  if (status == HEED_OK && *done && p->turned != NULL) heed__stages_turn_queries(p, done);
  return status;
}

double heed__stages_pieces_progress(const heed__attention_stages *p, int stage) {
  const heed_tensor *first = &p->view[stage == HEED__STAGE_CACHE];
  const int64_t count = pieces_of(p, first).count + pieces_of(p, first + 1).count;
  return (double)p->piece / (double)heed__max(count, 1);
}
