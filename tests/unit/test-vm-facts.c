/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "vm-facts.h"

/* Arguments like a shell's, without quotes. */
static int parse(const char *line, VMFacts *f) {
        char buf[2048];
        size_t n = strlen(line) + 1;

        assert_true(n <= sizeof(buf));
        memcpy(buf, line, n);
        for (size_t i = 0; i < n; i++)
                if (buf[i] == ' ')
                        buf[i] = '\0';
        return vm_facts_parse(buf, n, f);
}

static VMFacts facts(const char *line) {
        VMFacts f;

        assert_int_equal(parse(line, &f), 0);
        return f;
}

static void assert_only(const char *line, VMFact fact, uint32_t value) {
        VMFacts f = facts(line);

        for (VMFact i = 0; i < _FACT_MAX; i++) {
                uint32_t expected = i == fact ? value : i == FACT_VCPUS;

                if (f.values[i] != expected)
                        fail_msg("fact %i of \"%s\" is %u, not %u", i, line, f.values[i], expected);
        }
        assert_int_equal(f.known, (1U << _FACT_MAX) - 1 - (1U << FACT_MIGRATIONS));
}

static void test_other_programs(void **state) {
        VMFacts f;

        assert_int_equal(parse("cloud-hypervisor --cpus boot=4", &f), -ENOENT);
        assert_int_equal(parse("", &f), -ENOENT);
        assert_int_equal(parse("/bin/sh -c qemu-system-x86_64", &f), -ENOENT);
        assert_int_equal(vm_facts_parse("qemu-kvm", 8, &f), -ENOENT); /* has no end */
        assert_int_equal(vm_facts_parse("", 0, &f), -ENOENT);
        assert_only("/usr/bin/qemu-system-x86_64", _FACT_MAX, 0);
        assert_only("/usr/libexec/qemu-kvm -nodefaults", _FACT_MAX, 0);
        assert_only("kvm -m 4G", _FACT_MAX, 0);
}

#define QEMU "qemu-system-x86_64 -accel kvm -m 4G "

static void case_47_balloon_is_found_on_a_command_line(void **state) {
        /* Libvirt's default, which waits to be told. */
        assert_only(QEMU "-device virtio-balloon-pci,id=balloon0", _FACT_MAX, 0);
        assert_only(QEMU "-device virtio-balloon-pci,id=b,free-page-reporting=on", FACT_FREE_PAGE_REPORTING,
                    1);
        assert_only(QEMU "-device virtio-balloon-pci,id=b,free-page-reporting=off", _FACT_MAX, 0);
        assert_only(QEMU "-device virtio-balloon-pci,deflate-on-oom=on,id=b", FACT_BALLOON, 1);
        assert_only(QEMU "--device driver=virtio-balloon,deflate-on-oom=true", FACT_BALLOON, 1);
        assert_only(QEMU
                    "-device {\"driver\":\"virtio-balloon-pci\",\"id\":\"balloon0\",\"deflate-on-oom\":true,"
                    "\"bus\":\"pci.5\"}",
                    FACT_BALLOON, 1);
        assert_only(QEMU "-device {\"driver\":\"virtio-balloon-pci\",\"free-page-reporting\":true}",
                    FACT_FREE_PAGE_REPORTING, 1);
        assert_only(QEMU "-device {\"driver\":\"virtio-balloon-pci\",\"free-page-reporting\":false}",
                    _FACT_MAX, 0);
        assert_only(QEMU "-object memory-backend-memfd,id=ram,size=4G,discard-data=on", FACT_DISCARD, 1);
        assert_only(QEMU "-object {\"qom-type\":\"memory-backend-file\",\"id\":\"r\",\"discard-data\":true}",
                    FACT_DISCARD, 1);
        assert_only(QEMU "-device virtio-mem-pci,memdev=m", FACT_DISCARD, 1);
        /* It is no value of another option. */
        assert_only(QEMU "-append virtio-balloon-pci,deflate-on-oom=on", _FACT_MAX, 0);
        assert_only(QEMU "-name virtio-mem", _FACT_MAX, 0);
}

