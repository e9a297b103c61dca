/* The kernels on AVX2 with FMA. */
#if defined(__x86_64__)

#include "k_scalar.h"
#include "vec_avx2.h"

#define TABLE heed__kernels_avx2
#define NAME  "avx2"
#include "body_table.h"

#else
typedef int heed__no_avx2; /* a file must not be empty */
#endif
