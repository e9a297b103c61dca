/* The kernels on NEON with dot products of bytes (sdot): integer products. The others are those of
 * neon.c. */
#include "../../core/types.h"

#if HEED__HAS_NARROW_NEON

#define V_TARGET "arch=armv8.2-a+dotprod"
#include "../scalar/scalar.h"
#include "neon_narrow.h"

#define KERNEL(name) heed__neon_##name
HEED__DECLARE_BASE
#include "../vector/reduced.h"

HEED__INHERITING_TABLE(heed__kernels_neon_dotprod, "neon_dotprod", .reduced_bytes = reduced_size,
                       .reduced_pack = reduced_pack_rows, .reduced = reduced_multiply)
#include "target_end.h"

#else
typedef int heed__no_neon_dotprod; /* a file must not be empty */
#endif
