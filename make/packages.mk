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

## tests docs/recipes.md with nginx, haproxy, pandoc and texlua (Debian, Ubuntu; TeX takes 200 MB)
test-recipes: needs = build recipes
## recipes to test: Nginx Haproxy Pandoc Texlua (all by default)
RECIPES ?=
run-recipes: all jit
	@$(MAKE) --no-print-directory LUA=5.3 BUILD=$(BUILD)/lua5.3 $(BUILD)/lua5.3/heed.so
	@scripts/dev/unpack_packages.sh $(BUILD)/nginx "$$(dpkg --print-architecture)" nginx libnginx-mod-http-ndk \
	  libnginx-mod-http-lua lua-resty-core lua-resty-lrucache libluajit2-5.1-2
	@python3 scripts/dev/check_recipes.py $(BUILD) $(JIT) $(BUILD)/lua5.3 $(RECIPES)

INSTALLING += test-debian test-wrap test-neovim test-love test-recipes
.PHONY: debian run-debian wrap run-wrap jit run-neovim run-love run-recipes
