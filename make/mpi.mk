# The module heed_mpi, for several machines: never part of the libraries.

## MPI=1 builds heed_mpi.so as well, with mpicc
MPI ?=
## MPI's C compiler
MPICC ?= mpicc
## MPI's launcher
MPIRUN ?= mpirun

DISTRIBUTED := $(wildcard src/distributed/*.c)
-include $(patsubst %.o,%.d,$(call objects,$(DISTRIBUTED)))

$(OBJ)/src/distributed/%.o: PART_CFLAGS = $(LUA_CFLAGS)
$(OBJ)/src/distributed/mpi.o: private override CC = $(MPICC)

# heed's functions come from the program that loads the module, or else from heed.so, beside it: Lua does not show the
# symbols of one module to another. -z nodelete: the module stays loaded after its Lua state, for what it does at exit.
ifeq ($(shell uname -s),Darwin)
LINK_MPI := $(LINK_MODULE)
else
LINK_MPI := -shared -Wl,-Bsymbolic -Wl,-z,nodelete -Wl,-rpath,'$$ORIGIN' -Wl,--no-as-needed -L$(BUILD) -l:heed.so
endif
$(BUILD)/heed_mpi.so: $(call objects,$(DISTRIBUTED)) $(BUILD)/heed.so
	$(call say,LINK,$(MPICC) $(CFLAGS) $(LDFLAGS) $(filter %.o,$^) $(LINK_MPI) -o $@)

ifneq ($(MPI),)
all: $(BUILD)/heed_mpi.so
objects: $(call objects,$(DISTRIBUTED))
endif

## runs the specs for several machines, with 1 to 4 ranks on this one
test-mpi: needs = build test mpi
test-mpi: settings = MPI=1
## numbers of ranks for test-mpi
RANKS ?= 1 2 3 4
## spec files for test-mpi
MPI_SPECS ?= $(sort $(wildcard tests/mpi/*.lua tests/mpi/jobs/*_spec.lua))
run-mpi: all
	@MPIRUN='$(MPIRUN)' RANKS='$(RANKS)' scripts/dev/run_mpi_tests.sh $(BUILD) $(MPI_SPECS)

# Without the examples, which would take minutes. What MPI itself does not free is not looked for.
## runs them with 2 ranks under the address and undefined-behaviour sanitizers, in build/asan
sanitize-mpi: needs = build test mpi
sanitize-mpi: runs = run-mpi
sanitize-mpi: settings = $(sanitizing) MPI=1 RANKS=2 MPI_SPECS='$(filter-out %examples_spec.lua,$(MPI_SPECS))'
sanitize-mpi: environment = ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1

INSTALLING += test-mpi sanitize-mpi
.PHONY: run-mpi
