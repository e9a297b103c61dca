/* The kernels on NEON with products of bytes and bfloat16 numbers, two rows by two (smmla, bfmmla). The
 * others are those of neon.c. */
#include "../../core/types.h"

#if HEED__HAS_NARROW_NEON

#define V_TARGET "arch=armv8.2-a+dotprod+i8mm+bf16"
#define V_PAIRS
#define V_HALVES
#include "../scalar/scalar.h"
#include "neon_narrow.h"

#define KERNEL(name) heed__neon_##name
HEED__DECLARE_BASE
#include "../vector/reduced.h"

HEED__INHERITING_TABLE(heed__kernels_neon_bf16, "neon_bf16", .reduced_bytes = reduced_size,
                       .reduced_pack = reduced_pack_rows, .reduced = reduced_multiply)
#include "target_end.h"

#else
typedef int heed__no_neon_bf16; /* a file must not be empty */
#endif
