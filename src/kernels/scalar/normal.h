/* The constants of the transform from uniform to normal numbers: the coefficients of logf, sinf and cosf in
 * the Cephes library (S. Moshier). PyTorch uses them on x86 with AVX2, with fused multiply-adds in this
 * order, so the results are bit-identical to its; with libm, which differs between systems, 83 % would be. */
#ifndef HEED_SCALAR_NORMAL_H
#define HEED_SCALAR_NORMAL_H

#define NORMAL_2_PI     6.28318530717958647692f
#define NORMAL_4_BY_PI  1.27323954473516f
#define NORMAL_ROOT     0.707106781186547524f /* √½ */
#define NORMAL_LN2_HIGH 0.693359375f
#define NORMAL_LN2_LOW  (-2.12194440e-4f)

enum { NORMAL_LOG_TERMS = 9 };

/* ln(1 + f), from f^11 down to f^3 */
static const float heed__normal_log_terms[NORMAL_LOG_TERMS] = {
    7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f, 1.4249322787e-1f,
    -1.6668057665e-1f, 2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
/* π/4 in three parts */
static const float heed__normal_eighth[3] = {0.78515625f, 2.4187564849853515625e-4f, 3.77489497744594108e-8f};
/* cos x, from x^8 down to x^4, and sin x, from x^7 down to x^3 */
static const float heed__normal_cosine_terms[3] = {2.443315711809948e-5f, -1.388731625493765e-3f,
                                                   4.166664568298827e-2f};
static const float heed__normal_sine_terms[3] = {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f};

#endif
