/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a VMM does with memory from tdpd, without a guest: reserves, maps all parts, touches each page, and
 * waits for the end of its input. Options are those of the bus, all strings but page-size: hold NAME BYTES
 * [KEY=VALUE...]
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <tdp/tdp.h>

static int failed(struct tdp_ctx *ctx, const char *what, int r) {
        const char *name = ctx ? tdp_error_name(ctx) : NULL, *text = ctx ? tdp_error_message(ctx) : NULL;

        printf("failed %s: %s %s\n", what, name ? name : strerror(-r), text ? text : "");
        return 1;
}

static int map_all(struct tdp_memory *memory) {
        struct tdp_memory *m;

        for (m = memory; m; m = tdp_memory_get_next(m)) {
                uint64_t size = tdp_memory_get_bytes(m);
                volatile uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED,
                                           tdp_memory_get_fd(m), 0);

                if (p == MAP_FAILED)
                        return -errno;
                for (uint64_t i = 0; i < size; i += 4096) {
                        if (p[i] != 0)
                                return -EBADMSG; /* somebody's old content */
                        p[i] = 1;
                }
        }
        return 0;
}

int main(int argc, char *argv[]) {
        struct tdp_options *options = NULL;
        struct tdp_memory *memory = NULL;
        struct tdp_ctx *ctx = NULL;
        struct tdp_job *job = NULL;
        struct tdp_vm *vm = NULL;
        char c;
        int r;

        if (argc < 3)
                return 2;
        if ((r = tdp_new(&ctx)) < 0 || (r = tdp_options_new(&options)) < 0)
                return failed(ctx, "start", r);
        for (int i = 3; i < argc; i++) {
                char *value = strchr(argv[i], '=');

                if (!value)
                        return 2;
                *value++ = '\0';
                r = strcmp(argv[i], "page-size") == 0
                                    ? tdp_options_set_u64(options, argv[i], strtoull(value, NULL, 10))
                                    : tdp_options_set_string(options, argv[i], value);
                if (r < 0)
                        return failed(ctx, "options", r);
        }

        r = tdp_reserve(ctx, argv[1], strtoull(argv[2], NULL, 10), options, &vm, &job);
        if (r < 0)
                return failed(ctx, "reserve", r);
        r = tdp_job_wait(job, NULL, NULL);
        if (r < 0)
                return failed(ctx, "populate", r);
        r = tdp_vm_get_memory(vm, &memory);
        if (r < 0)
                return failed(ctx, "memory", r);
        r = map_all(memory);
        if (r < 0)
                return failed(NULL, "map", r);

        puts("held");
        fflush(stdout);
        while (read(STDIN_FILENO, &c, 1) > 0)
                ;
        r = tdp_vm_release(vm);
        return r < 0 ? failed(ctx, "release", r) : 0;
}
