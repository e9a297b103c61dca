# Compiler and linker flags: those of heed itself, and those of each library.

LUA_PC := $(shell scripts/dev/find_lua.sh $(LUA) library)
# $(call package,cflags|libs,name,default): what pkg-config says about a package
package = $(shell pkg-config --$(1) $(2) 2>/dev/null || echo '$(3)')

WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wvla -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes
# The libraries that the sources may use; heed.c (make amalgamation) leaves out each one that is not defined as 1.
LIBRARIES := -DHEED_BLAS=$(if $(filter none,$(BLAS)),0,1) -DHEED_CJSON=1 -DHEED_ZIP=1 -DHEED_UTF8PROC=1 -DHEED_MINIMAL=$(if $(MINIMAL),1,0)
# The sources use neither errno nor floating-point traps after arithmetic; both would keep loops with sqrt and
# comparisons from being vectorized. A product and a sum are fused only where the source says so, with every compiler:
# clang would fuse them by default. On s390x, -std=c11 makes gcc compute floats in double, which heed refuses.
S390X := $(filter s390x%,$(shell $(CC) -dumpmachine 2>/dev/null))
HEED_CFLAGS := $(LIBRARIES) -std=c11 -pthread -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math \
  -ffp-contract=off $(if $(S390X),-fexcess-precision=fast) $(if $(DEBUG),-DHEED_DEBUG,-DNDEBUG) $(WARNINGS) $(WERROR)

LUA_CFLAGS  := $(call package,cflags,$(LUA_PC))
LUA_LIBS    := $(call package,libs,$(LUA_PC))
ifneq ($(BLAS),none)
BLAS_CFLAGS := $(call package,cflags,openblas)
BLAS_LIBS   := $(call package,libs,openblas,-lopenblas)
# The file name to give to dlopen; empty if BLAS is a static library.
BLAS_LIBRARY := $(shell CC='$(CC)' scripts/dev/find_blas.sh $(LDFLAGS) $(BLAS_LIBS))
endif
IO_CFLAGS   := $(call package,cflags,libutf8proc) $(call package,cflags,libcjson,-I/usr/include/cjson) \
  $(call package,cflags,zlib)
IO_LIBS     := $(call package,libs,libutf8proc,-lutf8proc) $(call package,libs,libcjson,-lcjson) \
  $(call package,libs,zlib,-lz)
EDIT_CFLAGS := $(call package,cflags,libedit)
EDIT_LIBS   := $(call package,libs,libedit,-ledit)
TEST_CFLAGS := $(call package,cflags,cmocka)
TEST_LIBS   := $(call package,libs,cmocka,-lcmocka)

# The version is that of heed.h; shared libraries are compatible if the first number is equal.
VERSION := $(shell sed -n 's/^.define HEED_VERSION  *"\(.*\)"/\1/p' src/heed.h)
SONAME  := libheed.so.$(firstword $(subst ., ,$(VERSION)))

ifeq ($(shell uname -s),Darwin)
LINK_SHARED := -dynamiclib -install_name @rpath/libheed.so
LINK_MODULE := -bundle -undefined dynamic_lookup
else
# -Bsymbolic: a module calls its own functions, even if another copy of heed is loaded.
LINK_SHARED := -shared -Wl,-soname,$(SONAME) -Wl,-Bsymbolic
LINK_MODULE := -shared -Wl,-Bsymbolic
LINK_RUNNER := -Wl,-E
DL_LIBS     := $(if $(filter Linux,$(shell uname -s)),-ldl)
endif
