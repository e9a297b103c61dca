# heed and Lua 5.4 in WebAssembly: for the playground, and for tests in node.

PLAYGROUND := $(BUILD)/playground
WASM       := $(BUILD)/wasm
wasm_source = $(WASM)/$(1)/source
WASM_CC    := $(CCACHE) clang --target=wasm32-wasi --sysroot=/usr -D_WASI_EMULATED_MMAN \
  -D_WASI_EMULATED_PROCESS_CLOCKS -D_WASI_EMULATED_SIGNAL
WASM_LUA   := -I$(call wasm_source,lua5.4)/src -Iscripts/playground/include -include scripts/playground/wasi.h
WASM_HEED  := -std=c11 -fvisibility=hidden -fno-math-errno -fno-trapping-math -ffp-contract=off -DNDEBUG \
  $(subst -DHEED_BLAS=1,-DHEED_BLAS=0,$(LIBRARIES)) -DUTF8PROC_STATIC -I$(WASM) $(WASM_LUA) \
  $(addprefix -I,$(foreach name,cjson zlib utf8proc,$(call wasm_source,$(name))))
## compiler options for optimization in WebAssembly: of the kernels, and of everything else
WASM_KERNELS ?= -Os
WASM_REST ?= -Oz

# Lua without its programs; of zlib, what does not read files.
WASM_LUA_FILES := lapi lauxlib lbaselib lcode lcorolib lctype ldblib ldebug ldump lfunc lgc linit liolib llex lmathlib \
  lmem loadlib lobject lopcodes loslib lparser lstate lstring lstrlib ltable ltablib ltm lundump lutf8lib lvm lzio
WASM_ZLIB_FILES := adler32 compress crc32 deflate inffast inflate inftrees trees uncompr zutil
WASM_LIBRARIES := $(patsubst %,$(WASM)/obj/%.o,$(WASM_LUA_FILES:%=lua/%) lua/ldo $(WASM_ZLIB_FILES:%=zlib/%) \
  cjson/cJSON utf8proc/utf8proc)
