/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void tree_put(const char *root, const char *file, const char *text) {
        char path[512];
        FILE *f;

        assert_true(snprintf(path, sizeof(path), "%s/%s", root, file) < (int) sizeof(path));
        for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
                *p = '\0';
                assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
                *p = '/';
        }
        f = fopen(path, "we");
        assert_non_null(f);
        assert_true(fputs(text, f) >= 0);
        assert_int_equal(fclose(f), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

int tree_remove(const char *root) {
        return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
