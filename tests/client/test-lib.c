/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* libtdp where no daemon is needed: contexts, options, wrong arguments. */

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants what is above */
#include <cmocka.h>

#include "tdp/tdp.h"

static int setup(void **state) {
        return tdp_new((struct tdp_ctx **) state);
}

static int teardown(void **state) {
        assert_null(tdp_unref(*state));
        return 0;
}

static void test_references(void **state) {
        struct tdp_ctx *ctx = *state;

        assert_ptr_equal(tdp_ref(ctx), ctx);
        assert_null(tdp_unref(ctx));
        assert_null(tdp_ref(NULL));
        assert_null(tdp_unref(NULL));
        assert_null(tdp_vm_free(NULL));
        assert_null(tdp_job_free(NULL));
        assert_null(tdp_node_free(NULL));
        assert_null(tdp_memory_free(NULL));
        assert_null(tdp_plan_free(NULL));
        assert_null(tdp_value_free(NULL));
        assert_null(tdp_options_free(NULL));
        assert_string_equal(tdp_error_message(ctx), "No error");
        assert_null(tdp_error_name(ctx));
}

static void test_no_value(void **state) {
        const struct tdp_value *v;

        assert_int_equal(tdp_value_get_uint(NULL), 0);
        assert_false(tdp_value_get_bool(NULL));
        assert_null(tdp_value_get_string(NULL));
        assert_null(tdp_value_find(NULL, "x"));
        assert_null(tdp_value_at(NULL, 0));
        tdp_value_foreach (NULL, v)
                fail();
}

static void test_options(void **state) {
        struct tdp_options *o;

        assert_int_equal(tdp_options_new(&o), 0);
        assert_int_equal(tdp_options_set_u64(o, "page-size", 4096), 0);
        assert_int_equal(tdp_options_set_u64(o, "page-size", 2 << 20), 0);
        assert_int_equal(tdp_options_set_string(o, "page-size", "replaced by another type"), 0);
        assert_int_equal(tdp_options_set_u32(o, NULL, 1), -EINVAL);
        assert_int_equal(tdp_options_set_bool(o, "", true), -EINVAL);
        assert_int_equal(tdp_options_set_string(o, "nodes", NULL), -EINVAL);
        tdp_options_free(o);
}

static void count(int priority, const char *file, int line, const char *func, const char *format, va_list ap,
                  void *userdata) __attribute__((format(printf, 5, 0)));
static void count(int priority, const char *file, int line, const char *func, const char *format, va_list ap,
                  void *userdata) {
        (*(unsigned *) userdata)++;
}

static void test_unreachable(void **state) {
        struct tdp_ctx *ctx = *state;
        struct tdp_vm *vms = NULL;
        unsigned n = 0;

        assert_int_equal(tdp_set_address(ctx, "unix:path=/nonexistent/bus"), 0);
        assert_int_equal(tdp_list_vms(ctx, &vms), -ENOTCONN);
        assert_null(vms);
        assert_null(tdp_error_name(ctx));
        assert_non_null(strstr(tdp_error_message(ctx), "/nonexistent/bus"));
        assert_int_equal(tdp_ping(ctx, 1000), -ENOTCONN);

        /* Nothing was logged without a function, and at the default priority nothing is. */
        tdp_set_log_fn(ctx, count, &n);
        assert_int_equal(tdp_ping(ctx, 1000), -ENOTCONN);
        assert_int_equal(n, 0);
        tdp_set_log_priority(ctx, 7);
        assert_int_equal(tdp_ping(ctx, 1000), -ENOTCONN);
        assert_int_not_equal(n, 0);

        assert_int_equal(tdp_set_address(ctx, "no address"), 0);
        assert_int_equal(tdp_ping(ctx, 1000), -ENOTCONN);
}

