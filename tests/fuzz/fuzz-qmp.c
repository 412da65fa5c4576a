/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What QEMU, or whatever has its socket, says to tdpctl. */

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "qmp.h"

static void on_event(const char *event, json_object *data, void *userdata) {
        FUZZ_CHECK(event);
        FUZZ_CHECK(!data || json_object_to_json_string(data));
        ++*(unsigned *) userdata;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        unsigned n_events = 0;
        struct qmp q;
        int fds[2];

        /* More does not fit into the socket, and nobody reads it meanwhile. */
        size = size < 65536 ? size : 65536;
        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
        FUZZ_CHECK(write(fds[1], data, size) == (ssize_t) size);
        close(fds[1]);

        qmp_init(&q, fds[0]);
        q.on_event = on_event;
        q.userdata = &n_events;
        FUZZ_CHECK(qmp_process(&q) < 0 && q.closed);
        qmp_done(&q);
        return 0;
}
