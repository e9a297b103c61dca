# The runner, the libraries, the module, and the test and example programs.

OBJ        := $(BUILD)/obj
LAYERS     := core kernels ops attention grad nn io text
ENGINE     := $(wildcard $(foreach layer,$(LAYERS),src/$(layer)/*.c src/$(layer)/*/*.c))
BINDING    := $(wildcard src/binding/*.c src/binding/*/*.c)
CLI        := $(wildcard src/cli/*.c)
C_TESTS    := $(wildcard tests/c/test_*.c)
C_SUPPORT  := $(filter-out $(C_TESTS),$(wildcard tests/c/*.c))
FUZZERS    := $(wildcard tests/fuzz/fuzz_*.c)
BENCH      := $(wildcard scripts/bench/*.c)
C_EXAMPLES := $(if $(filter 5.4,$(LUA)),$(wildcard scripts/examples/*.c))
PORTABLE   := $(wildcard tests/portable/*.c)
HEADERS    := $(wildcard src/*.h src/*/*.h src/*/*/*.h tests/c/*.h)
LISTS      := $(wildcard src/*/*.def src/*/*/*.def)
LUA_FILES  := $(sort $(filter-out lua/heed/meta/% lua/heed/prompt/%,$(wildcard lua/heed/*.lua lua/heed/*/*.lua \
  lua/heed/*/*/*.lua)))
