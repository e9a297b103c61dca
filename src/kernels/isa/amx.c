/* The kernels on AMX: integer and bfloat16 products, and attention. The others are those of avx512.c. */
#include "../../core/types.h"

#if HEED__HAS_NARROW && HEED__HAS_AMX

#define V_TARGET                                                                                             \
  "amx-tile,amx-int8,amx-bf16,avx512vnni,avx512bf16,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c"
#define V_NAME(name) name##_amx
#define V_HALVES
#define REDUCED_TILES
#include "../scalar/scalar.h"
#include "amx.h"

#define KERNEL(name) heed__avx512_##name
HEED__DECLARE_BASE
#include "../vector/attention_reduced.h"

HEED__INHERITING_TABLE(heed__kernels_amx, "amx", .reduced_bytes = reduced_size,
                       .reduced_pack = reduced_pack_rows, .reduced = reduced_multiply,
                       .reduced_attention = fewer_attention, .reduced_attention_scratch = fewer_scratch)
#include "target_end.h"

#else
typedef int heed__no_amx; /* a file must not be empty */
#endif
