/* Functions from here to target_end.h are compiled for processors with the features V_TARGET, whatever the
 * flags of the compiler. */
#define V_TARGET_PRAGMA_(text) _Pragma(#text)
#define V_TARGET_PRAGMA(text)  V_TARGET_PRAGMA_(text)
#if defined(__clang__)
#define V_BEGIN_TARGET                                                                                       \
  V_TARGET_PRAGMA(clang attribute push(__attribute__((target(V_TARGET))), apply_to = function))
#else
#define V_BEGIN_TARGET V_TARGET_PRAGMA(GCC push_options) V_TARGET_PRAGMA(GCC target(V_TARGET))
#endif
V_BEGIN_TARGET

#if defined(_WIN64) && !defined(__clang__)
/* On Windows gcc aligns the stack for spilled vectors only in functions without unwind tables (its bug
 * 54412); kernels call nothing that could throw. */
#pragma GCC optimize("no-asynchronous-unwind-tables", "no-unwind-tables")
#endif
