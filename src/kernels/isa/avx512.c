/* The kernels on AVX-512. */
#if defined(__x86_64__)

#include "avx512.h"
#include "../scalar/scalar.h"

#define KERNEL(name) heed__avx512_##name
#define TABLE        heed__kernels_avx512
#define NAME         "avx512"
#include "../vector/table.h"
#include "target_end.h"

#else
typedef int heed__no_avx512; /* a file must not be empty */
#endif
