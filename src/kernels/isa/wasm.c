/* The kernels on the SIMD instructions of WebAssembly, in builds with -msimd128: a module that contains them
 * runs only where there are such instructions. */
#if defined(__wasm_simd128__)

#include "wasm.h"
#include "../scalar/scalar.h"

#define KERNEL(name) heed__wasm_##name
#define TABLE        heed__kernels_wasm
#define NAME         "wasm"
#include "../vector/table.h"

#else
typedef int heed__no_wasm; /* a file must not be empty */
#endif
