/* The kernels on NEON. */
#if defined(__aarch64__)

#include "neon.h"
#include "../scalar/scalar.h"

#define KERNEL(name) heed__neon_##name
#define TABLE        heed__kernels_neon
#define NAME         "neon"
#include "../vector/table.h"

#else
typedef int heed__no_neon; /* a file must not be empty */
#endif
