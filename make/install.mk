# Installing and removing.

## folder to install in
PREFIX ?= /usr/local
## folder for the libraries
LIBDIR ?= $(PREFIX)/lib
## folder for the Lua module
LUA_CMOD ?= $(LIBDIR)/lua/$(LUA:luajit=5.1)
## prefix of every path, for packagers
DESTDIR ?=

# Passed in the environment, so that paths may contain blanks and quotes.
install uninstall: export DESTDIR := $(DESTDIR)
install uninstall: export PREFIX := $(PREFIX)
install uninstall: export LIBDIR := $(LIBDIR)
install uninstall: export LUA_CMOD := $(LUA_CMOD)
install uninstall: export VERSION := $(VERSION)
install uninstall: export SONAME := $(SONAME)
install uninstall: export POINTER_BYTES = $(shell echo __SIZEOF_POINTER__ | $(CC) $(CFLAGS) -E -P -)
install uninstall: export STATIC_LIBS = $(strip $(BLAS_LIBS) $(IO_LIBS) -lm -pthread)
## installs the command, the libraries, the module, heed.h, files for pkg-config and CMake, the manual page and the examples
install: all
	@scripts/dev/install.sh install $(BUILD)
## removes what make install installed
uninstall:
	@scripts/dev/install.sh uninstall $(BUILD)

## tests make install, make uninstall, LuaRocks, pkg-config and CMake, as a user without rights to the sources (if root)
test-install: needs = build test install
run-install:
	@scripts/dev/run_install_tests.sh $(BUILD)

INSTALLING += test-install
.PHONY: install uninstall run-install
