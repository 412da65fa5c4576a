# SPDX-License-Identifier: LGPL-2.1-or-later
# A thin front: every target does its own set-up, packages included. What they do lives in the scripts they call.
BUILD := build/meson

.DEFAULT_GOAL := all
.PHONY: all check demo deb bench-kernel modules series format clean install-deps

all: install-deps
	@test -e $(BUILD)/build.ninja || meson setup --werror $(BUILD)
	@ninja -C $(BUILD)

# make check SUITES="tree unit": some of them only, see tests/check/run --list
check: install-deps
	@tests/check/run $(SUITES)

# make demo HOST=local: on this machine (needs VMX or SVM, our modules and a running tdpd)
demo: install-deps
	@tests/demo/run $(if $(HOST),--host $(HOST))

deb: install-deps
	@packaging/build-deb
	@ls -1 build/deb/*.deb

bench-kernel: install-deps
	@tests/bench/kernel/run

modules: install-deps
	@kernel/build-modules --out build/modules

series: install-deps
	@kernel/make-series --out build/series

format:
	@tests/check/format --fix

install-deps:
	@scripts/install-deps

clean:
	rm -rf build
