# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
# The debug kernel: a whole build of the patched source, with the checks that the distribution leaves out.

# All that kernel/build-debug reads; the tree and the objects that it keeps are below build/kernel/debug.
debug_kernel_inputs() {
        find "$ROOT"/kernel/{build-debug,debug.config,make-series,tree.sh} \
                "$ROOT"/kernel/{gtdp,uapi,patches/"$SERIES"} -type f -print0 | sort -z | xargs -0 sha256sum
        stat -c '%n %s %Y' "/usr/src/linux-source-$SERIES.tar.xz"
}

debug_kernel_build() {
        "$ROOT/kernel/build-debug" --out "$1"
}

# Sets KVER, KERNEL_DIR (vmlinuz and modules/KVER) and KERNEL_KEY.
debug_kernel_prepare() {
        local key
        [[ $ARCH == amd ]] || die_usage "--kernel debug: only for --arch amd; it has no drivers for the intel host"
        key=$(debug_kernel_inputs | sed "s|$ROOT/||" | hash_stdin)
        [[ -e $CACHE/kernel-debug-$key || -e $ROOT/build/kernel/debug/obj/vmlinux ]] ||
                say "the first build of the debug kernel takes a quarter of an hour on two idle cores"
        cached kernel-debug "$key" debug_kernel_build
        cache_touch
        KERNEL_DIR=$CACHED KERNEL_KEY=$key KVER=$(<"$CACHED/version")
        # Many times slower than others, and all of systemd's start is in it.
        BOOT_TIMEOUT=1800
}

# KVM and our part of it are built in.
debug_modules_prepare() {
        MODULES_DIR=
}
