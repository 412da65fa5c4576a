/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A tdpd.conf. */

#include <sys/mman.h>
#include <syslog.h>

#include "config.h"
#include "fuzz.h"
#include "log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        char path[64];
        Config c;
        int fd;

        log_set_max_level(LOG_EMERG);
        fd = memfd_create("tdpd.conf", MFD_CLOEXEC);
        FUZZ_CHECK(fd >= 0);
        FUZZ_CHECK(write(fd, data, size) == (ssize_t) size);
        snprintf(path, sizeof(path), "/proc/self/fd/%i", fd);

        FUZZ_CHECK(config_init(&c) == 0);
        (void) config_load(&c, path);
        FUZZ_CHECK(c.decision >= 0 && c.decision < _DECISION_MAX);
        FUZZ_CHECK(c.limits.jobs >= 1);
        FUZZ_CHECK(c.threads >= 1 && c.threads <= 1024);
        FUZZ_CHECK(c.group);
        config_done(&c);
        close(fd);
        return 0;
}
