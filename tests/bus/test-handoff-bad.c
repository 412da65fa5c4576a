/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages of a handoff that are hostile, old, of others or of another time: an error by name, and nothing
 * of it stays. */
#include "carry.h"
#include "standin.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMALL MIB

static Bytes offer, answer, message, changed, reply;

static size_t count_handoffs(Fixture *f) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *m = manager_call(f, &error, "ListHandoffs", NULL);
        size_t n = 0;

        assert_non_null(m);
        assert_true(sd_bus_message_enter_container(m, 'a', "(ossss)") > 0);
        while (sd_bus_message_skip(m, "(ossss)") > 0)
                n++;
        sd_bus_message_unref(m);
        return n;
}

static void prepare_fails(Fixture *f, const Bytes *m, uint64_t page_size, const char *name,
                          const char *part) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        size_t vms = count_vms(f), handoffs = count_handoffs(f);
        Side side;

        assert_false(carry_try_prepare(&side, f, m, NULL, page_size, &reply, &error));
        assert_error_is(&error, name, part);
        assert_int_equal(count_vms(f), vms);
        assert_int_equal(count_handoffs(f), handoffs);
}

static void deliver_fails(Fixture *f, const Bytes *m, const char *name, const char *part) {
        sd_bus_error error = SD_BUS_ERROR_NULL;

        assert_false(carry_try_deliver(f, m, &reply, NULL, &error));
        assert_error_is(&error, name, part);
}

/* What is said back is an abort for this reason. */
static void deliver_aborts(Fixture *f, const Bytes *m, const char *reason) {
        carry_deliver(f, m, &reply);
        assert_true(reply.size > 0);
        assert_string_equal(craft_reason(&reply), reason);
}

static void call_fails(const Side *s, const char *member, const char *name, const char *part) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *types = strcmp(member, "Start") == 0 || strcmp(member, "Commit") == 0 ? "a{sv}"
                            : strcmp(member, "Cancel") == 0                               ? "s"
                                                                                          : NULL;

        if (types && types[0] == 's')
                assert_false(carry_try_call(s, member, NULL, &error, types, "why"));
        else
                assert_false(carry_try_call(s, member, NULL, &error, types, 0));
        assert_error_is(&error, name, part);
}

static void case_73_no_messages(void **state) {
        Fixture *f;
        Side side;

        require_root();
        f = fixture_start(NULL, NULL);
        craft_offer(&offer, "db", 1, SMALL, 4096);
        for (size_t n = 0; n < offer.size; n++) {
                message = offer;
                message.size = n;
                prepare_fails(f, &message, 0, ERR("BadMessage"), "");
                deliver_fails(f, &message, ERR("BadMessage"), "");
        }
        for (size_t i = 0; i < offer.size; i++) {
                sd_bus_error error = SD_BUS_ERROR_NULL;

                message = offer;
                message.data[i] ^= 0xff;
                if (carry_try_deliver(f, &message, &reply, NULL, &error))
                        assert_int_equal(reply.size, 0);
                sd_bus_error_free(&error);
        }
        message.size = sizeof(message.data);
        prepare_fails(f, &message, 0, ERR("BadMessage"), "too-large");
        deliver_fails(f, &message, ERR("BadMessage"), "too-large");

        /* The other call's. */
        deliver_fails(f, &offer, ERR("InvalidArgument"), "PrepareIncoming");

        /* Versions: the first two fields are that of the writer, and the oldest that can read it. */
        message = offer;
        message.data[1] = message.data[3] = 2;
        prepare_fails(f, &message, 0, ERR("TooNew"), "too-new");
        message = offer;
        memcpy(message.data + message.size, "\x1a\x04time", 6); /* a feature that is needed */
        message.size += 6;
        prepare_fails(f, &message, 0, ERR("TooNew"), "unknown-feature");
        message = offer;
        message.data[1] = 2; /* newer, and to be read by us */
        memcpy(message.data + message.size, "\xba\x3e\x03new", 6);
        message.size += 6;
        carry_prepare(&side, f, &message, NULL, &answer);
        carry_cancel(&side, "");
        carry_wait_state(&side, "gone");
        assert_int_equal(count_vms(f), 0);
        fixture_stop(f);
}

