# Packages for others to install (Debian, Meson), and the examples that live in other programs.

## makes Debian's source package in build/debian, from the files that git knows
debian:
	@scripts/dev/make_debian.sh $(BUILD)/debian

## makes a wrap for Meson in build/subprojects: the two files, with a meson.build
wrap: $(BUILD)/heed.c
	@scripts/dev/make_wrap.sh $(BUILD)
## builds a project with that wrap
test-wrap: needs = build meson
run-wrap: wrap
	@scripts/dev/run_wrap_tests.sh $(BUILD)

# Neovim and LÖVE contain LuaJIT.
JIT := $(if $(filter luajit,$(LUA)),$(BUILD),$(BUILD)/luajit)
jit: FORCE
	@$(MAKE) --no-print-directory LUA=luajit BUILD=$(JIT) $(JIT)/heed.so

## tests the search by meaning in headless Neovim
test-neovim: needs = build neovim
run-neovim: jit
	@MODULE='$(abspath $(JIT))/?.so' timeout 600 nvim --headless -u NONE -i NONE \
	  -c 'luafile scripts/dev/check_neovim.lua' -c 'cquit!'

INSTALLING += test-wrap test-neovim
.PHONY: debian wrap run-wrap jit run-neovim
