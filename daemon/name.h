/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "macro.h"

#define VM_NAME_MAX 64U

/* 1 to 64 of [A-Za-z0-9._-], the first one a letter or a digit: safe in paths, units and logs. */
static inline bool vm_name_is_valid(const char *name) {
        static const char alnum[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        static const char more[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
        size_t n = strlen(name);

        return n >= 1 && n <= VM_NAME_MAX && strspn(name, alnum) >= 1 && strspn(name, more) == n;
}
