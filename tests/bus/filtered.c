/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Runs $FILTERED_COMMAND with a system call that fails: $FILTERED_SYSCALL is "NAME ERRNO", or "NAME ERRNO
 * ARG3" for calls with that third argument only.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
        const char *name;
        unsigned number;
} calls[] = {
        { "madvise", SYS_madvise },
        { "mbind", SYS_mbind },
        { "memfd_create", SYS_memfd_create },
        { "fstatfs", SYS_fstatfs },
};

int main(int argc, char *argv[]) {
        const char *command = getenv("FILTERED_COMMAND"), *what = getenv("FILTERED_SYSCALL");
        unsigned error, number = 0, third = 0;
        char name[32];
        int n;

        if (!command || !what || (n = sscanf(what, "%31s %u %u", name, &error, &third)) < 2)
                return 126;
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
                if (strcmp(calls[i].name, name) == 0)
                        number = calls[i].number;
        if (number == 0)
                return 126;

        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, third, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_filter any[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {
                .len = n == 3 ? sizeof(filter) / sizeof(filter[0]) : sizeof(any) / sizeof(any[0]),
                .filter = n == 3 ? filter : any,
        };

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
                return 125;
        argv[0] = (char *) command;
        execv(command, argv);
        return 127;
}
