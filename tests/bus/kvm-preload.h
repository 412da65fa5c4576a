/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The name of a memfd that passes for a VM where there is no KVM. */
#define KVM_STANDIN "kvm-vm"