static void case_54_too_small_is_said_first(void **state) {
        uint64_t pages = pool_grow(4);
        Reservation r;
        Fixture *f;
        Side side, other;

        require_root();
        f = fixture_start("[Limits]\nMaxVMs=2\n", NULL);
        craft_offer(&offer, "db", 3, (pages + 1) * HUGE_2M, HUGE_2M);
        prepare_fails(f, &offer, 0, ERR("NoPages"), "short of");
        craft_offer(&offer, "db", 3, UINT64_C(1) << 51, 4096);
        prepare_fails(f, &offer, 0, ERR("NoPages"), "short of");
        craft_offer(&offer, "db", 3, SMALL, 4096);
        prepare_fails(f, &offer, HUGE_2M, ERR("Unsupported"), "not offered");
        craft_change(&offer, CRAFT_PAGE_SIZE, 8192, &changed); /* no page of this machine */
        prepare_fails(f, &changed, 0, ERR("InvalidArgument"), "none of this host's");
        craft_change(&offer, CRAFT_TO, 1, &changed);
        prepare_fails(f, &changed, 0, ERR("Mismatch"), "another host");

        r = reserve(f, "db", SMALL, 4096);
        assert_string_equal(wait_job(f, r.job)->result, "done");
        prepare_fails(f, &offer, 0, ERR("NameTaken"), "\"db\"");
        release(f, r.vm);

        /* One at a time, and the same one again is the same. */
        carry_prepare(&side, f, &offer, NULL, &answer);
        craft_change(&offer, CRAFT_ID, 7, &changed);
        prepare_fails(f, &changed, 0, ERR("Busy"), "under way");
        craft_change(&offer, CRAFT_GENERATION, 4, &changed);
        prepare_fails(f, &changed, 0, ERR("Mismatch"), "generation");
        craft_change(&offer, CRAFT_FROM, 4, &changed);
        prepare_fails(f, &changed, 0, ERR("Mismatch"), "from another host");
        carry_prepare(&other, f, &offer, NULL, &answer);
        assert_string_equal(side.path, other.path);
        assert_int_equal(count_vms(f), 1);

        craft_offer(&message, "db2", 1, SMALL, 4096);
        carry_prepare(&other, f, &message, NULL, &answer);
        craft_offer(&message, "db3", 1, SMALL, 4096);
        prepare_fails(f, &message, 0, ERR("LimitExceeded"), "MaxVMs=");
        fixture_stop(f);
}

/* On one tdpd both sides, up to where the VM is copied. */
static void go_to_started(Fixture *f, Side *source, Side *destination, Bytes *start) {
        carry_offer(source, f, VM_PATH, CARRY_USEC, false, &offer);
        carry_prepare(destination, f, &offer, "db2", &answer);
        carry_deliver(f, &answer, &reply);
        carry_start(source, "none", start);
}

static void test_swapped_and_replayed(void **state) {
        static Bytes start, commit, old_start;
        Side source, destination, again;
        Fixture *f;
        pid_t pid;

        (void) pool_grow(2 * CARRY_BYTES / HUGE_2M);
        require_root();
        f = standin_start("good");
        pid = carry_run_vm(f);
        carry_offer(&source, f, VM_PATH, CARRY_USEC, false, &offer);
        call_fails(&source, "Start", ERR("TooEarly"), "answer is still to come");
        call_fails(&source, "Commit", ERR("TooEarly"), "offered");
        call_fails(&source, "Arrived", ERR("InvalidArgument"), "the source's side");
        call_fails(&source, "Forget", ERR("Busy"), "under way");
        carry_prepare(&destination, f, &offer, "db2", &answer);
        call_fails(&destination, "Start", ERR("InvalidArgument"), "the destination's side");
        call_fails(&destination, "Arrived", ERR("TooEarly"), "ready");
        prepare_fails(f, &answer, 0, ERR("InvalidArgument"), "DeliverHandoff");

        craft_change(&answer, CRAFT_VM, 0, &changed);
        deliver_fails(f, &changed, ERR("Mismatch"), "vm");
        craft_change(&answer, CRAFT_GENERATION, 9, &changed);
        deliver_fails(f, &changed, ERR("Mismatch"), "generation");
        craft_change(&answer, CRAFT_TO, 9, &changed);
        deliver_fails(f, &changed, ERR("Mismatch"), "another host");
        craft_change(&answer, CRAFT_PAGE_SIZE, 8192, &changed);
        deliver_fails(f, &changed, ERR("BadMessage"), "none of the sizes");
        craft_change(&answer, CRAFT_ID, 9, &changed);
        deliver_aborts(f, &changed, "unknown");
        carry_assert(&source, "State", "offered");
        carry_deliver(f, &answer, &reply);
        craft_change(&answer, CRAFT_FROM, 9, &changed);
        deliver_fails(f, &changed, ERR("Mismatch"), "from another host");
        craft_change(&answer, CRAFT_GRANT, 9, &changed);
        deliver_aborts(f, &changed, "unknown");
        carry_start(&source, "none", &start);
        carry_deliver(f, &answer, &reply); /* late */
        assert_int_equal(reply.size, 0);

        craft_change(&start, CRAFT_GRANT, 9, &changed);
        deliver_aborts(f, &changed, "unknown");
        carry_assert(&destination, "State", "ready");
        carry_deliver(f, &start, &reply);
        carry_deliver(f, &start, &reply);
        carry_assert(&destination, "State", "receiving");

        /* It is off; old messages find nothing, and make nothing. */
        old_start = start;
        carry_cancel(&destination, "");
        carry_wait_state(&destination, "gone");
        deliver_aborts(f, &start, "canceled");
        prepare_fails(f, &offer, 0, ERR("Canceled"), "make a new offer");
        carry_plain(&destination, "Forget");
        deliver_aborts(f, &start, "unknown");
        assert_int_equal(count_vms(f), 1);

        /* The old offer is an offer, and gets another grant. */
        carry_prepare(&again, f, &offer, "db2", &changed);
        deliver_aborts(f, &old_start, "unknown");
        carry_assert(&again, "State", "ready");
        carry_commit(&source, 0, &commit);
        call_fails(&source, "Cancel", ERR("TooLate"), "the destination decides");
        call_fails(&source, "Start", ERR("TooLate"), "committing");
        deliver_aborts(f, &commit, "unknown");
        carry_deliver(f, &reply, &message);
        carry_wait_state(&source, "kept");
        call_fails(&source, "Start", ERR("NoSuchHandoff"), "make a new offer");
        carry_assert(&source, "Error", ERR("NoSuchHandoff"));
        carry_cancel(&again, "");
        carry_wait_state(&again, "gone");
        reap(pid, SIGKILL);
        wait_no_vm(f);
        fixture_stop(f);
}

