# SPDX-License-Identifier: LGPL-2.1-or-later
# A thin front: every target does its own set-up, packages included. What they do lives in the scripts they call.
BUILD := build/meson

.DEFAULT_GOAL := all
.PHONY: all check check-handoff check-kvm-selftests check-debug check-builds demo deb bench-daemon bench-kernel bench-off bench-dirty-log fuzz modules series format clean install-deps

all: install-deps
	@test -e $(BUILD)/build.ninja || meson setup --werror $(BUILD)
	@ninja -C $(BUILD)

# make check SUITES="tree unit": some of them only, see tests/check/run --list
check: install-deps
	@tests/check/run $(SUITES)

# VMs moved between two hosts; ARGS="--kills 20 kill": some tests only, see tests/handoff
check-handoff: install-deps
	@tests/handoff/run $(ARGS)

# hours: all KVM selftests, on both hosts, with allow and force; ARGS="--resume", "--only REGEX", "--shard 1/2"
check-kvm-selftests: install-deps
	@tests/kernel/check-kvm-selftests $(ARGS)

# hours, on a kernel with KASAN, lockdep and the like, which it builds first
check-debug: install-deps
	@tests/kernel/check-debug

# each step of the series, with W=1
check-builds: install-deps
	@kernel/check-builds

# make demo HOST=local: on this machine (needs VMX or SVM, our modules and a running tdpd)
demo: install-deps
	@tests/demo/run $(if $(HOST),--host $(HOST))

deb: install-deps
	@packaging/build-deb
	@ls -1 build/deb/*.deb

# on this machine, as root; ARGS="--only many"
bench-daemon: install-deps
	@tests/bench/daemon/run $(ARGS)

bench-kernel: install-deps
	@tests/bench/kernel/run

bench-off: install-deps
	@tests/bench/off/run

bench-dirty-log: install-deps
	@tests/bench/dirty-log/run

# ARGS="--seconds 600 config": longer, and one target only
fuzz: install-deps
	@tests/fuzz/run $(ARGS)

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
