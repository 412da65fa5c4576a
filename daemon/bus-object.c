/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bus-object.h"

#include <errno.h>

#include "log.h"

void bus_check_signal(int r, const char *what) {
        if (r < 0)
                log_warning_errno(r, "Signal %s cannot be sent", what);
}

int bus_set_path(char **paths, size_t n, const char *path) {
        paths[n] = strdup(path);
        if (paths[n])
                return 0;
        while (n-- > 0)
                free(paths[n]);
        free(paths);
        return -ENOMEM;
}