# What names the kernel tables is compiled twice, with the table of vectors and without.
WASM_FILES  := $(ENGINE) $(BINDING) src/cli/prompt_host.c src/cli/report.c $(wildcard scripts/playground/*.c)
WASM_TABLES := $(shell grep -l 'HEED__CPU_' $(ENGINE) $(BINDING)) src/kernels/isa/wasm.c
wasm_objects = $(patsubst %.c,$(WASM)/obj/%.o,$(filter-out $(WASM_TABLES),$(WASM_FILES))) \
  $(patsubst %.c,$(WASM)/obj/$(1)/%.o,$(WASM_TABLES)) $(WASM_LIBRARIES)

## builds heed and Lua in WebAssembly, heed.wasm and, without SIMD, heed_scalar.wasm, and a page with them, in build/playground
playground: needs = build wasm docs
run-playground: $(PLAYGROUND)/runtime.js $(PLAYGROUND)/index.html

$(WASM)/sources: scripts/dev/unpack_source.sh
	@for name in lua5.4 cjson zlib utf8proc; do scripts/dev/unpack_source.sh $(WASM)/$$name $$name || exit 1; done
	@touch $@
$(WASM)/flags: STAMP = $(WASM_CC) $(WASM_HEED) $(WASM_KERNELS) $(WASM_REST)
$(WASM)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(STAMP)' | cmp -s - $@ || echo '$(STAMP)' > $@

# Lua files without their comments, a tenth of everything that is downloaded.
WASM_STRIPPED := $(LUA_FILES) $(patsubst %,lua/heed/prompt/%.lua,init chunk show tokens)
$(WASM)/stripped/made: $(WASM_STRIPPED) scripts/playground/strip.lua $(BUILD)/files | $(BUILD)/heed
	@rm -rf $(@D)
	@$(BUILD)/heed scripts/playground/strip.lua $(@D) $(WASM_STRIPPED)
	@touch $@
wasm_embed = $(call say,EMBED,cd $(WASM)/stripped && $(CURDIR)/scripts/dev/embed_lua.sh $(1) > $(abspath $@))
$(WASM)/lua_sources.h: $(WASM)/stripped/made
	$(call wasm_embed,lheed_sources $(LUA_FILES))
$(WASM)/prompt_sources.h: $(WASM)/stripped/made
	$(call wasm_embed,prompt_sources $(filter-out $(LUA_FILES),$(WASM_STRIPPED)))

WASM_NEEDS := $(WASM)/flags | $(WASM)/sources $(WASM)/lua_sources.h $(WASM)/prompt_sources.h
wasm_compile = @mkdir -p $(@D) && $(if $(V),set -x,echo '  CC $@') && $(WASM_CC) $(1) -MMD -MP -c $(or $(2),$<) -o $@
wasm_optimize = $(if $(filter src/kernels/%,$<),$(WASM_KERNELS),$(WASM_REST))
$(WASM)/obj/%.o: %.c $(WASM_NEEDS)
	$(call wasm_compile,$(WASM_HEED) $(wasm_optimize))
$(WASM)/obj/scalar/%.o: %.c $(WASM_NEEDS)
	$(call wasm_compile,$(WASM_HEED) $(wasm_optimize))
$(WASM)/obj/simd/%.o: %.c $(WASM_NEEDS)
	$(call wasm_compile,$(WASM_HEED) $(wasm_optimize) -msimd128)
# Sources of libraries appear when they are unpacked, so they are no prerequisites.
$(WASM)/obj/lua/ldo.o: scripts/playground/ldo.cpp $(WASM_NEEDS)
	$(call wasm_compile,$(WASM_LUA) -Os -fwasm-exceptions)
$(WASM)/obj/lua/%.o: $(WASM_NEEDS)
	$(call wasm_compile,$(WASM_LUA) -Os -Wno-deprecated-declarations,$(call wasm_source,lua5.4)/src/$*.c)
$(WASM)/obj/zlib/%.o: $(WASM_NEEDS)
	$(call wasm_compile,-Oz,$(call wasm_source,zlib)/$*.c)
$(WASM)/obj/cjson/%.o: $(WASM_NEEDS)
	$(call wasm_compile,-Oz,$(call wasm_source,cjson)/$*.c)
$(WASM)/obj/utf8proc/%.o: $(WASM_NEEDS)
	$(call wasm_compile,-Oz -DUTF8PROC_STATIC,$(call wasm_source,utf8proc)/$*.c)
-include $(patsubst %.o,%.d,$(sort $(call wasm_objects,simd) $(call wasm_objects,scalar)))

# The stack is first in memory: where it overflows, the program ends instead of changing data. The memory may grow to
# 512 MiB.
$(PLAYGROUND)/heed.wasm: $(call wasm_objects,simd)
$(PLAYGROUND)/heed_scalar.wasm: $(call wasm_objects,scalar)
$(PLAYGROUND)/heed.wasm $(PLAYGROUND)/heed_scalar.wasm:
	@mkdir -p $(@D)
	$(call say,LINK,clang --target=wasm32-wasi --sysroot=/usr -mexec-model=reactor $^ -o $@ -lwasi-emulated-mman \
	  -lwasi-emulated-process-clocks -Wl$(comma)--stack-first -Wl$(comma)-z$(comma)stack-size=1048576 \
	  -Wl$(comma)--max-memory=536870912 -Wl$(comma)--strip-all -Wl$(comma)--gc-sections)
# What the page loads. zopfli compresses a twentieth more than gzip.
$(PLAYGROUND)/%.wasm.gz: $(PLAYGROUND)/%.wasm
	$(call say,ZIP,zopfli --i5 -c $< > $@)
$(PLAYGROUND)/runtime.js: scripts/playground/runtime.js
	@mkdir -p $(@D)
	@cp $< $@

# The page: CodeMirror and esbuild come from npm, in fixed versions.
PAGE_TOOLS := $(BUILD)/playground-tools
$(PAGE_TOOLS)/made: scripts/playground/package.json
	@mkdir -p $(@D)
	@cp $< $(@D)
	@npm install --prefix $(@D) --no-audit --no-fund --silent
	@touch $@
$(PLAYGROUND)/index.html: $(PLAYGROUND)/heed.wasm.gz $(PLAYGROUND)/heed_scalar.wasm.gz $(PAGE_TOOLS)/made \
  $(wildcard scripts/playground/* scripts/playground/page/* scripts/examples/* scripts/examples/*/* scripts/notebooks/*)
	$(call say,PACK,node scripts/playground/pack.mjs $(PAGE_TOOLS) $(PLAYGROUND) $(@D))

## tests heed in WebAssembly, in node: notebooks, examples, errors, limits, files, size (Debian, Ubuntu)
test-playground: needs = build wasm
run-playground-tests: $(BUILD)/heed $(PLAYGROUND)/heed.wasm.gz $(PLAYGROUND)/heed_scalar.wasm.gz $(PLAYGROUND)/runtime.js
	@node tests/playground/run.js $(BUILD)
test-playground: runs = run-playground-tests

## compares the kernels in WebAssembly with each other and with those of this machine, in node
bench-playground: needs = build wasm
run-bench-playground: $(PLAYGROUND)/heed.wasm $(PLAYGROUND)/heed_scalar.wasm $(PLAYGROUND)/runtime.js $(BUILD)/plain/heed.so
	@LUA_CPATH='$(BUILD)/plain/?.so;;' node scripts/bench/playground.js $(BUILD) $$(scripts/dev/find_lua.sh 5.4 interpreter)
bench-playground: runs = run-bench-playground

INSTALLING += playground test-playground bench-playground
.PHONY: run-playground run-playground-tests run-bench-playground
