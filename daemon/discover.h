/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Finds the VM of a VMM that does not know us. */

#include <sys/types.h>
#include <systemd/sd-bus.h>

#include "macro.h"

/* Whether a descriptor of ours is a KVM VM. */
int discover_fd_is_vm(int fd);

/* Takes the VM's fd out of the process.  NoSuchProcess, NotVMM, SeveralVMs or NotPermitted. */
int discover_vm_fd(pid_t pid, int pidfd, int *ret_fd, sd_bus_error *error);