static void case_50_vfio_devices_are_counted(void **state) {
        VMFacts f;

        assert_only(QEMU "-device vfio-pci,host=01:00.0 -device vfio-pci,host=01:00.1", FACT_VFIO_DEVICES,
                    2);
        f = facts(QEMU "-device intel-iommu,intremap=on -device vfio-pci,host=01:00.0 "
                       "-device {\"driver\":\"vfio-pci\",\"host\":\"0000:02:00.0\"}");
        assert_int_equal(f.values[FACT_VFIO_DEVICES], 2);
        assert_int_equal(f.values[FACT_VIOMMU], 1);
        assert_only(QEMU "-device virtio-iommu-pci", FACT_VIOMMU, 1);
}

static void test_confidential(void **state) {
        assert_only(QEMU "-machine q35,confidential-guest-support=sev0", FACT_CONFIDENTIAL, 1);
        assert_only(QEMU "-M pc,memory-encryption=sev0", FACT_CONFIDENTIAL, 1);
        assert_only(QEMU "-object sev-snp-guest,id=sev0", FACT_CONFIDENTIAL, 1);
        assert_only(QEMU "-object {\"qom-type\":\"tdx-guest\",\"id\":\"tdx\"}", FACT_CONFIDENTIAL, 1);
        assert_only(QEMU "-machine q35,accel=kvm", _FACT_MAX, 0);
}

static void test_vcpus(void **state) {
        assert_only(QEMU "-smp 8", FACT_VCPUS, 8);
        assert_only(QEMU "-smp cpus=6,maxcpus=8", FACT_VCPUS, 6);
        assert_only(QEMU "-smp 4,maxcpus=8,sockets=8,dies=1,cores=1,threads=1", FACT_VCPUS, 4);
        assert_only(QEMU "-smp sockets=2,cores=4,threads=2", FACT_VCPUS, 16);
        assert_only(QEMU "-smp maxcpus=12", FACT_VCPUS, 12);
        assert_only(QEMU "-smp nonsense", FACT_VCPUS, 1);
        assert_only(QEMU "-smp 4000000000", FACT_VCPUS, 1);
        assert_only(QEMU "-smp sockets=60000,cores=60000,threads=60000", FACT_VCPUS, 1);
}

static void test_name(void **state) {
        assert_string_equal(facts(QEMU "-name guest=db-1,debug-threads=on").name, "db-1");
        assert_string_equal(facts(QEMU "-name web").name, "web");
        assert_string_equal(facts(QEMU "-name a,,b,process=x").name, "a,b");
        assert_string_equal(facts(QEMU).name, "");
}

/* What is elsewhere is not said not to be there. */
static void test_readconfig(void **state) {
        VMFacts f = facts(QEMU "-readconfig /etc/vm.cfg -device vfio-pci,host=1:0.0");

        assert_true(vm_facts_know(&f, FACT_VFIO_DEVICES));
        assert_false(vm_facts_know(&f, FACT_BALLOON));
}

static void test_merge(void **state) {
        VMFacts asked = {}, found = facts(QEMU "-smp 8 -device virtio-balloon,deflate-on-oom=on -name a");

        vm_facts_set(&asked, FACT_BALLOON, 0);
        vm_facts_merge(&asked, &found);
        assert_int_equal(asked.values[FACT_BALLOON], 0); /* whoever asks knows better */
        assert_int_equal(asked.values[FACT_VCPUS], 8);
        assert_string_equal(asked.name, "a");
}

static void test_nonsense(void **state) {
        static const char *const lines[] = {
                QEMU "-device",
                QEMU "-device -device",
                QEMU "-device {",
                QEMU "-device {}",
                QEMU "-device {\"driver\":{\"driver\":\"vfio-pci\"}}",
                QEMU "-device {\"driver\":null}",
                QEMU "-device [[[[[[[[[[[[[[[[[[[[",
                QEMU "-device {\"a\":[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]],\"driver\":\"vfio-pci\"}",
                QEMU "-device ,,,,,=,=,,=",
                QEMU "-object =",
                QEMU "-machine , -M = -smp = -name ,",
                QEMU "- -- --- -smp",
        };

        for (size_t i = 0; i < ELEMENTSOF(lines); i++)
                assert_only(lines[i], _FACT_MAX, 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_other_programs),
                cmocka_unit_test(case_47_balloon_is_found_on_a_command_line),
                cmocka_unit_test(case_50_vfio_devices_are_counted),
                cmocka_unit_test(test_confidential),
                cmocka_unit_test(test_vcpus),
                cmocka_unit_test(test_name),
                cmocka_unit_test(test_readconfig),
                cmocka_unit_test(test_merge),
                cmocka_unit_test(test_nonsense),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
