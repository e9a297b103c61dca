# Coverage: which lines and branches of the sources the tests run, as gcc counts them.

## runs the tests in build/coverage and prints what they ran of src; fails below the bounds of scripts/dev/coverage.py
coverage: needs = build test coverage $(if $(MPI),mpi)
coverage: settings = $(covering)
# -fno-early-inlining: a branch of a short function is counted in that function, and not again in each caller.
covering = BUILD=$(BUILD)/coverage CFLAGS='-O1 --coverage -fno-early-inlining -fprofile-update=prefer-atomic'
## files or folders of which coverage prints what did not run, such as src/io/gguf.c
FILES ?=
## KEEP=1 adds to the counts of the last coverage, which ran other TESTS and SPECS
KEEP ?=
run-coverage: tests
	@KEEP='$(KEEP)' TESTS='$(TESTS)' FILES='$(FILES)' MPI='$(MPI)' scripts/dev/run_coverage.sh $(BUILD) $(SPECS)

# Threads may lose some counts of a kernel, which is ten times as fast as counting atomically.
ifneq ($(filter --coverage,$(CFLAGS)),)
$(OBJ)/src/kernels/%.o: private override CFLAGS += -fprofile-update=single
$(BUILD)/heed_mpi.so: $(OBJ)/tests/mpi/coverage.o
$(OBJ)/tests/mpi/coverage.o: private override CC = $(MPICC)
endif

INSTALLING += coverage
.PHONY: run-coverage
