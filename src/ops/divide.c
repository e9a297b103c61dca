/* Dividing work among threads: the size of parts, and pieces of a walk, for operations whose rows or elements
 * are independent. */
#include "ops.h"

int64_t heed__parts(int64_t whole, int64_t part) {
  return whole / part + (whole % part != 0);
}

int64_t heed__part_of(int64_t size, int64_t wanted, int64_t unit) {
  const int64_t count = heed__max(1, size / heed__max(wanted, 1));
  return heed__parts(heed__parts(size, count), unit) * unit;
}

/* Elements in a piece: about 10 µs of the cheapest operations. Handing a piece to a thread costs a fifth of
 * that. */
#define WALK_PIECE (HEED__DIVIDED_FROM / 4)

/* Indices of the outermost dimension between two cancellation checks, if another dimension is divided: the
 * first use of the memory of each index costs up to 1 ms where pages are large. */
#define OUTER_PART 4

typedef struct walk_division {
  const heed__pace *pace;
  const heed__walk *walk;
  int dim;        /* the divided dimension */
  int64_t length; /* of a piece of it */
  int64_t outer;  /* indices of the outermost dimension between cancellation checks */
  heed__walk_part *part;
  void *user;
} walk_division;

static void run_piece(void *argument, int64_t i, int worker) {
  const walk_division *s = argument;
  const int outermost = s->walk->dims - 1;
  const int64_t first = i * s->length, left = s->walk->size[s->dim] - first;
  heed__walk piece = *s->walk;
  heed__walk_narrow(&piece, s->dim, first, heed__min(left, s->length));
  const int64_t size = piece.size[outermost];
  for (int64_t at = 0; at < size; at += s->outer) {
    heed__walk w = piece;
    if (at > 0 && heed__is_due(s->pace)) return; /* which heed__parallel reports */
    if (s->outer < size) heed__walk_narrow(&w, outermost, at, heed__min(size - at, s->outer));
    s->part(s->user, &w, worker);
  }
}

/* Pieces of dimension d are a multiple of this; 0: it must not be divided. Tiles become narrower where some
 * threads would get none. */
static int64_t unit_of(const heed__walk *w, int d, int64_t grain, int across, int workers) {
  if (d == 0) return grain;
  int64_t unit = d == across ? HEED__TILE : 1;
  while (unit > 1 && heed__parts(w->size[d], unit) < workers) unit /= 2;
  return unit;
}

/* The outermost dimension that gives about as many pieces as wanted, else the one that gives most. Half as
 * many are enough from 8 on: short pieces of many rows are read from scattered addresses (Zen 4: adding to 8
 * rows of 131072 takes 8 % longer). */
static int dimension_to_divide(const heed__walk *w, int64_t grain, int across, int workers, int64_t wanted) {
  int best = w->dims - 1;
  int64_t most = 0;
  for (int d = w->dims - 1; d >= 0; d--) {
    const int64_t unit = unit_of(w, d, grain, across, workers), pieces = unit > 0 ? w->size[d] / unit : 0;
    if (pieces >= wanted || (pieces >= 8 && pieces >= wanted / 2)) return d;
    if (pieces > most) {
      most = pieces;
      best = d;
    }
  }
  return best;
}

bool heed__walk_divided_across(heed_context *ctx, heed__walk *w, int64_t grain, int across, int64_t weight,
                               heed__walk_part *part, void *user) {
  int64_t elements = weight;
  for (int d = 0; d < w->dims; d++)
    elements *= w->size[d]; /* at most the elements of a tensor: no overflow */
  if (elements < HEED__DIVIDED_FROM || (grain == 0 && w->dims == 1)) {
    part(user, w, 0);
    return !heed__is_due(&ctx->pace);
  }
  const int64_t wanted = elements / WALK_PIECE;
  const int workers = heed__workers(ctx);
  walk_division s = {.pace = &ctx->pace,
                     .walk = w,
                     .dim = dimension_to_divide(w, grain, across, workers, wanted),
                     .part = part,
                     .user = user};
  const int outermost = w->dims - 1;
  const int64_t size = w->size[s.dim], unit = unit_of(w, s.dim, grain, across, workers);
  s.length = heed__parts((size - 1) / wanted + 1, unit) * unit;
  s.outer = s.dim == outermost ? size : across == outermost ? HEED__TILE : OUTER_PART;
  return heed__parallel(ctx, (size - 1) / s.length + 1, run_piece, &s);
}

bool heed__walk_divided(heed_context *ctx, heed__walk *w, int64_t grain, int64_t weight,
                        heed__walk_part *part, void *user) {
  return heed__walk_divided_across(ctx, w, grain, 0, weight, part, user);
}
