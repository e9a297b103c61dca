/* The kernels on AVX2 with FMA, with integer products. */
#if defined(__x86_64__)

#include "avx2.h"
#include "../scalar/scalar.h"
#if !HEED_MINIMAL
#include "avx2_narrow.h"
#endif

#define KERNEL(name) heed__avx2_##name
#define TABLE        heed__kernels_avx2
#define NAME         "avx2"
#include "../vector/table.h"
#include "target_end.h"

#else
typedef int heed__no_avx2; /* a file must not be empty */
#endif
