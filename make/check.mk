# The checks of make lint. Each check is a target of its own.

## runs luacheck, gcc and clang with warnings as errors, clang-format, and the checks of layers, symbols and heed.h
lint: needs = build test lint
run-lint: luacheck syntax layers warnings format header symbols check-amalgamation

luacheck:
	luacheck --quiet lua scripts tests
# luacheck does not check that all Lua code is valid in Lua 5.1, which would also read newer escapes as letters. Only
# hostile scripts may use 5.4's syntax.
LUA_CODE = $$(find lua scripts tests -name '*.lua' ! -path 'tests/hostile/*')
syntax:
	@echo 'for _, name in ipairs(arg) do assert(loadfile(name)) end' | \
	  $$(scripts/dev/find_lua.sh 5.1 interpreter) - $(LUA_CODE)
	@! grep -nP '(?<!\\)(\\\\)*\\(x[[:xdigit:]]|u\{|z)' $(LUA_CODE)

layers: $(BUILD)/heed $(call objects,$(filter src/%,$(C_FILES)))
	@$(BUILD)/heed scripts/dev/check_layers.lua $(filter src/%,$(C_FILES) $(DISTRIBUTED) $(HEADERS))
	@nm -A -P $(call objects,$(filter src/%,$(C_FILES))) | $(BUILD)/heed scripts/dev/check_objects.lua

warnings:
	@$(MAKE) --no-print-directory objects BUILD=$(BUILD)/lint/gcc CC=gcc CFLAGS=-O1 WERROR=-Werror
	@$(MAKE) --no-print-directory objects BUILD=$(BUILD)/lint/clang DEBUG=1 CC=clang CFLAGS=-O0 WERROR=-Werror

format:
	@clang-format --dry-run -Werror $(C_FILES) $(DISTRIBUTED) $(wildcard tests/mpi/*/*.c) $(HEADERS)

# heed.h as hosts include it
header:
	@for as in '$(CC) -x c -std=c99' '$(CC) -x c -std=c11' 'g++ -x c++ -std=c++17'; do \
	  echo '#include "src/heed.h"' | \
	  $$as -I. -pedantic -Wall -Wextra -Wshadow -Wconversion -Werror -fsyntax-only - || exit 1; \
	done

symbols: $(BUILD)/libheed.so $(BUILD)/heed.so $(BUILD)/libheed.a
	@scripts/dev/check_symbols.sh $(BUILD)

# In one file, no two sources may define a static function, a type or a macro of the same name.
check-amalgamation: $(BUILD)/heed.c
	@gcc -std=c11 -fsyntax-only -Wall -Wextra -Werror $<
	@gcc -std=c11 -fsyntax-only -Wall -Wextra -Werror -DHEED_LUA=1 $(LUA_CFLAGS) $(LIBRARIES) $(BLAS_CFLAGS) $(IO_CFLAGS) $<
	@gcc -std=c11 -fsyntax-only -Wall -Wextra -Werror -DHEED_MINIMAL=1 -DHEED_LUA=1 $(LUA_CFLAGS) $<
	@clang -std=c11 -fsyntax-only -Wall -Wextra -Werror $<

## compares the size of each part of the libraries with docs/two-files.md
sizes: all
	@scripts/dev/check_sizes.sh $(OBJ)/src

## compares the stored reference values in tests/golden with newly computed ones (PyTorch, in build/golden-venv)
test-golden: needs = build bench
run-golden: $(BUILD)/golden-venv/made
	@$(BUILD)/golden-venv/bin/python scripts/dev/check_golden.py
$(BUILD)/golden-venv/made: wheels = numpy torch==2.13.0 gguf safetensors transformers sentencepiece onnx onnxruntime

INSTALLING += lint test-golden
.PHONY: run-lint luacheck syntax layers warnings format header symbols check-amalgamation sizes run-golden
