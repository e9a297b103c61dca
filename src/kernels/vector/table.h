/* Everything that is written once on the vector primitives, and the table of it. A kernel file includes its
 * vec_*.h, defines TABLE and NAME, and includes this. The bodies define k_<kernel>. */

#include "attention.h"
#include "convert.h"
#include "decode.h"
#include "gemm.h"
#include "lowp.h"
#include "normal.h"
#include "pass.h"
#include "rows.h"

/* What the scalar kernel does as well. */
#define k_pow heed__scalar_pow

const heed__kernels TABLE = {.name = NAME,
#define X(kernel, ...) .kernel = k_##kernel,
                             HEED__UNARY_KERNELS(X) HEED__BINARY_KERNELS(X) HEED__COMPARE_KERNELS(X)
#undef X
#define X(kernel, result, parameters) .kernel = k_##kernel,
                                 HEED__OTHER_KERNELS(X)
#undef X
};

#if defined(__x86_64__) /* what avx2.h and avx512.h began */
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