/* While it is under way nobody takes the VM away, and it is offered once. */
static void test_busy(void **state) {
        static const char *const members[] = { "Release", "Split", "OfferHandoff" };
        static Bytes start;
        Side source, destination;
        Fixture *f;
        pid_t pid;

        (void) pool_grow(2 * CARRY_BYTES / HUGE_2M);
        require_root();
        f = standin_start("good");
        pid = carry_run_vm(f);
        go_to_started(f, &source, &destination, &start);
        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
                sd_bus_error error = SD_BUS_ERROR_NULL;

                assert_null(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", members[i],
                                 i == 0 ? NULL : "a{sv}", 0));
                assert_error_is(&error, ERR("Busy"), "being handed over");
        }
        assert_call_fails(f, ERR("Busy"), "being handed over", "Release", "o", "/org/tdpd1/vm/db2");
        carry_cancel(&source, "");
        carry_wait_next(&source, &message);
        carry_deliver(f, &message, &reply);
        carry_wait_state(&destination, "gone");
        carry_wait_state(&source, "kept");
        release(f, VM_PATH);
        reap(pid, SIGKILL);
        fixture_stop(f);
}

/* What has been here with a later generation does not come from the past. */
static void test_stale(void **state) {
        static Bytes first;
        Side side;
        Fixture *f;
        char *vm;

        require_root();
        f = standin_start("good");
        (void) pool_grow(2 * CARRY_BYTES / HUGE_2M);
        {
                pid_t pid = carry_run_vm(f);
                Side source, destination;

                go_to_started(f, &source, &destination, &message);
                first = offer;
                carry_deliver(f, &message, &reply);
                vm = carry_property(&destination, "VMObject");
                close(get_memory(f, vm, CARRY_BYTES));
                free(vm);
                carry_commit(&source, 0, &message);
                carry_deliver(f, &message, &reply);
                assert_string_equal(craft_type(&reply), "complete");
                carry_deliver(f, &reply, &message);
                carry_wait_next(&source, &message);
                carry_deliver(f, &message, &reply);
                carry_assert(&destination, "State", "done");
                call_fails(&destination, "Cancel", ERR("TooLate"), "done");
                release(f, "/org/tdpd1/vm/db2");
                reap(pid, SIGKILL);
        }
        craft_change(&first, CRAFT_ID, 7, &changed);
        prepare_fails(f, &changed, 0, ERR("Stale"), "generation 2");
        craft_change(&changed, CRAFT_GENERATION, 2, &message);
        carry_prepare(&side, f, &message, NULL, &answer);
        /* A new VM of that name begins where the last one was. */
        carry_cancel(&side, "");
        carry_wait_state(&side, "gone");
        (void) wait_job(f, reserve(f, "db", SMALL, 4096).job);
        assert_property(f, "Generation", 2);
        fixture_stop(f);
}