static void test_wrong_arguments(void **state) {
        struct tdp_ctx *ctx = *state;
        struct tdp_vm *vm;

        assert_int_equal(tdp_reserve(ctx, NULL, 4096, NULL, NULL, NULL), -EINVAL);
        assert_int_equal(tdp_attach(ctx, NULL, -1, 0, NULL, NULL, NULL), -EINVAL);
        assert_int_equal(tdp_attach_pid(ctx, NULL, 1, NULL, NULL, NULL), -EINVAL);
        assert_int_equal(tdp_get_vm(ctx, NULL, &vm), -EINVAL);
}

static void test_prefault(void **state) {
        static const struct {
                uint64_t gpa, size;
        } wrong[] = {
                { 0, 0 }, { 1, 4096 }, { 0, 4097 }, { UINT64_MAX - 4095, 8192 }, { 4096, UINT64_MAX - 4095 }
        };
        struct tdp_ctx *ctx = *state;
        uint64_t done = 1;
        int fds[2];

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
                assert_int_equal(tdp_prefault_vcpu(ctx, 0, wrong[i].gpa, wrong[i].size, NULL), -EINVAL);

        assert_int_equal(tdp_prefault_vcpu(ctx, -1, 0, 4096, &done), -EBADF);
        assert_int_equal(done, 0);

        /* No vCPU: looks the same as a kernel without the call. */
        assert_int_equal(pipe(fds), 0);
        assert_int_equal(tdp_prefault_vcpu(ctx, fds[0], 0, 4096, &done), -EOPNOTSUPP);
        close(fds[0]);
        close(fds[1]);

        assert_string_equal(tdp_mapping_to_string(TDP_MAPPED_ONCE), "mapped once, not held");
}

/* Stands in for KVM: what the library calls is found here first. */
static int (*fake_ioctl)(uint64_t range[2]);

int ioctl(int fd, unsigned long request, ...); /* the system's header adds attributes to its own */
int ioctl(int fd, unsigned long request, ...) {
        static int (*real)(int fd, unsigned long request, ...);
        void *arg;
        va_list ap;

        va_start(ap, request);
        arg = va_arg(ap, void *);
        va_end(ap);
        if (fake_ioctl)
                return fake_ioctl(arg);
        if (!real)
                *(void **) &real = dlsym(RTLD_NEXT, "ioctl");
        return real(fd, request, arg);
}

static unsigned n_calls;

static int always_again(uint64_t range[2]) {
        n_calls++;
        errno = EAGAIN;
        return -1;
}

/* Slowly, with an error now and then. */
static int now_and_then(uint64_t range[2]) {
        if (n_calls++ % 2 == 0) {
                errno = EAGAIN;
                return -1;
        }
        range[0] += 4096;
        range[1] -= 4096;
        return 0;
}

static void case_62_slot_goes_while_mapped(void **state) {
        uint64_t done = 1;

        n_calls = 0;
        fake_ioctl = now_and_then;
        assert_int_equal(tdp_prefault_vcpu(*state, 0, 0, 8 * 4096, &done), TDP_MAPPED_ONCE);
        assert_int_equal(done, 8 * 4096);
        assert_int_equal(n_calls, 16);

        n_calls = 0;
        fake_ioctl = always_again;
        assert_int_equal(tdp_prefault_vcpu(*state, 0, 4096, 4096, &done), -EAGAIN);
        fake_ioctl = NULL;
        assert_int_equal(done, 0);
        assert_in_range(n_calls, 2, 10000);
        assert_non_null(strstr(tdp_error_message(*state), "0x1000"));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_references, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_value, setup, teardown),
                cmocka_unit_test_setup_teardown(test_options, setup, teardown),
                cmocka_unit_test_setup_teardown(test_unreachable, setup, teardown),
                cmocka_unit_test_setup_teardown(test_wrong_arguments, setup, teardown),
                cmocka_unit_test_setup_teardown(test_prefault, setup, teardown),
                cmocka_unit_test_setup_teardown(case_62_slot_goes_while_mapped, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
