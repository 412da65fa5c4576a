/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "kvm-uevent.h"

/* As recorded on 6.12, but for the numbers. */
#define HEAD                                                                                                \
        "change@/devices/virtual/misc/kvm\0ACTION=change\0DEVPATH=/devices/virtual/misc/kvm\0SUBSYSTEM=misc\0"
#define TAIL "STATS_PATH=/kvm/1234-11\0MAJOR=10\0MINOR=232\0DEVNAME=kvm\0SEQNUM=1999\0"

static int parse(const char *s, size_t n, KVMUevent *e) {
        return kvm_uevent_parse(s, n, e);
}
#define PARSE(s, e) parse(s, sizeof(s) - 1, e)

static void test_recorded(void **state) {
        KVMUevent e;

        assert_int_equal(PARSE(HEAD "CREATED=3\0COUNT=1\0EVENT=create\0PID=1234\0" TAIL, &e), 0);
        assert_true(e.create);
        assert_int_equal(e.tid, 1234);
        assert_int_equal(PARSE(HEAD "CREATED=3\0COUNT=0\0EVENT=destroy\0PID=1234\0" TAIL, &e), 0);
        assert_false(e.create);
}

static void test_others(void **state) {
        KVMUevent e;

        assert_int_equal(PARSE("add@/devices/virtual/misc/kvm\0ACTION=add\0EVENT=create\0PID=1\0", &e),
                         -ENOMSG);
        assert_int_equal(PARSE("change@/devices/virtual/misc/kvm2\0EVENT=create\0PID=1\0", &e), -ENOMSG);
        assert_int_equal(PARSE("change@/devices/virtual/misc/kvm", &e), -ENOMSG);
        assert_int_equal(PARSE("libudev\0\xfe\xed\xca\xfe EVENT=create", &e), -ENOMSG);
        assert_int_equal(PARSE("", &e), -ENOMSG);
        /* udevadm trigger has no event in it. */
        assert_int_equal(PARSE(HEAD TAIL, &e), -ENOMSG);
        assert_int_equal(PARSE(HEAD "EVENT=paint\0PID=1\0", &e), -ENOMSG);
}

static void test_nonsense(void **state) {
        KVMUevent e;

        assert_int_equal(PARSE(HEAD "EVENT=create\0PID=1", &e), -EBADMSG);
        assert_int_equal(PARSE(HEAD "EVENT=create\0", &e), -EBADMSG);
        assert_int_equal(PARSE(HEAD "EVENT=create\0PID=0\0", &e), -EBADMSG);
        assert_int_equal(PARSE(HEAD "EVENT=create\0PID=-1\0", &e), -EBADMSG);
        assert_int_equal(PARSE(HEAD "EVENT=create\0PID=1x\0", &e), -EBADMSG);
        assert_int_equal(PARSE(HEAD "EVENT=create\0PID=99999999999\0", &e), -EBADMSG);
        assert_int_equal(PARSE(HEAD "EVENT=create\0PID=99999999999999999999999\0", &e), -EBADMSG);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_recorded),
                cmocka_unit_test(test_others),
                cmocka_unit_test(test_nonsense),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
