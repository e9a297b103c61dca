/* The kernels on AVX2 with AVX-VNNI: integer products. The others are those of avx2.c. */
#include "../../core/types.h"

#if HEED__HAS_NARROW

#define V_TARGET "avxvnni,avx2,fma,f16c"
#define V_UNSIGNED_BYTES
#define V_NAME(name) name##_avx2_vnni
#include "../scalar/scalar.h"
#include "avx2_narrow.h"

#define KERNEL(name) heed__avx2_##name
HEED__DECLARE_BASE
#include "../vector/reduced.h"

HEED__INHERITING_TABLE(heed__kernels_avx2_vnni, "avx2_vnni", .reduced_bytes = reduced_size,
                       .reduced_pack = reduced_pack_rows, .reduced = reduced_multiply)
#include "target_end.h"

#else
typedef int heed__no_avx2_vnni; /* a file must not be empty */
#endif
