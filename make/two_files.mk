# heed in two files, heed.c and heed.h, for hosts that build it themselves.

# The list is sorted, so that equal sources give equal files.
SOURCES := $(sort $(filter-out $(MORE),$(ENGINE) $(BINDING)))
## joins the sources into two files, build/heed.c and build/heed.h
amalgamation: $(BUILD)/heed.c
	@echo 'heed in two files: $(BUILD)/heed.c and $(BUILD)/heed.h. The top of heed.c lists its options.'
	@echo '  cc -O2 -c heed.c'
	@echo '  cc game.c heed.o -lm -pthread'
$(BUILD)/heed.c: scripts/dev/amalgamate.lua src/heed.h $(HEADERS) $(LISTS) $(SOURCES) $(MORE) $(BUILD)/lua_sources.h \
  $(BUILD)/files | $(BUILD)/heed
	$(call say,JOIN,$(BUILD)/heed $< $(BUILD) $(BUILD)/lua_sources.h $(SOURCES) -- $(sort $(MORE)))

## runs the C tests on the two files, with several compilers, systems and processors (Debian, Ubuntu)
test-amalgamation: needs = build test lint two
## systems for test-amalgamation: gcc minimal clang musl windows i386 armhf arm64 riscv64 s390x wasm (all by default)
SIDES ?=
run-amalgamation: $(BUILD)/heed.c $(BUILD)/digests
	@scripts/dev/run_amalgamation_tests.sh $(BUILD)

# What the scalar kernels compute here, for comparison with other systems: without BLAS, which would replace them.
$(OBJ)/tests/portable/%.o: PART_CFLAGS = -Isrc
$(BUILD)/digests: $(OBJ)/tests/portable/digests.o $(OBJ)/plain/gemm.o $(filter-out $(GEMM),$(call objects,$(ENGINE)))
	$(call say,LINK,$(CC) $(CFLAGS) $(LDFLAGS) $^ -o $@ $(IO_LIBS) -lm -pthread)

INSTALLING += test-amalgamation
.PHONY: amalgamation run-amalgamation
