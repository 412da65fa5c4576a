# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
# The debug kernel: a whole build of the patched source, with the checks that the distribution leaves out.

# Sets KVER, KERNEL_DIR (vmlinuz and modules/KVER, KVM's among them) and KERNEL_KEY.
debug_kernel_prepare() {
        die_host "--kernel debug: there is no build of such a kernel yet"
}

# The kernel comes with our KVM.
debug_modules_prepare() {
        MODULES_DIR=
}
