/* The kernels on AVX-512 with VNNI and BF16: integer and bfloat16 products, and attention. The others are
 * those of avx512.c.
 */
#include "../../core/types.h"

#if HEED__HAS_NARROW

#define V_TARGET     "avx512vnni,avx512bf16,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c"
#define V_NAME(name) name##_avx512_bf16
#define V_HALVES
#include "../scalar/scalar.h"
#include "avx512_narrow.h"

#define KERNEL(name) heed__avx512_##name
HEED__DECLARE_BASE
#include "../vector/attention_reduced.h"

HEED__INHERITING_TABLE(heed__kernels_avx512_bf16, "avx512_bf16", .reduced_bytes = reduced_size,
                       .reduced_pack = reduced_pack_rows, .reduced = reduced_multiply,
                       .reduced_attention = fewer_attention, .reduced_attention_scratch = fewer_scratch)
#include "target_end.h"

#else
typedef int heed__no_avx512_bf16; /* a file must not be empty */
#endif
