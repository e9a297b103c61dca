/* The kernels on NEON. */
#if defined(__aarch64__)

#include "k_scalar.h"
#include "vec_neon.h"

#define TABLE heed__kernels_neon
#define NAME  "neon"
#include "body_table.h"

#else
typedef int heed__no_neon; /* a file must not be empty */
#endif
