/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "kvm-uevent.h"

#include <errno.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include "log.h"

#define KERNEL_GROUP 1U /* of multicasts; udevd's own is 2 */
#define MESSAGE_MAX  8192U
/* At one wake-up: whoever makes VMs without end must not keep the event loop. */
#define BURST 64U

struct KVMMonitor {
        int fd;
        sd_event_source *source;
        kvm_uevent_t callback;
        void *userdata;
};

static int parse_pid(const char *s, pid_t *ret) {
        unsigned long n;
        char *end;

        if (*s < '1' || *s > '9')
                return -EBADMSG;
        errno = 0;
        n = strtoul(s, &end, 10);
        if (errno != 0 || *end != '\0' || n > INT32_MAX)
                return -EBADMSG;
        *ret = (pid_t) n;
        return 0;
}

int kvm_uevent_parse(const char *message, size_t size, KVMUevent *ret) {
        static const char head[] = "change@/devices/virtual/misc/kvm";
        const char *end = message + size;
        bool has_event = false;
        KVMUevent e = {};
        int r;

        if (size < sizeof(head) || memcmp(message, head, sizeof(head)) != 0)
                return -ENOMSG;
        if (end[-1] != '\0')
                return -EBADMSG;
        for (const char *p = message + sizeof(head); p < end; p += strlen(p) + 1)
                if (strncmp(p, "EVENT=", 6) == 0) {
                        e.create = streq(p + 6, "create");
                        if (!e.create && !streq(p + 6, "destroy"))
                                return -ENOMSG;
                        has_event = true;
                } else if (strncmp(p, "PID=", 4) == 0) {
                        r = parse_pid(p + 4, &e.tid);
                        if (r < 0)
                                return r;
                }
        if (!has_event)
                return -ENOMSG;
        if (e.tid == 0)
                return -EBADMSG;
        *ret = e;
        return 0;
}

/* 0: one message was read, whatever it was. */
static int read_one(KVMMonitor *m) {
        struct sockaddr_nl from;
        char buf[MESSAGE_MAX];
        struct iovec iov = { .iov_base = buf, .iov_len = sizeof(buf) };
        struct msghdr h = {
                .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov, .msg_iovlen = 1
        };
        KVMUevent e;
        ssize_t n;

        n = recvmsg(m->fd, &h, MSG_DONTWAIT);
        if (n < 0)
                return errno == EINTR ? 0 : -errno;
        /* Any process may send to us.  Only the kernel has no port. */
        if (h.msg_namelen != sizeof(from) || from.nl_pid != 0 || from.nl_groups == 0 ||
            (h.msg_flags & MSG_TRUNC))
                return 0;
        if (kvm_uevent_parse(buf, (size_t) n, &e) >= 0)
                m->callback(&e, m->userdata);
        return 0;
}

static int on_message(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        for (unsigned i = 0; i < BURST; i++) {
                int r = read_one(userdata);

                if (r == -EAGAIN)
                        break;
                if (r == -ENOBUFS)
                        log_warning("Too many of the kernel's messages at once: some VMs may not be adopted. "
                                    "tdpctl attach takes them");
                else if (r < 0) {
                        log_error_errno(r,
                                        "The kernel's messages cannot be read any more: no VM is adopted");
                        return sd_event_source_set_enabled(s, SD_EVENT_OFF);
                }
        }
        return 0;
}

int kvm_monitor_new(sd_event *event, kvm_uevent_t callback, void *userdata, KVMMonitor **ret) {
        struct sockaddr_nl address = { .nl_family = AF_NETLINK, .nl_groups = KERNEL_GROUP };
        KVMMonitor *m;
        int r;

        m = calloc(1, sizeof(*m));
        if (!m)
                return -ENOMEM;
        *m = (KVMMonitor){ .callback = callback, .userdata = userdata };
        m->fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
        if (m->fd < 0 || bind(m->fd, (struct sockaddr *) &address, sizeof(address)) < 0)
                r = -errno;
        else
                r = sd_event_add_io(event, &m->source, m->fd, EPOLLIN, on_message, m);
        if (r < 0) {
                kvm_monitor_free(m);
                return r;
        }
        *ret = m;
        return 0;
}

KVMMonitor *kvm_monitor_free(KVMMonitor *m) {
        if (!m)
                return NULL;
        sd_event_source_disable_unref(m->source);
        safe_close(m->fd);
        free(m);
        return NULL;
}
