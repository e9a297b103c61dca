/* Random streams: MT19937 and its dropout (random.c), PHILOX (philox.c). Part of core's door. */
#ifndef HEED_RANDOM_H
#define HEED_RANDOM_H

/** The generator to draw from: g, or the context's if g is NULL. */
heed_generator *heed__generator(heed_context *ctx, heed_generator *g);

/* ---- One number after another, from either kind ---- */

uint32_t heed__draw32(heed_generator *g);
uint64_t heed__draw64(heed_generator *g);
/** Uniform in [0, 1): a float of 24 random bits, a double of 53. */
float heed__draw_float(heed_generator *g);
double heed__draw_double(heed_generator *g);

/* ---- Whole tensors from MT19937 ---- */

/** Draws n floats, faster than one by one. Like heed__draw_normal and heed__dropout_apply it returns false if
 * work became due before all were drawn; the caller then restores the generator. Up to HEED__DRAWN_WHOLE are
 * always drawn, in at most 100 µs (normal ones by the scalar kernel). */
#define HEED__DRAWN_WHOLE 2048
HEED_MUST_USE
bool heed__draw_floats(heed_generator *g, float *out, int64_t n);
/** Draws n normal values: by the kernel `transform`, as PyTorch's randn for n elements; if it is NULL or n is
 * less than a block, one by one in double, as PyTorch fills tensors that are not contiguous. */
HEED_MUST_USE
bool heed__draw_normal(heed_generator *g, heed__normal_transform *transform, double mean, double std,
                       float *out, int64_t n);

/* ---- Whole tensors and parts of them from PHILOX ---- */

/* torch.cuda draws a tensor with one thread for each group of elements: thread t reads the block of four
 * words of subsequence t at offset / 4. Here `lanes` words of each block (1, 2 or 4) are used, one after
 * another: word w is word w % lanes of thread w / lanes, as on a GPU with enough threads for all elements. A
 * word depends on the seed, the offset and w alone, so that tasks and machines can draw their parts. */
typedef struct heed__counted {
  uint32_t key[2];
  uint64_t block;
  heed__philox_kernel *kernel; /* initially core's; callers above may set a faster one */
  int lanes;
  int ndim; /* of the tensor that is drawn */
  bool part;
  int64_t shape[HEED_MAX_DIMS], whole[HEED_MAX_DIMS], first[HEED_MAX_DIMS]; /* the last two of a part */
} heed__counted;

/** The block of a counter, Philox4x32-10. Source: J. K. Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3" (SC 2011). */
void heed__philox_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/** Checks that a tensor of this shape can be drawn as the generator's part: it must lie inside the whole.
 * `argument` is for messages: "x". A generator without a part draws any. Errors: SHAPE. */
HEED_MUST_USE
heed_status heed__check_part(heed_context *ctx, const char *function, const char *argument,
                             const heed_generator *g, int ndim, const int64_t *shape);
/** Refuses a generator with a part, for draws that have none. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_no_part(heed_context *ctx, const char *function, const heed_generator *g);
/** Begins the draw of a tensor that was checked, and moves the offset behind it. lanes 0: those of dropout,
 * the largest that divides the number of elements of the whole. */
void heed__counted_begin(heed__counted *c, heed_generator *g, int lanes, int ndim, const int64_t *shape);
/** The number, in the whole, of the first element of a row along the last dimension. Rows count from 0 in
 * row-major order of the shape that is drawn. */
uint64_t heed__counted_row(const heed__counted *c, int64_t row);
/** Words first…first+n-1. */
void heed__counted_words(const heed__counted *c, uint64_t first, int64_t n, uint32_t *out);

/** Uniform in (0, 1], as by curand. */
static inline float heed__counted_float(uint32_t word) {
  return (float)word * 0x1p-32f + 0x1p-33f;
}

/* ---- Dropout ---- */

/* The state of the dropout of one tensor. */
typedef struct heed__dropout {
  heed_generator *generator;
  bool counted; /* of PHILOX, as `words` has it; else of `stream`, element after element */
  heed_dropout_stream stream;
  uint64_t least; /* the smallest drawn integer that drops an element; 0: p is 1 */
  float scale;    /* 1 / (1 - p), of kept elements */
  uint64_t state; /* of the mkl stream */
  heed__counted words;
} heed__dropout;
/** Begins the dropout of a tensor of that shape, which was checked (heed__check_part); the mkl stream draws
 * its seed. p in (0, 1]. */
void heed__dropout_begin(heed__dropout *d, heed_context *ctx, heed_generator *g, double p, int ndim,
                         const int64_t *shape);
/** out = x · 0 or x · scale for the next n elements; may be in place. As in PyTorch, the product by 0 keeps
 * -0 and nan. p = 1 draws nothing. Not if `counted`. */
HEED_MUST_USE
bool heed__dropout_apply(heed__dropout *d, float *out, const float *x, int64_t n);
/** The same for elements first…first+n-1 of the whole, in any order and on any thread; only if `counted`. */
void heed__dropout_at(const heed__dropout *d, float *out, const float *x, uint64_t first, int64_t n);

#endif
