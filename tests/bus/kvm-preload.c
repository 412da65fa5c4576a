/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * To be preloaded into tdpd on a machine without KVM: a memfd that is called "kvm-vm" passes for a VM.  tdpd
 * tells a VM by its link in /proc, and does no more with it than to give it to the device, which the tests
 * have a stand-in for.
 */
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "kvm-preload.h"

ssize_t readlinkat(int dir, const char *path, char *buf, size_t size) {
        static const char from[] = "/memfd:" KVM_STANDIN " (deleted)", to[] = "anon_inode:kvm-vm";
        ssize_t (*next)(int, const char *, char *, size_t);
        ssize_t n;

        next = (ssize_t(*)(int, const char *, char *, size_t)) dlsym(RTLD_NEXT, "readlinkat");
        n = next(dir, path, buf, size);
        if (n != (ssize_t) strlen(from) || memcmp(buf, from, (size_t) n) != 0)
                return n;
        memcpy(buf, to, strlen(to)); /* the shorter one */
        return (ssize_t) strlen(to);
}
