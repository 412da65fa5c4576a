/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "carry.h"
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_USEC UINT64_C(20000000)

static void read_bytes(sd_bus_message *m, Bytes *ret) {
        const void *data;
        size_t size;

        assert_true(sd_bus_message_read_array(m, 'y', &data, &size) >= 0);
        assert_true(size <= sizeof(ret->data));
        if (size > 0)
                memcpy(ret->data, data, size);
        ret->size = size;
}

static void read_path(sd_bus_message *m, char *ret, size_t size) {
        const char *path;

        assert_true(sd_bus_message_read(m, "o", &path) > 0);
        snprintf(ret, size, "%s", path);
}

pid_t carry_run_vm(Fixture *f) {
        Reservation r = reserve(f, "db", CARRY_BYTES, HUGE_2M);
        pid_t pid;

        assert_string_equal(wait_job(f, r.job)->result, "done");
        pid = spawn_vmm(1, 0);
        assert_string_equal(wait_job(f, standin_attach(f, pid, "always"))->result, "done");
        return pid;
}

void carry_offer(Side *source, Fixture *f, const char *vm, uint64_t deadline_usec, bool post_copy,
                 Bytes *ret) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m;

        m = call(f->bus, &error, vm, "org.tdpd1.VM", "OfferHandoff", "a{sv}", 2, "deadline-usec", "t",
                 deadline_usec, "post-copy", "b", (int) post_copy);
        if (!m)
                fail_msg("OfferHandoff: %s: %s", error.name, error.message);
        source->f = f;
        read_path(m, source->path, sizeof(source->path));
        read_bytes(m, ret);
        sd_bus_message_unref(m);
}

bool carry_try_prepare_on(const char *nodes, Side *destination, Fixture *f, const Bytes *offer,
                          const char *name, uint64_t page_size, Bytes *ret_answer, sd_bus_error *error) {
        sd_bus_message *m = NULL, *reply = NULL;
        int r;

        assert_true(sd_bus_message_new_method_call(f->bus, &m, "org.tdpd1", MANAGER, "org.tdpd1.Manager",
                                                   "PrepareIncoming") >= 0);
        assert_true(sd_bus_message_append_array(m, 'y', offer->data, offer->size) >= 0);
        assert_true(sd_bus_message_open_container(m, 'a', "{sv}") >= 0);
        if (nodes)
                assert_true(sd_bus_message_append(m, "{sv}", "nodes", "s", nodes) >= 0);
        if (name)
                assert_true(sd_bus_message_append(m, "{sv}", "name", "s", name) >= 0);
        if (page_size)
                assert_true(sd_bus_message_append(m, "{sv}", "page-size", "t", page_size) >= 0);
        assert_true(sd_bus_message_close_container(m) >= 0);
        r = sd_bus_call(f->bus, m, 0, error, &reply);
        sd_bus_message_unref(m);
        if (r < 0)
                return false;
        destination->f = f;
        read_path(reply, destination->path, sizeof(destination->path));
        read_bytes(reply, ret_answer);
        read_path(reply, destination->job, sizeof(destination->job));
        sd_bus_message_unref(reply);
        return true;
}

bool carry_try_prepare(Side *destination, Fixture *f, const Bytes *offer, const char *name,
                       uint64_t page_size, Bytes *ret_answer, sd_bus_error *error) {
        return carry_try_prepare_on("0", destination, f, offer, name, page_size, ret_answer, error);
}

void carry_prepare(Side *destination, Fixture *f, const Bytes *offer, const char *name, Bytes *ret_answer) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        if (!carry_try_prepare(destination, f, offer, name, 0, ret_answer, &error))
                fail_msg("PrepareIncoming: %s: %s", error.name, error.message);
        carry_wait_state(destination, "ready");
        if (ret_answer->size == 0)
                carry_next(destination, ret_answer);
        assert_true(ret_answer->size > 0);
}

bool carry_try_deliver(Fixture *f, const Bytes *message, Bytes *ret_reply, char *path, sd_bus_error *error) {
        sd_bus_message *m = NULL, *reply = NULL;
        char there[128];
        int r;

        assert_true(sd_bus_message_new_method_call(f->bus, &m, "org.tdpd1", MANAGER, "org.tdpd1.Manager",
                                                   "DeliverHandoff") >= 0);
        assert_true(sd_bus_message_append_array(m, 'y', message->data, message->size) >= 0);
        r = sd_bus_call(f->bus, m, 0, error, &reply);
        sd_bus_message_unref(m);
        if (r < 0)
                return false;
        read_path(reply, there, sizeof(there));
        if (path)
                strcpy(path, there);
        read_bytes(reply, ret_reply);
        sd_bus_message_unref(reply);
        return true;
}

void carry_deliver(Fixture *f, const Bytes *message, Bytes *ret_reply) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        if (!carry_try_deliver(f, message, ret_reply, NULL, &error))
                fail_msg("DeliverHandoff: %s: %s", error.name, error.message);
}

