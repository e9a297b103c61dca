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
$(OBJ)/src/distributed/mpi.o: $(BUILD)/mpicc
$(BUILD)/mpicc: FORCE # changes when another MPI is chosen
	@mkdir -p $(@D)
	@echo '$(MPICC)' | cmp -s - $@ || echo '$(MPICC)' > $@

# heed's functions come from the program that loads the module, or else from heed.so, beside it: Lua does not show the
# symbols of one module to another. -z nodelete: the module stays loaded after its Lua state, for what it does at exit.
ifeq ($(shell uname -s),Darwin)
LINK_MPI := $(LINK_MODULE)
else
LINK_MPI := -shared -Wl,-Bsymbolic -Wl,-z,nodelete -Wl,-rpath,'$$ORIGIN' -Wl,--no-as-needed -L$(BUILD) -l:heed.so
endif
$(BUILD)/heed_mpi.so: $(call objects,$(DISTRIBUTED)) $(BUILD)/heed.so
	$(call say,LINK,$(MPICC) $(CFLAGS) $(LDFLAGS) $(filter %.o,$^) $(LINK_MPI) -o $@)

# An MPI of which one call fails, for a spec.
$(BUILD)/failing_mpi.so: $(OBJ)/tests/mpi/failing/failing_mpi.o
	$(call say,LINK,$(MPICC) -shared $< -o $@)
$(OBJ)/tests/mpi/failing/failing_mpi.o: private override CC = $(MPICC)
$(OBJ)/tests/mpi/failing/failing_mpi.o: private override CFLAGS = -fvisibility=default
$(OBJ)/tests/mpi/failing/failing_mpi.o: $(BUILD)/mpicc

ifneq ($(MPI),)
all: $(BUILD)/heed_mpi.so $(BUILD)/failing_mpi.so
objects: $(call objects,$(DISTRIBUTED))
endif

## runs the specs for several machines, all ranks on this one
test-mpi: needs = build test mpi
test-mpi: settings = MPI=1
## numbers of ranks for test-mpi; 0: without a launcher
RANKS ?= 0 1 2 3 4
## spec files for test-mpi
MPI_SPECS ?= $(sort $(wildcard tests/mpi/*.lua tests/mpi/jobs/*_spec.lua))
RUN_MPI = MPIRUN='$(MPIRUN)' RANKS='$(RANKS)' scripts/dev/run_mpi_tests.sh $(BUILD) $(MPI_SPECS)
run-mpi: all
	@$(RUN_MPI)

## runs them with each MPI of this machine (Open MPI, MPICH), in a build of its own
test-mpis: needs = build test mpi mpis
run-mpis:
	@MPICC='$(MPICC)' MPIRUN='$(MPIRUN)' scripts/dev/run_mpis.sh $(BUILD)

# Without the examples, which would take minutes.
## runs them with 2 ranks under the address and undefined-behaviour sanitizers, in build/mpi-asan
sanitize-mpi: needs = build test mpi
sanitize-mpi: runs = run-sanitized-mpi
sanitize-mpi: settings = $(subst $(BUILD)/asan,$(BUILD)/mpi-asan,$(sanitizing)) MPI=1 RANKS=2 \
  MPI_SPECS='$(filter-out %examples_spec.lua,$(MPI_SPECS))'
sanitize-mpi: environment = UBSAN_OPTIONS=print_stacktrace=1 \
  ASAN_OPTIONS=allocator_may_return_null=1:verify_asan_link_order=0 \
  LSAN_OPTIONS=suppressions=$(CURDIR)/tests/mpi/leaks/mpi.txt:print_suppressions=0
$(BUILD)/keep_modules.so: $(OBJ)/tests/mpi/leaks/keep_modules.o
	$(call say,LINK,$(CC) -shared $< -o $@)
$(OBJ)/tests/mpi/leaks/keep_modules.o: private override CFLAGS = -fvisibility=default
run-sanitized-mpi: all $(BUILD)/keep_modules.so
	@LD_PRELOAD=$(abspath $(BUILD))/keep_modules.so $(RUN_MPI)

## runs some of them on two machines made of network namespaces (Linux, root; skipped elsewhere)
test-network: needs = build test mpi network
test-network: settings = MPI=1 RANKS=2
NETWORK_SPECS := $(patsubst %,tests/mpi/%.lua,collectives messages context_modules pipeline tensor_parallel)
run-network: all
	@MPIRUN='$(MPIRUN)' RATE='$(RATE)' DELAY='$(DELAY)' RANKS='$(RANKS)' scripts/dev/two_machines.sh \
	  scripts/dev/run_mpi_tests.sh $(BUILD) $(NETWORK_SPECS)
## Mbit/s of the network between them
RATE ?= 1000
## milliseconds of its delay; needs netem in the kernel
DELAY ?= 0

## measures what two ranks on this machine gain, and what agreeing costs
bench-mpi: needs = build mpi
bench-mpi: settings = MPI=1
run-bench-mpi: all
	@MPIRUN='$(MPIRUN)' scripts/bench/ranks.sh $(BUILD)

## measures a network between two namespaces beside the formulas of docs/machines-costs.md
bench-network: needs = build mpi network
bench-network: runs = run-bench-network
bench-network: settings = MPI=1
run-bench-network: all
	@MPIRUN='$(MPIRUN)' DELAY='$(DELAY)' HEED_CABLE=heed0 scripts/dev/two_machines.sh \
	  sh -c '"$$MPIRUN" -n 2 $(BUILD)/heed scripts/bench/network.lua'

INSTALLING += test-mpi test-mpis sanitize-mpi test-network bench-mpi bench-network
.PHONY: run-mpi run-mpis run-sanitized-mpi run-network run-bench-mpi run-bench-network
