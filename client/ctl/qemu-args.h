/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tdp/tdp.h"

/* What a QEMU command line says, as far as it matters to "run". */
struct qemu_args {
        bool stopped;      /* -S */
        bool accelerator;  /* one is chosen */
        bool memory;       /* -m, with the same size */
        uint32_t max_cpus; /* of -smp; 0 if that is left to QEMU to work out */
};

/* Refuses what contradicts memory from tdpd, and says so. argv is NULL-terminated. */
int qemu_args_scan(char *const *argv, uint64_t memory, struct qemu_args *ret);

/*
 * The command line with memory and control channel added; the user's words come first and stay as they are.
 * The vector and its last words belong to the caller: free with qemu_args_free(). parts: the sizes and
 * descriptors of the node parts.
 */
struct qemu_part {
        uint64_t bytes;
        int fd;
};
int qemu_args_build(char *const *argv, const struct qemu_args *scanned, const struct qemu_part *parts,
                    size_t n_parts, int config_fd, bool stop, bool incoming, char ***ret);
char **qemu_args_free(char **argv);

/* A configuration file (close-on-exec) that has QEMU serve QMP on that socket, and to who connects to that
 * path (NULL: to nobody else). */
int qemu_args_open_config(int qmp_fd, const char *qmp_path);
