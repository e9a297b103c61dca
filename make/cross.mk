# Builds for other processors, tested under qemu, with libraries that are only unpacked, not installed (Debian, Ubuntu).
# A processor has the name of Debian's architecture.

CROSS       := arm64 armhf s390x
TRIPLE_arm64 := aarch64-linux-gnu
TRIPLE_armhf := arm-linux-gnueabihf
TRIPLE_s390x := s390x-linux-gnu
# test_host loads libraries of this machine; test_system_faults calls the kernel as 64-bit x86 and ARM do.
CROSS_WITHOUT_arm64 := test_host
CROSS_WITHOUT_armhf := test_host test_system_faults
CROSS_WITHOUT_s390x := test_host test_system_faults
# The bytes of a tensor fit into 32 bits where addresses have no more.
WERROR_armhf := -Wno-conversion
cross_root   = $(BUILD)/$(1)/packages/root
cross_libs   = $(call cross_root,$(1))/usr/lib/$(TRIPLE_$(1))
# What the build needs, and what busted does.
CROSS_PACKAGES := libcmocka-dev libcmocka0 liblua5.4-dev liblua5.4-0 libedit-dev libedit2 libtinfo6 libbsd0 libmd0 \
  libutf8proc-dev libutf8proc2 libcjson-dev libcjson1 zlib1g-dev zlib1g lua-filesystem lua-system lua-term

## builds for 64-bit ARM, in build/arm64
arm64:
## builds for 32-bit ARM, in build/armhf
armhf:
## builds for IBM Z, which is big-endian, in build/s390x
s390x:
$(CROSS): $(BUILD)/heed
	@scripts/dev/unpack_packages.sh $(BUILD)/$@/packages $@ $(CROSS_PACKAGES)
	@PKG_CONFIG_LIBDIR=$(call cross_libs,$@)/pkgconfig PKG_CONFIG_SYSROOT_DIR=$(call cross_root,$@) \
	  $(MAKE) --no-print-directory \
	  all $(addprefix $(BUILD)/$@/test/,$(or $(TESTS),$(filter-out $(CROSS_WITHOUT_$@),$(C_TESTS:tests/c/%.c=%)))) \
	  BUILD=$(BUILD)/$@ GENERATOR=$(abspath $(BUILD))/heed BLAS=none WERROR='$(WERROR_$@) -Werror' CC=$(TRIPLE_$@)-gcc \
	  AR=$(TRIPLE_$@)-ar CPPFLAGS=-I$(call cross_root,$@)/usr/include/$(TRIPLE_$@) \
	  LDFLAGS=-Wl,-rpath-link,$(call cross_libs,$@):$(call cross_root,$@)/lib/$(TRIPLE_$@)

# On s390x the specs of what reads or writes bytes, draws or prints numbers.
CROSS_SPECS_s390x := $(patsubst %,tests/spec/%_spec.lua,arithmetic broken_files broken_npz cache_file dtypes files golden \
  gguf gguf_encoders gguf_models indices int4_cache prefix_cache print random save_pretrained state_dict tensor to \
  tokenizers torch_files weights wordpiece)

RUN_CROSS := $(CROSS:%=run-%)
$(RUN_CROSS): run-%: %
	@CROSS_SPECS='$(CROSS_SPECS_$*)' scripts/dev/run_cross_tests.sh $(BUILD)/$* $* $(TRIPLE_$*) \
	  $(call cross_root,$*)
## tests the build for 32-bit ARM under qemu
test-armhf: needs = build test two
## tests the build for IBM Z under qemu: C tests, reference values, notebooks, and specs of what reads and writes bytes
test-s390x: needs = build test two

INSTALLING += test-armhf test-s390x
.PHONY: $(CROSS) $(RUN_CROSS)
