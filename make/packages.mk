# Packages for others to install (Debian, Meson), and the examples that live in other programs.

## makes Debian's source package in build/debian, from the files that git knows
debian:
	@scripts/dev/make_debian.sh $(BUILD)/debian
## builds Debian's packages, runs lintian, and uses them in a bare Debian (Debian, root; some ten minutes)
test-debian: needs = build luas debian
run-debian:
	@scripts/dev/run_debian_tests.sh $(BUILD)

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

## plays the LÖVE example in a virtual display, and looks at a screenshot
test-love: needs = build love
run-love: jit
	@MODULE='$(abspath $(JIT))/?.so' PICTURE='$(BUILD)/love.png' timeout 600 \
	  xvfb-run -a -s '-screen 0 1280x800x24' love tests/love

INSTALLING += test-debian test-wrap test-neovim test-love
.PHONY: debian run-debian wrap run-wrap jit run-neovim run-love