static void test_options(void **state) {
        static const struct {
                const char *key, *type;
                uint64_t value;
                const char *part;
        } bad[] = {
                { "deadline-usec", "t", 999999, "a second" },
                { "deadline-usec", "t", UINT64_C(86400000001), "a day" },
                { "deadline-usec", "u", 1, "has type" },
                { "bytes", "t", 4097, "whole pages" },
                { "logging", "t", 1, "is unknown here" },
        };
        sd_bus_error error = SD_BUS_ERROR_NULL;
        Side source;
        Fixture *f;
        pid_t pid;

        (void) pool_grow(CARRY_BYTES / HUGE_2M);
        require_root();
        f = standin_start("good");
        pid = carry_run_vm(f);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                sd_bus_error e = SD_BUS_ERROR_NULL;

                assert_null(call(f->bus, &e, VM_PATH, "org.tdpd1.VM", "OfferHandoff", "a{sv}", 1, bad[i].key,
                                 bad[i].type, bad[i].value));
                assert_error_is(&e, ERR("InvalidArgument"), bad[i].part);
        }
        assert_null(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "OfferHandoff", "a{sv}", 1, "page-sizes",
                         "at", 2, UINT64_C(4096), UINT64_C(4096)));
        assert_error_is(&error, ERR("InvalidArgument"), "twice");
        assert_null(call(f->bus, &error, VM_PATH, "org.tdpd1.VM", "OfferHandoff", "a{sv}", 1, "page-sizes",
                         "at", 1, UINT64_C(4097)));
        assert_error_is(&error, ERR("InvalidArgument"), "no page");
        assert_int_equal(count_handoffs(f), 0);

        carry_offer(&source, f, VM_PATH, CARRY_USEC, false, &offer);
        assert_false(carry_try_call(&source, "Start", NULL, &error, "a{sv}", 1, "logging", "s", "all"));
        assert_error_is(&error, ERR("InvalidArgument"), "bitmap");
        assert_false(carry_try_call(&source, "Start", NULL, &error, "a{sv}", 1, "split-leaf", "t",
                                    UINT64_C(1)));
        assert_error_is(&error, ERR("InvalidArgument"), "4096");
        assert_false(carry_try_call(&source, "Commit", NULL, &error, "a{sv}", 1, "bytes-left", "t",
                                    UINT64_C(1)));
        assert_error_is(&error, ERR("InvalidArgument"), "post-copy");
        assert_false(carry_try_call(&source, "Commit", NULL, &error, "a{sv}", 1, "post-copy", "b", 1));
        assert_error_is(&error, ERR("InvalidArgument"), "not offered with post-copy");
        carry_cancel(&source, "");
        carry_wait_state(&source, "kept");
        reap(pid, SIGKILL);
        fixture_stop(f);
}

static void test_limit(void **state) {
        Fixture *f;
        Side side;

        require_root();
        f = fixture_start(NULL, NULL);
        for (unsigned i = 0; i < 64; i++) {
                char vm[16];

                snprintf(vm, sizeof(vm), "vm%u", i);
                craft_offer(&offer, vm, 1, 4096, 4096);
                carry_prepare(&side, f, &offer, NULL, &answer);
        }
        craft_offer(&offer, "more", 1, 4096, 4096);
        prepare_fails(f, &offer, 0, ERR("LimitExceeded"), "64 handoffs");
        fixture_stop(f);
}

/* What cannot be recorded is not granted. */
static void test_not_written(void **state) {
        char path[96];
        Fixture *f;
        int fd;

        require_root();
        f = fixture_start(NULL, NULL);
        snprintf(path, sizeof(path), "%s/data", f->dir);
        fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
        craft_offer(&offer, "db", 1, SMALL, 4096);
        prepare_fails(f, &offer, 0, ERR("Failed"), "its record cannot be written");
        assert_int_equal(unlink(path), 0);
        fixture_stop(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(case_73_no_messages, fixture_teardown),
                cmocka_unit_test_teardown(case_54_too_small_is_said_first, fixture_teardown),
                cmocka_unit_test_teardown(test_swapped_and_replayed, fixture_teardown),
                cmocka_unit_test_teardown(test_busy, fixture_teardown),
                cmocka_unit_test_teardown(test_stale, fixture_teardown),
                cmocka_unit_test_teardown(test_options, fixture_teardown),
                cmocka_unit_test_teardown(test_limit, fixture_teardown),
                cmocka_unit_test_teardown(test_not_written, fixture_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