bool carry_try_call(const Side *s, const char *member, Bytes *ret, sd_bus_error *error, const char *types,
                    ...) {
        sd_bus_message *m = NULL, *reply = NULL;
        va_list ap;
        int r;

        assert_true(sd_bus_message_new_method_call(s->f->bus, &m, "org.tdpd1", s->path, HANDOFF_INTERFACE,
                                                   member) >= 0);
        va_start(ap, types);
        r = types ? sd_bus_message_appendv(m, types, ap) : 0;
        va_end(ap);
        assert_true(r >= 0);
        r = sd_bus_call(s->f->bus, m, 0, error, &reply);
        sd_bus_message_unref(m);
        if (r < 0)
                return false;
        if (ret)
                read_bytes(reply, ret);
        sd_bus_message_unref(reply);
        return true;
}

static void must(bool done, const char *member, const sd_bus_error *error) {
        if (!done)
                fail_msg("%s: %s: %s", member, error->name, error->message);
}

void carry_next(const Side *s, Bytes *ret) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        must(carry_try_call(s, "Next", ret, &error, NULL), "Next", &error);
}

void carry_wait_next(const Side *s, Bytes *ret) {
        for (uint64_t until = now_usec() + WAIT_USEC; now_usec() < until; usleep(2000)) {
                carry_next(s, ret);
                if (ret->size > 0)
                        return;
        }
        fail_msg("%s says nothing", s->path);
}

void carry_start(const Side *s, const char *logging, Bytes *ret) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        must(carry_try_call(s, "Start", ret, &error, "a{sv}", 1, "logging", "s", logging), "Start", &error);
}

void carry_commit(const Side *s, uint64_t bytes_left, Bytes *ret) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        must(carry_try_call(s, "Commit", ret, &error, "a{sv}", 2, "bytes-left", "t", bytes_left, "post-copy",
                            "b", (int) (bytes_left > 0)),
             "Commit", &error);
}

void carry_plain(const Side *s, const char *member) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        must(carry_try_call(s, member, NULL, &error, NULL), member, &error);
}

void carry_cancel(const Side *s, const char *text) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        must(carry_try_call(s, "Cancel", NULL, &error, "s", text), "Cancel", &error);
}

char *carry_property(const Side *s, const char *name) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *v;
        char *copy;
        sd_bus_message *m = NULL;

        if (sd_bus_get_property(s->f->bus, "org.tdpd1", s->path, HANDOFF_INTERFACE, name, &error, &m,
                                strcmp(name, "VMObject") == 0 || strcmp(name, "Job") == 0 ? "o" : "s") < 0)
                fail_msg("%s of %s: %s", name, s->path, error.message);
        assert_true(sd_bus_message_read_basic(
                                    m, strcmp(name, "VMObject") == 0 || strcmp(name, "Job") == 0 ? 'o' : 's',
                                    &v) > 0);
        copy = strdup(v);
        assert_non_null(copy);
        sd_bus_message_unref(m);
        return copy;
}

uint64_t carry_number(const Side *s, const char *name) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        uint64_t v;

        if (sd_bus_get_property_trivial(s->f->bus, "org.tdpd1", s->path, HANDOFF_INTERFACE, name, &error,
                                        't', &v) < 0)
                fail_msg("%s of %s: %s", name, s->path, error.message);
        return v;
}

bool carry_is(const Side *s, const char *state) {
        char *now = carry_property(s, "State");
        bool same = strcmp(now, state) == 0;

        free(now);
        return same;
}

void carry_wait_state(const Side *s, const char *state) {
        for (uint64_t until = now_usec() + WAIT_USEC; now_usec() < until; usleep(2000))
                if (carry_is(s, state))
                        return;
        carry_assert(s, "State", state);
}

void carry_assert(const Side *s, const char *property, const char *value) {
        char *now = carry_property(s, property);

        if (strcmp(now, value) != 0)
                fail_msg("%s of %s is \"%s\" instead of \"%s\"", property, s->path, now, value);
        free(now);
}

uint64_t carry_outcomes(const Side *s, const char *role, const char *outcome) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *of, *word;
        sd_bus_message *m;
        uint64_t n, ret = 0;

        if (sd_bus_get_property(s->f->bus, "org.tdpd1", "/org/tdpd1", "org.tdpd1.Manager", "HandoffOutcomes",
                                &error, &m, "a(sst)") < 0)
                fail_msg("HandoffOutcomes: %s", error.message);
        assert_true(sd_bus_message_enter_container(m, 'a', "(sst)") > 0);
        while (sd_bus_message_read(m, "(sst)", &of, &word, &n) > 0)
                if (strcmp(of, role) == 0 && strcmp(word, outcome) == 0)
                        ret += n;
        sd_bus_message_unref(m);
        return ret;
}
