/* Cross entropy row by row, for cross_entropy and linear_cross_entropy and their gradients. Included by
 * ops.h.
 *
 * A row of logits x has the log-probabilities x - most - log_total, with most and log_total from the kernel
 * log_sum_exp. Its loss is -Σ w_j t_j logp_j, where t is the target, smoothed, and w the classes' weights. */
#ifndef HEED_OPS_CLASS_LOSSES_H
#define HEED_OPS_CLASS_LOSSES_H

/* Checked targets and options, for logits of which the classes come last. */
typedef struct heed__class_losses {
  const heed__kernels *kernels;
  int64_t rows, classes;
  const int64_t *target; /* classes from 1, [rows]; or NULL */
  const float *share;    /* probabilities [rows, classes]; or NULL */
  const float *weight;   /* [classes]; NULL: ones */
  double weight_sum;     /* of all classes */
  int64_t ignore_index;
  double smoothing;
  heed_reduction reduction;
  double divisor; /* of a mean, else 1 */
  heed_tensor *made[2];
} heed__class_losses;

/** Copies the host's options, of any version (NULL: the defaults), to *out and checks them. */
HEED_MUST_USE
heed_status heed__cross_entropy_options_read(heed_context *ctx, const char *function,
                                             const heed_cross_entropy_options *theirs,
                                             heed_cross_entropy_options *out);
/** Checks target and the weight for logits of the shape (ndim, shape) with the classes in dimension dim (from
 * 0). `logits` is their name in messages. heed__class_losses_end must follow, also after an error. */
HEED_MUST_USE
heed_status heed__class_losses_begin(heed_context *ctx, heed__class_losses *l, const char *function,
                                     const char *logits, int ndim, const int64_t *shape, int dim,
                                     const heed_tensor *target, const heed_cross_entropy_options *options);
void heed__class_losses_end(heed__class_losses *l);

/** The loss of a row, not divided. */
float heed__class_loss(const heed__class_losses *l, int64_t row, const float *x, float most, float log_total);
/** dx = factor times the gradient of the row's loss; dx may be x. */
void heed__class_gradient(const heed__class_losses *l, int64_t row, const float *x, float most,
                          float log_total, double factor, float *dx);
/** dtarget [classes] = factor times the gradient of the row's loss for the probabilities. */
void heed__class_target_gradient(const heed__class_losses *l, const float *x, float most, float log_total,
                                 double factor, float *dtarget);
/** The reduced losses; loss [rows]. */
float heed__class_reduced(const heed__class_losses *l, const float *loss);
/** What the loss of a row is multiplied with in the result: dy has one element, or one for each row. */
static inline double heed__class_factor(const heed__class_losses *l, int64_t row, const float *dy) {
  return l->reduction == HEED_REDUCTION_NONE ? (double)dy[row] : (double)dy[0] / l->divisor;
}

/** A header, on the stack, of x with dimension d (from 0) moved behind the others. */
void heed__dim_to_end(heed_tensor *view, const heed_tensor *x, int d);

/* What cross_entropy tells its gradient, beside logits, target, weight and [rows, 2]: most and log_total. */
typedef struct heed__cross_entropy_values {
  int dim;
  int64_t ignore_index;
  heed_reduction reduction;
  double label_smoothing;
} heed__cross_entropy_values;

/* The gradients of linear_cross_entropy, each NULL if it is not wanted; dweight [classes, d]. */
typedef struct heed__linear_class_gradients {
  heed_tensor *dx, *dweight, *dbias;
} heed__linear_class_gradients;

/** The losses [rows] (or NULL) and gradients of logits x [rows, d] · weightᵀ + bias, all contiguous; dy as in
 * heed__class_factor, NULL for ones. The tensors of g are written whole. */
HEED_MUST_USE
heed_status heed__linear_class_losses(heed_context *ctx, const char *function, const heed__class_losses *l,
                                      const heed_tensor *x, const heed_tensor *weight,
                                      const heed_tensor *bias, const float *dy, float *loss,
                                      const heed__linear_class_gradients *g);

#endif
