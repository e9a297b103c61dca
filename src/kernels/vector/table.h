/* The vector kernels, which are written once on the primitives of isa/, and their table. A file of isa/
 * includes its primitives and scalar/scalar.h, defines KERNEL, TABLE and NAME, and includes this. */

HEED__DECLARE_KERNELS

#include "attention.h"
#include "causal_conv.h"
#include "convert.h"
#include "decode.h"
#include "gemm.h"
#include "linear_attention.h"
#include "lowp.h"
#include "normal.h"
#include "pass.h"
#include "philox.h"
#include "reduced_none.h"
#include "rows.h"
#if !HEED_MINIMAL
#include "attention_backward.h"
#include "backward.h"
#include "linear_attention_backward.h"
#include "steps.h"
#endif

const heed__kernels TABLE = {.name = NAME, HEED__TABLE_KERNELS};
