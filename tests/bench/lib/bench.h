/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the benchmarks share: a clock that counts instructions, and a VM just large enough to measure. */

#include <getopt.h>
#include <linux/kvm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdnoreturn.h>

/* die.c */

noreturn void die(const char *what) __attribute__((cold));
noreturn void die_text(const char *format, ...) __attribute__((cold, format(printf, 1, 2)));

/* options.c */

/* Takes all options, each but --help by "set" with its val. What is wrong, and --help, ends the program. */
void parse_options(int argc, char **argv, const struct option *options, void (*usage)(FILE *f),
                   void (*set)(int option));

/* Where results go. NULL for path NULL. */
FILE *open_results(const char *path);

/* The index of value in the table, from begin to end. */
int parse_choice(const char *const *table, int begin, int end, const char *option, const char *value);
unsigned parse_number(const char *option, const char *value, unsigned min, unsigned max);

/* clock.c */

/* Time in units of the processor's clock, which the emulated hosts advance by instructions alone. */
static inline uint64_t ticks(void) {
        return __builtin_ia32_rdtsc();
}

/*
 * The same right after the host's timer has interrupted: what is measured from here on and shorter than 2
 * million instructions is not interrupted by it, and what is longer always as often.
 */
uint64_t start_ticks(void);

/* Measures how many ticks an instruction takes on this machine. */
double ticks_per_instruction(void);

/* guest.c */

enum {
        LEVEL_4K = 1,
        LEVEL_2M = 2,
        LEVEL_1G = 3,
};

typedef struct Guest {
        int kvm_fd, vm_fd;
        int vcpu_fd[2];
        struct kvm_run *run[2];
        size_t run_size;
        unsigned n_vcpus;

        void *memory;
        uint64_t size;
        int memory_fd;
} Guest;

uint64_t level_size(int level);

/* Unreserved free pages of the size that belongs to the level; 0 if this host has none. */
uint64_t free_pages(int level);

/* Memory of a VM as tdpd makes it: a memfd, hugetlb for 2M and 1G. Nothing is allocated yet. */
void guest_new(Guest *ret, int level, uint64_t size, unsigned n_vcpus);
void guest_free(Guest *g);

/*
 * Allocates and zeroes all of the memory: as its owner, or as somebody else who has the same file, which
 * leaves the owner's page tables empty.
 */
void guest_populate(Guest *g, bool elsewhere);

/* A memory slot: new, moved, changed, or (size 0) gone. */
void guest_set_slot(Guest *g, unsigned id, uint64_t gpa, uint64_t size, void *memory, unsigned flags);

typedef enum GuestCode {
        GUEST_TOUCH,
        GUEST_CPUID,
        GUEST_PIO,
        GUEST_MMIO,
} GuestCode;

/*
 * Runs a piece of code, esi times, until it halts; what else it takes in its registers stands beside it.
 * Returns how often it came back to us for PIO or MMIO.
 */
uint64_t guest_run(Guest *g, unsigned vcpu, GuestCode code, const struct kvm_regs *arguments);

/* The guest writes to each 4K page of its memory once, to the first byte of each leaf, or to every step-th
 * byte. */
void guest_touch(Guest *g, unsigned vcpu);
void guest_touch_each(Guest *g, unsigned vcpu, int level);
void guest_touch_every(Guest *g, unsigned vcpu, uint64_t step);

/* stats.c */

/* Leaves that KVM has in its page tables for this VM. */
uint64_t guest_leaves(Guest *g, int level);

/* Second-level faults, and all exits, of a vCPU so far. */
uint64_t guest_faults(Guest *g, unsigned vcpu);
uint64_t guest_exits(Guest *g, unsigned vcpu);

/* gtdp.c */

bool have_pre_fault(void);
bool have_gtdp(void);

/* What works on all of the memory returns the ticks that it took. */
uint64_t build_pre_fault(Guest *g);

/* Returns a handle. */
int gtdp_attach(Guest *g);

/* Leaves of up to max_level; 0 is no limit. */
uint64_t gtdp_build(int handle_fd, Guest *g, int max_level);
uint64_t gtdp_build_foreign(int handle_fd, Guest *g);
uint64_t gtdp_split(int handle_fd, Guest *g);

/* Leaves of a built mapping, as the handle counts them, and bytes that it has lost so far. */
uint64_t gtdp_leaves(int handle_fd, int level);
uint64_t gtdp_lost(int handle_fd);
