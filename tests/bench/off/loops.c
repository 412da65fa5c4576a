/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <linux/kvm.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "loops.h"

#define SPARE_SIZE (UINT64_C(2) << 20)
#define SPARE_GPA  (UINT64_C(3) << 30)
#define MOVED_GPA  (SPARE_GPA + (UINT64_C(16) << 20))
/* Behind all slots. */
#define MMIO_GPA 0xd0000000U
#define PORT     0x510U
#define N_EXITS  512U
/* As many madvise() calls as fit between two interrupts of the host's timer. */
#define N_NOTIFIERS 256U

void bed_new(Bed *ret, int level, uint64_t size) {
        *ret = (Bed){ .level = level };
        guest_new(&ret->guest, level, size, 1);
        guest_populate(&ret->guest, false);

        ret->spare = mmap(NULL, SPARE_SIZE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (ret->spare == MAP_FAILED)
                die("mmap of the spare memory");
}

void bed_free(Bed *b) {
        guest_free(&b->guest);
        munmap(b->spare, SPARE_SIZE);
}

static uint64_t n_leaves(Bed *b) {
        return b->guest.size / level_size(b->level);
}

static void set_main_slot(Bed *b, uint64_t size, unsigned flags) {
        guest_set_slot(&b->guest, 0, 0, size, b->guest.memory, flags);
}

/* Leaves the owner's own page tables as they are. */
static void unmap_guest(Bed *b) {
        set_main_slot(b, 0, 0);
        set_main_slot(b, b->guest.size, 0);
}

/* The guest writes to each page, which must take so many faults for each of them. */
static uint64_t touch(Bed *b, uint64_t faults_each, uint64_t *ret_ops) {
        uint64_t faults = guest_faults(&b->guest, 0), t = start_ticks();

        guest_touch_each(&b->guest, 0, b->level);
        t = ticks() - t;

        *ret_ops = n_leaves(b);
        faults = guest_faults(&b->guest, 0) - faults;
        /* The code lies in a page of its own for the large ones too: all of them are in the first one. */
        if (faults != faults_each * *ret_ops)
                die_text("the guest took %lu faults for %lu leaves", faults, *ret_ops);
        return t;
}

static uint64_t fault(Bed *b, uint64_t *ret_ops) {
        unmap_guest(b);
        return touch(b, 1, ret_ops);
}

/* The owner's page tables are empty as well. */
static uint64_t fault_owner(Bed *b, uint64_t *ret_ops) {
        if (madvise(b->guest.memory, b->guest.size, MADV_DONTNEED) < 0)
                die("MADV_DONTNEED");
        return touch(b, 1, ret_ops);
}

static void read_dirty_log(Bed *b) {
        struct kvm_dirty_log log = {
                .dirty_bitmap = calloc(1, b->guest.size / level_size(LEVEL_4K) / 8),
        };

        if (!log.dirty_bitmap || ioctl(b->guest.vm_fd, KVM_GET_DIRTY_LOG, &log) < 0)
                die("KVM_GET_DIRTY_LOG");
        free(log.dirty_bitmap);
}

/* With PML the processor logs what is written, and nothing is write-protected for it. */
static bool has_pml(void) {
        FILE *f = fopen("/sys/module/kvm_intel/parameters/pml", "re");
        bool yes = f && fgetc(f) == 'Y';

        if (f)
                fclose(f);
        return yes;
}

/* Mapped, and logged anew after reading the dirty log. */
static uint64_t fault_write_protected(Bed *b, uint64_t *ret_ops) {
        set_main_slot(b, b->guest.size, KVM_MEM_LOG_DIRTY_PAGES);
        guest_touch(&b->guest, 0);
        read_dirty_log(b);
        return touch(b, !has_pml(), ret_ops);
}

static uint64_t run_code(Bed *b, GuestCode code, uint64_t rdx, uint64_t want, uint64_t *ret_ops) {
        struct kvm_regs arguments = { .rdx = rdx, .rsi = N_EXITS };
        uint64_t all = guest_exits(&b->guest, 0), exits, t = start_ticks();

        exits = guest_run(&b->guest, 0, code, &arguments);
        t = ticks() - t;

        all = guest_exits(&b->guest, 0) - all;
        if (exits != want || all < N_EXITS)
                die_text("the guest exited %lu times, %lu of them to us, instead of %u and %lu", all, exits,
                         N_EXITS, want);
        *ret_ops = N_EXITS;
        return t;
}

static uint64_t exit_cpuid(Bed *b, uint64_t *ret_ops) {
        return run_code(b, GUEST_CPUID, 0, 0, ret_ops);
}

static uint64_t exit_pio(Bed *b, uint64_t *ret_ops) {
        return run_code(b, GUEST_PIO, PORT, N_EXITS, ret_ops);
}

static uint64_t exit_mmio(Bed *b, uint64_t *ret_ops) {
        return run_code(b, GUEST_MMIO, MMIO_GPA, N_EXITS, ret_ops);
}

/* The owner takes mapped pages away, one by one. */
static uint64_t notifier(Bed *b, uint64_t *ret_ops) {
        uint64_t size = level_size(b->level), n = n_leaves(b), t;

        if (n > N_NOTIFIERS)
                n = N_NOTIFIERS;
        guest_touch_each(&b->guest, 0, b->level);

        t = start_ticks();
        for (uint64_t i = 0; i < n; i++)
                if (madvise((uint8_t *) b->guest.memory + i * size, size, MADV_DONTNEED) < 0)
                        die("MADV_DONTNEED");
        t = ticks() - t;

        *ret_ops = n;
        return t;
}

/* The same at once. */
static uint64_t notifier_range(Bed *b, uint64_t *ret_ops) {
        uint64_t t;

        guest_touch_each(&b->guest, 0, b->level);
        t = start_ticks();
        if (madvise(b->guest.memory, b->guest.size, MADV_DONTNEED) < 0)
                die("MADV_DONTNEED");
        t = ticks() - t;

        *ret_ops = n_leaves(b);
        return t;
}

/* One call for a slot. */
static uint64_t set_slot(Bed *b, unsigned id, uint64_t gpa, uint64_t size, void *memory, unsigned flags) {
        uint64_t t = start_ticks();

        guest_set_slot(&b->guest, id, gpa, size, memory, flags);
        return ticks() - t;
}

/* The shorter of these calls wait for other threads of the kernel, more or less: several make a round. */

static uint64_t slot_create(Bed *b, uint64_t *ret_ops) {
        uint64_t t = 0;

        guest_touch_each(&b->guest, 0, b->level);
        *ret_ops = 8;
        for (uint64_t i = 0; i < *ret_ops; i++) {
                t += set_slot(b, 1, SPARE_GPA, SPARE_SIZE, b->spare, 0);
                guest_set_slot(&b->guest, 1, SPARE_GPA, 0, b->spare, 0);
        }
        return t;
}

/* KVM drops what is mapped in all slots. */
static uint64_t slot_delete(Bed *b, uint64_t *ret_ops) {
        guest_set_slot(&b->guest, 1, SPARE_GPA, SPARE_SIZE, b->spare, 0);
        guest_touch_each(&b->guest, 0, b->level);
        *ret_ops = 1;
        return set_slot(b, 1, SPARE_GPA, 0, b->spare, 0);
}

static uint64_t slot_move(Bed *b, uint64_t *ret_ops) {
        uint64_t t;

        guest_set_slot(&b->guest, 1, SPARE_GPA, SPARE_SIZE, b->spare, 0);
        guest_touch_each(&b->guest, 0, b->level);
        *ret_ops = 1;
        t = set_slot(b, 1, MOVED_GPA, SPARE_SIZE, b->spare, 0);
        guest_set_slot(&b->guest, 1, MOVED_GPA, 0, b->spare, 0);
        return t;
}

/* Of the memory that is mapped. */
static uint64_t dirty_log_on(Bed *b, uint64_t *ret_ops) {
        uint64_t t;

        guest_touch_each(&b->guest, 0, b->level);
        *ret_ops = 1;
        t = set_slot(b, 0, 0, b->guest.size, b->guest.memory, KVM_MEM_LOG_DIRTY_PAGES);
        unmap_guest(b);
        return t;
}

static uint64_t dirty_log_off(Bed *b, uint64_t *ret_ops) {
        uint64_t t = 0;

        guest_touch_each(&b->guest, 0, b->level);
        *ret_ops = b->level == LEVEL_4K ? 8 : 1;
        for (uint64_t i = 0; i < *ret_ops; i++) {
                set_main_slot(b, b->guest.size, KVM_MEM_LOG_DIRTY_PAGES);
                t += set_slot(b, 0, 0, b->guest.size, b->guest.memory, 0);
        }
        unmap_guest(b);
        return t;
}

const Loop loops[] = {
        { "fault", LEVEL_4K, 15, 5, fault },
        { "fault-owner", LEVEL_4K, 15, 0, fault_owner },
        { "fault-write-protected", LEVEL_4K, 15, 0, fault_write_protected },
        { "exit-cpuid", LEVEL_4K, 31, 15, exit_cpuid },
        { "exit-pio", LEVEL_4K, 31, 15, exit_pio },
        { "exit-mmio", LEVEL_4K, 31, 15, exit_mmio },
        { "notifier", LEVEL_4K, 31, 15, notifier },
        { "notifier-range", LEVEL_4K, 15, 0, notifier_range },
        { "slot-create", LEVEL_4K, 31, 15, slot_create },
        { "slot-delete", LEVEL_4K, 31, 0, slot_delete },
        { "slot-move", LEVEL_4K, 31, 0, slot_move },
        { "dirty-log-on", LEVEL_4K, 31, 0, dirty_log_on },
        { "dirty-log-off", LEVEL_4K, 15, 0, dirty_log_off },

        { "fault", LEVEL_2M, 31, 15, fault },
        { "fault-owner", LEVEL_2M, 31, 0, fault_owner },
        { "notifier", LEVEL_2M, 31, 0, notifier },
        { "notifier-range", LEVEL_2M, 31, 0, notifier_range },
        { "slot-delete", LEVEL_2M, 31, 0, slot_delete },
        { "dirty-log-on", LEVEL_2M, 9, 0, dirty_log_on },
        { "dirty-log-off", LEVEL_2M, 9, 0, dirty_log_off },
};

const unsigned n_loops = sizeof(loops) / sizeof(loops[0]);
