/* The kernels on AVX-512. */
#if defined(__x86_64__)

#include "k_scalar.h"
#include "vec_avx512.h"

#define TABLE heed__kernels_avx512
#define NAME  "avx512"
#include "body_table.h"

#else
typedef int heed__no_avx512; /* a file must not be empty */
#endif
