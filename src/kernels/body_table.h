/* Everything that is written once on the vector primitives, and the table of it. A kernel file includes its
 * vec_*.h, defines TABLE and NAME, and includes this. The bodies define k_<kernel>. */

#include "body_attention.h"
#include "body_convert.h"
#include "body_decode.h"
#include "body_gemm.h"
#include "body_narrow.h"
#include "body_normal.h"
#include "body_pass.h"
#include "body_rows.h"

/* What the scalar kernel does as well. */
#define k_pow heed__scalar_pow

const heed__kernels TABLE = {.name = NAME,
#define X(kernel) .kernel = k_##kernel,
                             HEED__UNARY_KERNELS(X) HEED__BINARY_KERNELS(X) HEED__COMPARE_KERNELS(X)
#undef X
#define X(kernel, result, parameters) .kernel = k_##kernel,
                                 HEED__OTHER_KERNELS(X)
#undef X
};

#if defined(__x86_64__) /* what vec_avx2.h and vec_avx512.h began */
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