# What a build with HEED_MINIMAL lacks, for which MINIMAL=1: gradients, files of models, tokenizers, the blocks of GGUF,
# all vectors but AVX2 and NEON; and what is built on them in Lua.
MORE       := $(filter-out src/grad/none.c,$(wildcard src/grad/*.c src/text/*.c)) src/attention/backward.c \
  $(addprefix src/io/,gguf.c gguf_values.c gguf_write.c pickle.c sharded.c torch.c torch_values.c) \
  $(addprefix src/ops/,blocks.c class_losses.c cross_entropy.c gradients.c linear_cross_entropy.c quantize_block.c) \
  $(addprefix src/kernels/scalar/,attention_backward.c backward.c blocks.c steps.c) \
  $(filter-out %/avx2.c %/neon.c %/wasm.c,$(wildcard src/kernels/isa/*.c)) \
  $(addprefix src/binding/,lbackward.c lgguf.c llosses.c loptim.c ltext.c ltokenizer.c lvocabulary.c)
MORE_LUA   := $(filter-out lua/heed/autograd/mode.lua,$(filter lua/heed/distributed.lua $(foreach folder,autograd \
  distributed interpret models optim parallel plot tokenizers utils,lua/heed/$(folder)/%),$(LUA_FILES))) \
  $(addprefix lua/heed/nn/,clip_grad.lua loss_functions.lua losses.lua)
ifneq ($(MINIMAL),)
ENGINE     := $(filter-out $(MORE),$(ENGINE))
BINDING    := $(filter-out $(MORE),$(BINDING))
endif
C_FILES    := $(ENGINE) $(BINDING) $(CLI) $(C_TESTS) $(C_SUPPORT) $(PORTABLE) $(FUZZERS) $(BENCH) $(C_EXAMPLES)
PROMPT_LUA := $(sort $(wildcard lua/heed/prompt/*.lua lua/heed/meta/*.lua)) # compiled into the runner alone
objects     = $(patsubst %.c,$(OBJ)/%.o,$(1))
TEST_PROGRAMS := $(C_TESTS:tests/c/%.c=$(BUILD)/test/%)

## builds the runner, the libraries and the Lua module
all: $(BUILD)/heed $(BUILD)/libheed.a $(BUILD)/libheed.so $(BUILD)/heed.so
objects: $(call objects,$(C_FILES))
## builds everything that the tests need
tests: all examples $(TEST_PROGRAMS)
## builds the C examples, in build/examples
examples: $(C_EXAMPLES:scripts/%.c=$(BUILD)/%)

.PHONY: all objects tests examples

# ---- Stamps: files that change when the flags, or the list of source files, change ----

$(BUILD)/flags: STAMP = $(CC) $(HEED_CFLAGS) $(CFLAGS) $(KERNEL_CFLAGS) $(CPPFLAGS) $(LDFLAGS) $(LUA_CFLAGS) $(BLAS_CFLAGS) \
  $(IO_CFLAGS) $(FUZZ_CFLAGS) $(EDIT_CFLAGS) $(TEST_CFLAGS) $(BLAS_LIBRARY)
$(BUILD)/files: STAMP = $(ENGINE) $(BINDING) $(CLI) $(LUA_FILES) $(PROMPT_LUA)
$(BUILD)/flags $(BUILD)/files: FORCE
	@$(if $(LUA_PC),,scripts/dev/install_packages.sh --name build; exit 1)
	@mkdir -p $(@D)
	@echo '$(STAMP)' | cmp -s - $@ || echo '$(STAMP)' > $@

# ---- Objects ----

$(OBJ)/%.o: %.c $(BUILD)/flags | $(BUILD)/lua_sources.h $(BUILD)/prompt_sources.h
	@mkdir -p $(@D)
	$(call say,CC,$(CCACHE) $(CC) $(HEED_CFLAGS) $(PART_CFLAGS) $(CPPFLAGS) $(CFLAGS) $(LATE_CFLAGS) -MMD -MP -c $< -o $@)

$(OBJ)/src/core/%.o: PART_CFLAGS = $(FUZZ_CFLAGS)
$(OBJ)/src/kernels/isa/%.o: LATE_CFLAGS = $(KERNEL_CFLAGS)
$(OBJ)/src/ops/%.o: PART_CFLAGS = $(BLAS_CFLAGS)
$(OBJ)/src/io/%.o: PART_CFLAGS = $(IO_CFLAGS) $(FUZZ_CFLAGS)
$(OBJ)/src/binding/%.o: PART_CFLAGS = $(LUA_CFLAGS) -I$(BUILD)
$(OBJ)/src/cli/%.o: PART_CFLAGS = $(LUA_CFLAGS) $(EDIT_CFLAGS) -I$(BUILD)
$(OBJ)/tests/c/%.o: PART_CFLAGS = $(TEST_CFLAGS) $(LUA_CFLAGS) -I$(BUILD)
$(OBJ)/tests/fuzz/%.o: PART_CFLAGS = $(FUZZ_CFLAGS) $(LUA_CFLAGS)
$(OBJ)/scripts/bench/%.o: PART_CFLAGS = -Isrc $(LUA_CFLAGS)
$(OBJ)/scripts/bench/probes.o: PART_CFLAGS = -ffp-contract=fast # measures multiply-adds
$(OBJ)/scripts/examples/%.o: PART_CFLAGS = -Isrc $(LUA_CFLAGS)

$(BUILD)/lua_sources.h: $(LUA_FILES) $(BUILD)/files scripts/dev/embed_lua.sh
	$(call say,EMBED,scripts/dev/embed_lua.sh lheed_sources $(filter-out $(MORE_LUA),$(LUA_FILES)) -- $(MORE_LUA) > $@)
$(BUILD)/prompt_sources.h: $(PROMPT_LUA) $(BUILD)/files scripts/dev/embed_lua.sh
	$(call say,EMBED,scripts/dev/embed_lua.sh prompt_sources $(PROMPT_LUA) > $@)

# The calls of tests/c/test_public.c. GENERATOR is a heed that runs on this machine, for builds that do not.
GENERATOR ?= $(BUILD)/heed
$(BUILD)/public_calls.h: src/heed.h scripts/dev/public_calls.lua $(GENERATOR)
	$(call say,CALLS,$(CC) $(CPPFLAGS) -std=c11 -E -P src/heed.h | $(GENERATOR) scripts/dev/public_calls.lua > $@)
$(OBJ)/tests/c/test_public.o: $(BUILD)/public_calls.h

-include $(patsubst %.o,%.d,$(call objects,$(C_FILES)))

# ---- Libraries and the runner ----

link = $(CC) $(CFLAGS) $(LDFLAGS) $(1) $(filter %.o %.a,$^) -o $@ $(2) $(BLAS_LIBS) $(IO_LIBS) -lm -pthread

$(BUILD)/libheed.a: $(call objects,$(ENGINE) $(BINDING)) $(BUILD)/files
	@rm -f $@
	$(call say,AR,$(AR) rcs $@ $(filter %.o,$^))

# OpenBLAS starts threads as soon as it is loaded. The runner and the shared libraries therefore load it only when a
# product first needs it: they contain another gemm.o, which calls dlopen. libheed.a contains the gemm.o that is linked
# with BLAS; so does everything else where BLAS is a static library.
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
	$(call say,CC,$(CCACHE) $(CC) $(HEED_CFLAGS) $(BLAS_CFLAGS) $(GEMM_FLAGS) $(CPPFLAGS) $(CFLAGS) -c $< -o $@)

# Without the binding: C hosts need no Lua.
$(BUILD)/libheed.so: $(call loading,$(call objects,$(ENGINE))) $(BUILD)/files
	$(call say,LINK,$(call link,$(LINK_SHARED)))
	@ln -sf libheed.so $(@D)/$(SONAME)

# Without liblua: the interpreter that loads the module contains one.
$(BUILD)/heed.so: $(call loading,$(call objects,$(ENGINE) $(BINDING))) $(BUILD)/files
	$(call say,LINK,$(call link,$(LINK_MODULE)))

# LOADING comes before the library, so that the linker does not take the library's gemm.o.
$(BUILD)/heed: $(call objects,$(CLI)) $(LOADING) $(BUILD)/libheed.a
	$(call say,LINK,$(call link,$(LINK_RUNNER),$(LUA_LIBS) $(EDIT_LIBS)))

# ---- Programs ----

$(BUILD)/test/%: $(OBJ)/tests/c/%.o $(call objects,$(C_SUPPORT)) $(BUILD)/libheed.a
	@mkdir -p $(@D)
	$(call say,LINK,$(call link,,$(LUA_LIBS) $(TEST_LIBS)))
$(BUILD)/%: $(OBJ)/scripts/%.o $(BUILD)/libheed.a
	@mkdir -p $(@D)
	$(call say,LINK,$(call link,,$(LUA_LIBS)))

# A host without Lua is linked with the engine alone.
$(BUILD)/examples/host: $(OBJ)/scripts/examples/host.o $(call objects,$(ENGINE))
	@mkdir -p $(@D)
	$(call say,LINK,$(call link))

# test_host loads the libraries as a host would: built without OpenBLAS, and beside another version of heed.
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

$(BUILD)/other/made: $(ENGINE) $(BINDING) $(HEADERS) $(LISTS) $(LUA_FILES) $(BUILD)/flags scripts/dev/other_version.sh
	@scripts/dev/other_version.sh $(@D)
	$(call say,MAKE,$(MAKE) --no-print-directory -C $(@D) BUILD=build BLAS=none CFLAGS='-O0 -w' build/heed.so \
	  build/libheed.so >$(@D)/log)
	@touch $@

# Locales with a decimal comma and with a decimal sign of two bytes, where the system can make them.
$(BUILD)/locale/made:
	@mkdir -p $(@D)
	@for name in de_DE ps_AF; do localedef -c -i $$name -f UTF-8 $(@D)/$$name.UTF-8 >/dev/null 2>&1; done; touch $@
