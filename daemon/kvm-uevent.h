/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * KVM announces each VM that is made or goes with a uevent of its device.  The kernel's own messages are
 * read: they need no udevd, and arrive in a network namespace of our own as well.
 */

#include <sys/types.h>
#include <systemd/sd-event.h>

#include "macro.h"

typedef struct KVMUevent {
        bool create; /* else it goes */
        pid_t tid;   /* the thread that made it, which may be another one than the process's first */
} KVMUevent;

/* One message of the kernel.  -ENOMSG: it is about something else; -EBADMSG: it makes no sense. */
int kvm_uevent_parse(const char *message, size_t size, KVMUevent *ret);

typedef struct KVMMonitor KVMMonitor;
typedef void (*kvm_uevent_t)(const KVMUevent *e, void *userdata);

int kvm_monitor_new(sd_event *event, kvm_uevent_t callback, void *userdata, KVMMonitor **ret);
KVMMonitor *kvm_monitor_free(KVMMonitor *m);
