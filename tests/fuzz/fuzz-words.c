/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Words of tables, and names of VMs: what a table knows is what it gives back. */

#include <systemd/sd-bus.h>

#include "fuzz.h"
#include "log.h"
#include "name.h"
#include "placement.h"
#include "policy.h"

static void check_name(const char *s) {
        _cleanup_free_ char *path = NULL, *name = NULL;

        if (!vm_name_is_valid(s))
                return;
        FUZZ_CHECK(strlen(s) <= VM_NAME_MAX && !strchr(s, '/'));
        FUZZ_CHECK(sd_bus_path_encode("/org/tdpd1/vm", s, &path) >= 0);
        FUZZ_CHECK(sd_bus_path_decode(path, "/org/tdpd1/vm", &name) > 0);
        FUZZ_CHECK(streq(name, s));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = fuzz_string(data, size);
        char *rest = text;

        for (const char *s; (s = fuzz_line(&rest));) {
                check_name(s);
                if (decision_from_string(s) >= 0)
                        FUZZ_CHECK(streq(decision_to_string(decision_from_string(s)), s));
                if (numa_mode_from_string(s) >= 0)
                        FUZZ_CHECK(streq(numa_mode_to_string(numa_mode_from_string(s)), s));
                if (log_level_from_string(s) >= 0)
                        FUZZ_CHECK(streq(log_level_to_string(log_level_from_string(s)), s));
                if (log_target_from_string(s) >= 0)
                        FUZZ_CHECK(streq(log_target_to_string(log_target_from_string(s)), s));
        }
        return 0;
}
