/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What smaps says of memory of ours, and of other memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "mapping.h"

static char dir[] = "/tmp/tdpd-test-mapping-XXXXXX";

static void add(FILE *f, uint64_t begin, uint64_t bytes, const struct stat *st, unsigned long inode,
                unsigned kib) {
        fprintf(f,
                "%llx-%llx rw-s 00000000 %02x:%02x %lu                          /memfd:tdpd:db:node0 (deleted)\n"
                "Size:               %llu kB\nKernelPageSize:     %u kB\nMMUPageSize:        %u kB\n"
                "VmFlags: rd wr sh mr mw me ms\n",
                (unsigned long long) begin, (unsigned long long) (begin + bytes), major(st->st_dev),
                minor(st->st_dev), inode, (unsigned long long) bytes / 1024, kib, kib);
}

static void test_smaps(void **state) {
        Memory *m = calloc(1, sizeof(*m) + sizeof(MemoryPart));
        char path[128], link[80];
        Mapping mapping;
        struct stat st;
        FILE *f;

        assert_non_null(m);
        *m = (Memory){ .page_size = MIB(2), .n_parts = 1 };
        m->parts[0].fd = memfd_create("test", MFD_CLOEXEC);
        assert_int_equal(fstat(m->parts[0].fd, &st), 0);
        assert_non_null(mkdtemp(dir));
        snprintf(link, sizeof(link), "%s/7", dir);
        assert_int_equal(mkdir(link, 0700), 0);
        snprintf(path, sizeof(path), "%s/smaps", link);

        assert_int_equal(mapping_read(dir, 7, m, &mapping), -ENOENT);

        f = fopen(path, "we");
        assert_non_null(f);
        add(f, 0x10000000, MIB(4), &st, st.st_ino + 1, 4);
        fclose(f);
        assert_int_equal(mapping_read(dir, 7, m, &mapping), 0);
        assert_int_equal(mapping.bytes, 0);

        f = fopen(path, "ae");
        assert_non_null(f);
        add(f, 0x20000000, MIB(4), &st, st.st_ino, 2048);
        add(f, 0x30000000, MIB(4), &st, st.st_ino + 1, 4);
        fclose(f);
        assert_int_equal(mapping_read(dir, 7, m, &mapping), 0);
        assert_int_equal(mapping.bytes, MIB(4));
        assert_int_equal(mapping.page_size, MIB(2));

        f = fopen(path, "ae");
        assert_non_null(f);
        add(f, 0x40000000, MIB(2), &st, st.st_ino, 4);
        fclose(f);
        assert_int_equal(mapping_read(dir, 7, m, &mapping), 0);
        assert_int_equal(mapping.bytes, MIB(6));
        assert_int_equal(mapping.page_size, KIB(4));

        unlink(path);
        rmdir(link);
        rmdir(dir);
        close(m->parts[0].fd);
        free(m);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_smaps),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
