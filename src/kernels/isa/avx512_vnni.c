/* The kernels on AVX-512 with VNNI: integer products. The others are those of avx512.c. */
#include "../../core/types.h"

#if HEED__HAS_NARROW

#define V_TARGET     "avx512vnni,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c"
#define V_NAME(name) name##_avx512_vnni
#include "../scalar/scalar.h"
#include "avx512_narrow.h"

#define KERNEL(name) heed__avx512_##name
HEED__DECLARE_BASE
#include "../vector/reduced.h"

HEED__INHERITING_TABLE(heed__kernels_avx512_vnni, "avx512_vnni", .reduced_bytes = reduced_size,
                       .reduced_pack = reduced_pack_rows, .reduced = reduced_multiply)
#include "target_end.h"

#else
typedef int heed__no_avx512_vnni; /* a file must not be empty */
#endif
