#!/bin/sh
# Compares the parts of the libraries with docs/two-files.md.
#   check_sizes.sh OBJECTS     the folder of the objects of src, made with make's own flags
objects=$1 bad=0
check() {
  scripts/dev/check_size.sh "$@" || bad=1
}
check 'tensors and their operations' "$objects"/core/*.o "$objects"/ops/*.o
check 'attention and modules' "$objects"/attention/*.o "$objects"/nn/*.o "$objects"/nn/*/*.o
check 'files' "$objects"/io/*.o
check 'gradients and optimizers' "$objects"/grad/*.o
check 'tokenizers' "$objects"/text/*.o
check 'scalar kernels' "$objects"/kernels/scalar/*.o
if [ "$(uname -m)" = x86_64 ]; then
  check 'kernels for AVX2' "$objects"/kernels/isa/avx2.o
  check 'kernels for AVX-512' "$objects"/kernels/isa/avx512.o
  check 'kernels for VNNI, bfloat16 and AMX' "$objects"/kernels/isa/*_vnni.o "$objects"/kernels/isa/*_bf16.o \
    "$objects"/kernels/isa/amx.o
fi
# shellcheck disable=SC2046 # a list of words
check "Lua's side in C" $(find "$objects"/binding -name '*.o' ! -name lopen.o)
check "Lua's side in Lua" "$objects"/binding/lopen.o
exit $bad
