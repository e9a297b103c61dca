# heed: build, test, check, install. `make help` lists the targets and the variables: it prints the lines that begin
# with ## here and in make/*.mk, each beside the target or variable that follows it. GNU make 4 or newer.
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

## Lua version to build for: 5.1, 5.2, 5.3, 5.4, 5.5 or luajit
LUA ?= 5.4
LUAS := 5.1 5.2 5.3 5.4 5.5 luajit
ifeq ($(filter $(LUA),$(LUAS)),)
$(error LUA is '$(LUA)'; it must be one of: $(LUAS))
endif
export LUA # for install_packages.sh
## output folder (each Lua version but 5.4 has its own, such as build/lua5.1)
BUILD ?= build$(if $(filter-out 5.4,$(LUA)),/$(if $(filter luajit,$(LUA)),luajit,lua$(LUA)))
## C compiler
CC ?= cc
## a compiler cache to run the compiler with, such as ccache
CCACHE ?=
## compiler options for optimization and debugging
CFLAGS ?= -O3 -g1
## further compiler options for the kernels of vectors
KERNEL_CFLAGS ?=
## linker options
LDFLAGS ?=
## BLAS=none builds without OpenBLAS
BLAS ?=
## DEBUG=1 builds with assertions (a failed one ends the process) and with the check for two threads in one context
DEBUG ?=
## MINIMAL=1 leaves out what games do not need (docs/two-files.md)
MINIMAL ?=
## V=1 shows the commands
V ?=
## folder of downloaded models
MODELS ?= build/models
## folder of downloaded texts
TEXTS ?= build/texts

# Packages are looked up with pkg-config when a make starts, so packages that were just installed are visible only to a
# new make. Each target of INSTALLING therefore installs the groups of packages in `needs`, runs the command `prepare`,
# and starts another make for the target that does the work, `runs`: run-demo for demo, run-isa for test-isa. `settings`
# are variables of that make, `environment` variables for its programs.
INSTALLING :=
runs = run-$(@:test-%=%)
prepare :=
settings :=
environment :=

# $(call say,WHAT,command): prints a short line for a long command
say = $(if $(V),$(2),@echo '  $(1) $@'; $(2))

include make/libraries.mk make/build.mk make/test.mk make/cross.mk make/check.mk make/bench.mk make/install.mk make/two_files.mk \
  make/mpi.mk make/packages.mk make/coverage.mk make/playground.mk make/site.mk

$(INSTALLING):
	@scripts/dev/install_packages.sh $(needs)
	@$(prepare)
	@$(environment) $(MAKE) --no-print-directory $(settings) $(runs)

## prints this list
help:
	@echo 'Targets (make TARGET; make alone is make all):'
	@awk -v kind=target -f scripts/dev/make_help.awk $(MAKEFILE_LIST)
	@echo 'Variables (make TARGET NAME=value):'
	@awk -v kind=variable -f scripts/dev/make_help.awk $(MAKEFILE_LIST)

## removes the output folder
clean:
	rm -rf $(BUILD)

.PHONY: $(INSTALLING) help clean FORCE
