/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The a{sv} of bus methods. The first line is the method's number (OptionUse), each one after it an option:
 *   KEY TYPE VALUE     with TYPE one of s t u i b d y, as (VALUE once), v (a string in a variant in the
 * variant)
 */

#include <sys/socket.h>
#include <systemd/sd-bus.h>

#include "fuzz.h"
#include "options.h"

/* Messages can only be made for a bus, which need not go anywhere. */
static sd_bus *dead_bus(void) {
        static sd_bus *bus;
        int fds[2];

        if (bus)
                return bus;
        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
        FUZZ_CHECK(sd_bus_new(&bus) >= 0);
        FUZZ_CHECK(sd_bus_set_fd(bus, fds[0], fds[0]) >= 0);
        FUZZ_CHECK(sd_bus_start(bus) >= 0);
        return bus;
}

static int append_value(sd_bus_message *m, const char *type, const char *value) {
        uint64_t n = strtoull(value, NULL, 0);

        switch (*type) {
        case 't':
                return sd_bus_message_append(m, "v", "t", n);
        case 'u':
                return sd_bus_message_append(m, "v", "u", (uint32_t) n);
        case 'i':
                return sd_bus_message_append(m, "v", "i", (int32_t) n);
        case 'b':
                return sd_bus_message_append(m, "v", "b", n != 0);
        case 'd':
                return sd_bus_message_append(m, "v", "d", (double) n);
        case 'y':
                return sd_bus_message_append(m, "v", "y", (uint8_t) n);
        case 'a':
                return sd_bus_message_append(m, "v", "as", 1, value);
        case 'v':
                return sd_bus_message_append(m, "v", "v", "s", value);
        default:
                return sd_bus_message_append(m, "v", "s", value);
        }
}

static int append_option(sd_bus_message *m, char *line) {
        const char *key = strsep(&line, " "), *type = strsep(&line, " ") ?: "s", *value = line ?: "";
        int r;

        if ((r = sd_bus_message_open_container(m, 'e', "sv")) < 0 ||
            (r = sd_bus_message_append(m, "s", key)) < 0 || (r = append_value(m, type, value)) < 0)
                return r;
        return sd_bus_message_close_container(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        __attribute__((cleanup(sd_bus_message_unrefp))) sd_bus_message *m = NULL;
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *text = fuzz_string(data, size);
        char *rest = text, *line;
        Span span = {};
        OptionUse use;
        VMOptions o;
        int r;

        FUZZ_CHECK(sd_bus_message_new_method_call(dead_bus(), &m, "org.tdpd1", "/org/tdpd1",
                                                  "org.tdpd1.Manager", "Reserve") >= 0);
        use = (OptionUse) (strtoul(fuzz_line(&rest), NULL, 0) & 0xff);
        FUZZ_CHECK(sd_bus_message_open_container(m, 'a', "{sv}") >= 0);
        while ((line = fuzz_line(&rest)))
                if (append_option(m, line) < 0) /* no UTF-8, which no bus lets through */
                        return 0;
        FUZZ_CHECK(sd_bus_message_close_container(m) >= 0);
        FUZZ_CHECK(sd_bus_message_seal(m, 1, 0) >= 0);

        r = options_read(m, use, &o, &error);
        if (r < 0) {
                FUZZ_CHECK(sd_bus_error_has_name(&error, "org.tdpd1.Error.InvalidArgument"));
                return 0;
        }
        FUZZ_CHECK(o.max_level <= 3);
        if (options_get_span(&o, &span, &error) > 0)
                FUZZ_CHECK(span.size > 0 && span.gpa + span.size - 1 >= span.gpa);
        return 0;
}
