# heed: build, test and check. GNU make 4 or newer.
#   make            the runner, the libraries and the loadable module, in build/
#   make demo       the notebooks and hello.lua, after installing what is missing
#   make test       all tests, after installing what is missing
#   make lint       luacheck, the layers, gcc and clang with warnings as errors, clang-format, exported symbols
#   make sanitize   all tests under the address and undefined-behaviour sanitizers (also: make asan, make ubsan)
#   make valgrind   the C tests and a sample of scripts under valgrind
#   make clean
# Variables: BUILD (where everything goes), CC, CFLAGS, LDFLAGS, SPECS (files for make test, all specs by default),
# V=1 (shows the commands).

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:

BUILD  ?= build
CFLAGS ?= -O3 -g
SPECS  ?= tests/spec

# Lua under its names on Debian, Fedora and Arch, and elsewhere; the plain name only if it is 5.4.
LUA_PC := $(shell for name in lua5.4 lua-5.4 lua54; do \
            pkg-config --exists $$name 2>/dev/null && echo $$name && exit; done; \
            pkg-config --exists 'lua >= 5.4' 'lua < 5.5' 2>/dev/null && echo lua)
# $(call package,cflags|libs,name,otherwise)
package = $(shell pkg-config --$(1) $(2) 2>/dev/null || echo '$(3)')

WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wvla -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes
# errno and floating-point traps are never looked at, and would keep loops with sqrt and comparisons from vectorising
HEED_CFLAGS := -std=c11 -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math $(WARNINGS) $(WERROR)
LUA_CFLAGS  := $(call package,cflags,$(LUA_PC))
LUA_LIBS    := $(call package,libs,$(LUA_PC))
BLAS_CFLAGS := $(call package,cflags,openblas)
BLAS_LIBS   := $(call package,libs,openblas,-lopenblas)
EDIT_CFLAGS := $(call package,cflags,libedit)
EDIT_LIBS   := $(call package,libs,libedit,-ledit)
TEST_CFLAGS := $(call package,cflags,cmocka)
TEST_LIBS   := $(call package,libs,cmocka,-lcmocka)

ifeq ($(shell uname -s),Darwin)
LINK_SHARED := -dynamiclib -install_name @rpath/libheed.so
LINK_MODULE := -bundle -undefined dynamic_lookup
else
# -Bsymbolic: a module's calls stay in it, even where another copy of heed is loaded
LINK_SHARED := -shared -Wl,-soname,libheed.so -Wl,-Bsymbolic
LINK_MODULE := -shared -Wl,-Bsymbolic
LINK_RUNNER := -Wl,-E
endif

OBJ       := $(BUILD)/obj
ENGINE    := $(wildcard $(foreach layer,core kernels ops nn io,src/$(layer)/*.c))
BINDING   := $(wildcard src/binding/*.c)
CLI       := $(wildcard src/cli/*.c)
C_TESTS   := $(wildcard tests/c/test_*.c)
C_SUPPORT := $(filter-out $(C_TESTS),$(wildcard tests/c/*.c))
C_FILES   := $(ENGINE) $(BINDING) $(CLI) $(C_TESTS) $(C_SUPPORT)
HEADERS   := $(wildcard src/*.h src/*/*.h tests/c/*.h)
LUA_FILES := $(sort $(filter-out lua/heed/meta/%,$(wildcard lua/heed/*.lua lua/heed/*/*.lua lua/heed/*/*/*.lua)))
objects    = $(patsubst %.c,$(OBJ)/%.o,$(1))
TEST_PROGRAMS := $(patsubst tests/c/%.c,$(BUILD)/test/%,$(C_TESTS))

.PHONY: all objects tests demo run-demo test run-test lint symbols sanitize asan ubsan valgrind clean FORCE

all: $(BUILD)/heed $(BUILD)/libheed.a $(BUILD)/libheed.so $(BUILD)/heed.so
objects: $(call objects,$(C_FILES))
tests: all $(TEST_PROGRAMS)

