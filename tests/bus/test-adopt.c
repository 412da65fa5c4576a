/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* VMs that nobody has told tdpd of, and rules that adopt them. */
#include "standin.h"

#include <linux/netlink.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Longer than tdpd waits for a VM's memory to stay the same, on a busy machine too; and long enough to see
 * what should not happen. */
#define ADOPT_USEC UINT64_C(30000000)
#define NEVER_USEC UINT64_C(5000000)

static const char *const qemu[] = { "qemu-system-x86_64", "-name", "guest=db", "-smp", "2", NULL };

/* Whether the kernel's announcements arrive here at all: not in all containers. */
static void require_uevents(void) {
        struct sockaddr_nl address = { .nl_family = AF_NETLINK, .nl_groups = 1 };
        int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT);
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int there = 0;

        require_root();
        if (fd >= 0 && machine_has_kvm() && bind(fd, (struct sockaddr *) &address, sizeof(address)) == 0) {
                close(require_kvm_vm());
                machine_restore();
                there = poll(&p, 1, 1000);
        }
        if (fd >= 0)
                close(fd);
        if (there <= 0) {
                print_message("the kernel's announcements do not get here\n");
                skip();
        }
}

static bool comes_to_vms_within(Fixture *f, size_t n, uint64_t usec) {
        for (uint64_t until = now_usec() + usec; now_usec() < until;) {
                if (count_vms(f) == n)
                        return true;
                usleep(50000);
        }
        return false;
}

static bool comes_to_vms(Fixture *f, size_t n) {
        return comes_to_vms_within(f, n, ADOPT_USEC);
}

/* The decision and reason of a VM that was adopted, once it is built. */
static void assert_adopted_by_rule(Fixture *f, const char *name) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *word, *text;
        sd_bus_message *m;
        char *path, *s;

        assert_true(sd_bus_path_encode("/org/tdpd1/vm", name, &path) >= 0);
        s = vm_state(f, path);
        for (uint64_t until = now_usec() + ADOPT_USEC; strcmp(s, "built") != 0 && now_usec() < until;) {
                free(s);
                usleep(50000);
                s = vm_state(f, path);
        }
        assert_string_equal(s, "built");
        free(s);
        if (sd_bus_get_property(f->bus, "org.tdpd1", path, "org.tdpd1.VM", "Reasons", &error, &m, "a(ss)") <
            0)
                fail_msg("Reasons of %s: %s", name, error.message);
        assert_true(sd_bus_message_read(m, "a(ss)", 1, &word, &text) > 0);
        assert_string_equal(word, "rule");
        assert_non_null(strstr(text, "mine"));
        sd_bus_message_unref(m);
        free(path);
}

static void test_adopted(void **state) {
        Fixture *f;
        pid_t pid;

        require_uevents();
        f = standin_start_with("good",
                               "[Rule mine]\nMatchName=db\nMatchMaxVCPUs=2\nAdopt=yes\nDecision=always\n");
        pid = spawn_named_vmm(qemu, -1);
        assert_true(comes_to_vms(f, 1));
        assert_adopted_by_rule(f, "db");
        assert_property(f, "BuiltBytes", SLOTS_BYTES);

        reap(pid, SIGKILL);
        assert_true(comes_to_vms(f, 0));
        fixture_stop(f);
}

/* Everybody whom no rule names is left alone. */
static void case_46_no_vm_is_adopted_without_a_rule_for_it(void **state) {
        pid_t other, several;
        Fixture *f;

        require_uevents();
        f = standin_start_with("good",
                               "[Rule mine]\nMatchName=web*\nAdopt=yes\n[Rule rest]\nDecision=always\n");
        other = spawn_named_vmm(qemu, -1);
        several = spawn_vmm(2, 0);
        assert_false(comes_to_vms_within(f, 1, NEVER_USEC));
        reap(other, SIGKILL);
        reap(several, SIGKILL);
        fixture_stop(f);

        f = standin_start("good");
        other = spawn_named_vmm(qemu, -1);
        assert_false(comes_to_vms_within(f, 1, NEVER_USEC));
        reap(other, SIGKILL);
        fixture_stop(f);
}

/* It will be attached to under the name that its memory was reserved for. */
static void test_reserved_memory_is_not_adopted(void **state) {
        Reservation r;
        Fixture *f;
        pid_t pid;
        int fd;

        require_uevents();
        /* Not all: others may have VMs on this machine. */
        f = standin_start_with("good", "[Rule mine]\nMatchName=db\nAdopt=yes\n");
        r = reserve(f, "other", MIB, 4096);
        assert_string_equal(wait_job(f, r.job)->result, "done");
        fd = get_memory(f, r.vm, MIB);
        pid = spawn_named_vmm(qemu, fd);
        assert_false(comes_to_vms_within(f, 2, NEVER_USEC));
        close(fd);
        reap(pid, SIGKILL);
        fixture_stop(f);
}

/* A number is added to a guest's name that another VM has, or a record that is left alone.  Rules are about
 * the guest's own name all the same. */
static void test_name_is_taken(void **state) {
        char path[128], name[32], text[32] = "";
        pid_t pids[3];
        Fixture *f;
        FILE *file;

        require_uevents();
        f = standin_start_kept("[Rule mine]\nMatchName=db\nAdopt=yes\nDecision=always\n"
                               "[Rule others]\nMatchName=?*\nDecision=never\n");
        pids[0] = spawn_named_vmm(qemu, -1);
        assert_true(comes_to_vms(f, 1));
        assert_adopted_by_rule(f, "db");
        pids[1] = spawn_named_vmm(qemu, -1);
        assert_true(comes_to_vms(f, 2));
        snprintf(name, sizeof(name), "db-%i", (int) pids[1]);
        assert_adopted_by_rule(f, name);
        reap(pids[0], SIGKILL);
        reap(pids[1], SIGKILL);
        assert_true(comes_to_vms(f, 0));

        fixture_kill_tdpd(f, SIGTERM);
        snprintf(path, sizeof(path), "%s/state/db.vm", f->dir);
        file = fopen(path, "we");
        assert_non_null(file);
        fputs("damaged", file);
        assert_int_equal(fclose(file), 0);
        fixture_restart(f);
        pids[2] = spawn_named_vmm(qemu, -1);
        assert_true(comes_to_vms(f, 1));
        snprintf(name, sizeof(name), "db-%i", (int) pids[2]);
        assert_adopted_by_rule(f, name);
        file = fopen(path, "re");
        assert_non_null(file);
        assert_non_null(fgets(text, sizeof(text), file));
        fclose(file);
        assert_string_equal(text, "damaged");
        reap(pids[2], SIGKILL);
        assert_true(comes_to_vms(f, 0));
        fixture_stop(f);
}

int main(int argc, char *argv[]) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_adopted, fixture_teardown),
                cmocka_unit_test_teardown(case_46_no_vm_is_adopted_without_a_rule_for_it, fixture_teardown),
                cmocka_unit_test_teardown(test_reserved_memory_is_not_adopted, fixture_teardown),
                cmocka_unit_test_teardown(test_name_is_taken, standin_teardown),
        };

        vmm_main(argc, argv);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
