/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A tdpd.conf. */

#include <sys/mman.h>
#include <syslog.h>

#include "config.h"
#include "fuzz.h"
#include "log.h"

/* Read or refused, and refused with a reason that can be sent to anybody. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        ConfigError e;
        char path[64];
        Config c;
        int fd, r;

        log_set_max_level(LOG_EMERG);
        fd = memfd_create("tdpd.conf", MFD_CLOEXEC);
        FUZZ_CHECK(fd >= 0);
        FUZZ_CHECK(write(fd, data, size) == (ssize_t) size);
        snprintf(path, sizeof(path), "/proc/self/fd/%i", fd);

        r = config_load(&(ConfigSource){ .file = path }, &c, &e);
        FUZZ_CHECK((r < 0) == (e.text[0] != '\0'));
        for (const char *p = e.text; *p; p++)
                FUZZ_CHECK(*p >= ' ' && *p <= '~');
        if (r >= 0) {
                FUZZ_CHECK(c.decision >= 0 && c.decision < _DECISION_MAX);
                FUZZ_CHECK(c.limits.jobs >= 1);
                FUZZ_CHECK(c.threads >= 1 && c.threads <= 1024);
                FUZZ_CHECK(c.group);
                config_done(&c);
        }
        close(fd);
        return 0;
}