# ---- Stamps: files that change when the flags, or the list of files, do ----

$(BUILD)/flags: STAMP = $(CC) $(HEED_CFLAGS) $(CFLAGS) $(CPPFLAGS) $(LDFLAGS) $(LUA_CFLAGS) $(BLAS_CFLAGS) \
  $(EDIT_CFLAGS) $(TEST_CFLAGS)
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
$(OBJ)/src/binding/%.o: PART_CFLAGS = $(LUA_CFLAGS) -I$(BUILD)
$(OBJ)/src/cli/%.o: PART_CFLAGS = $(LUA_CFLAGS) $(EDIT_CFLAGS)
$(OBJ)/tests/c/%.o: PART_CFLAGS = $(TEST_CFLAGS)
$(OBJ)/tests/c/test_states.o: PART_CFLAGS = $(TEST_CFLAGS) $(LUA_CFLAGS)

$(BUILD)/lua_sources.h: $(LUA_FILES) $(BUILD)/files scripts/dev/embed_lua.sh
	$(call say,EMBED,scripts/dev/embed_lua.sh $(LUA_FILES) > $@)

$(BUILD)/libheed.a: $(call objects,$(ENGINE) $(BINDING)) $(BUILD)/files
	@rm -f $@
	$(call say,AR,$(AR) rcs $@ $(filter %.o,$^))

link = $(CC) $(CFLAGS) $(LDFLAGS) $(1) $(filter %.o %.a,$^) -o $@ $(2) $(BLAS_LIBS) -lm

# Without the binding, so that a host in C needs no Lua.
$(BUILD)/libheed.so: $(call objects,$(ENGINE)) $(BUILD)/files
	$(call say,LINK,$(call link,$(LINK_SHARED)))

# Without liblua: the interpreter that loads it has one.
$(BUILD)/heed.so: $(call objects,$(ENGINE) $(BINDING)) $(BUILD)/files
	$(call say,LINK,$(call link,$(LINK_MODULE)))

$(BUILD)/heed: $(call objects,$(CLI)) $(BUILD)/libheed.a
	$(call say,LINK,$(call link,$(LINK_RUNNER),$(LUA_LIBS) $(EDIT_LIBS)))

$(BUILD)/test/%: $(OBJ)/tests/c/%.o $(call objects,$(C_SUPPORT)) $(BUILD)/libheed.a
	@mkdir -p $(@D)
	$(call say,LINK,$(call link,,$(MORE_LIBS) $(TEST_LIBS)))
$(BUILD)/test/test_states: MORE_LIBS = $(LUA_LIBS) -pthread

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

sanitize asan ubsan:
	@scripts/dev/install_packages.sh build test
	@ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 TEST_OPTIONS=--exclude-tags=plain \
	  $(MAKE) --no-print-directory BUILD=$(BUILD)/asan run-test \
	  CFLAGS='-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all'

valgrind:
	@scripts/dev/install_packages.sh build test valgrind
	@$(MAKE) --no-print-directory tests
	@scripts/dev/run_valgrind.sh $(BUILD)

# ---- Checking ----

lint:
	@scripts/dev/install_packages.sh build test lint
	luacheck --quiet lua scripts tests
	@$(MAKE) --no-print-directory all
	@$(BUILD)/heed scripts/dev/check_layers.lua $(filter src/%,$(C_FILES) $(HEADERS))
	@$(MAKE) --no-print-directory objects BUILD=$(BUILD)/lint/gcc CC=gcc WERROR=-Werror
	@$(MAKE) --no-print-directory objects BUILD=$(BUILD)/lint/clang CC=clang WERROR=-Werror
	@clang-format --dry-run -Werror $(C_FILES) $(HEADERS)
	@$(MAKE) --no-print-directory symbols

symbols: $(BUILD)/libheed.so $(BUILD)/heed.so $(BUILD)/libheed.a
	@scripts/dev/check_symbols.sh $(BUILD)

clean:
	rm -rf $(BUILD)
