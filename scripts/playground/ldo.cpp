// Lua's ldo.c as C++, so that its errors are exceptions of WebAssembly: wasi-libc has no setjmp. The exception is the
// address of Lua's jump buffer, and Lua's functions have the names of C.
#define LUAI_THROW(L, c) __builtin_wasm_throw(0, (c))
#define LUAI_TRY(L, c, a)                                                                                    \
  try {                                                                                                      \
    a                                                                                                        \
  } catch (...) {                                                                                            \
    if ((c)->status == 0) (c)->status = -1;                                                                  \
  }
#define luai_jmpbuf int // unused

extern "C" {
#include "ldo.c"

// What the compiler calls where an exception is caught; there is nothing to free.
void *__cxa_begin_catch(void *exception) {
  return exception;
}
void __cxa_end_catch(void) {
}
int __gxx_wasm_personality_v0(...) {
  return 0;
}
}
