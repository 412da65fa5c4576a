/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fake-manager.h"

#include <stdint.h>
#include <string.h>

int fake_manager_property(sd_bus *b, const char *path, const char *interface, const char *property,
                          sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        if (strcmp(property, "Features") == 0)
                return sd_bus_message_append(reply, "as", 1, "attach-pid");
        if (strcmp(property, "Draining") == 0)
                return sd_bus_message_append(reply, "a(stau)", 1, "old", UINT64_C(2) << 30, 1, UINT32_C(77));
        if (strcmp(property, "DrainingBytes") == 0)
                return sd_bus_message_append(reply, "a(utt)", 2, 0, UINT64_C(2) << 20, UINT64_C(1) << 30, 1,
                                             UINT64_C(1) << 30, UINT64_C(1) << 30);
        if (strcmp(property, "HandoffOutcomes") == 0)
                return sd_bus_message_append(reply, "a(sst)", 4, "source", "committed", UINT64_C(3),
                                             "source", "no-pages", UINT64_C(2), "destination",
                                             "of-a-later-one", UINT64_C(4), "destination", "other",
                                             UINT64_C(1));
        if (strcmp(property, "Quarantine") == 0)
                return sd_bus_message_append(reply, "a(sss)", 1, "/run/tdpd/x.vm", "newer",
                                             "it is of version 2");
        if (strcmp(property, "Calibration") == 0)
                return sd_bus_message_append(reply, "a{sv}", 1, "why", "s", "this one does not measure");
        if (strcmp(property, "Kernel") == 0)
                return sd_bus_message_append(reply, "a{sv}", 6, "device", "b", 1, "mode", "s", "npt",
                                             "abi-version", "u", UINT32_C(1), "root-level", "u", UINT32_C(4),
                                             "max-leaf", "t", UINT64_C(1) << 30, "features", "as", 1,
                                             "ad-bits");
        if (strcmp(property, "WarmBytes") == 0)
                return sd_bus_message_append(reply, "a(utt)", 2, 0, UINT64_C(2) << 20, UINT64_C(32) << 20, 0,
                                             UINT64_C(4096), UINT64_C(1) << 20);
        if (strcmp(property, "Warm") == 0)
                return sd_bus_message_append(reply, "a(sttiuutss)", 2, "4G*2 node=0 page=2M",
                                             UINT64_C(4) << 30, UINT64_C(2) << 20, 0, UINT32_C(2),
                                             UINT32_C(1), UINT64_C(1) << 30, "pressure", "tasks waited",
                                             "1G*1", UINT64_C(1) << 30, UINT64_C(0), -1, UINT32_C(1),
                                             UINT32_C(1), UINT64_C(0), "", "");
        return sd_bus_message_append(reply, "s",
                                     strcmp(property, "Version") == 0 ? "0.0"
                                     : strcmp(property, "State") == 0 ? "running"
                                                                      : "auto");
}
