/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* For guests without an operating system: ports, the first serial port, clocks, the memory map of the boot
 * loader. */

#include <stdint.h>

#define COM1             0x3f8
#define COM1_LINE_STATUS (COM1 + 5)
#define LINE_RECEIVED    0x01
#define LINE_SENT        0x20

/* Where firmware puts power management of the "pc" machine. */
#define PM_CONTROL     0x604
#define PM_CONTROL_OFF 0x2000
#define PM_TIMER       0x608
#define PM_TIMER_HZ    3579545U
#define PM_TIMER_MASK  0xffffffU

#define PAGE_SIZE        4096U
#define MEMORY_AVAILABLE 1
#define INFO_HAS_MAP     (1U << 6)

struct multiboot_info {
        uint32_t flags;
        uint32_t unused[10];
        uint32_t map_length, map;
};

struct map_entry {
        uint32_t size; /* of the rest */
        uint64_t base, length;
        uint32_t type;
} __attribute__((packed));

static inline uint8_t in8(uint16_t port) {
        uint8_t v;

        __asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port));
        return v;
}

static inline uint32_t in32(uint16_t port) {
        uint32_t v;

        __asm__ volatile("inl %1, %0" : "=a"(v) : "Nd"(port));
        return v;
}

static inline void out8(uint16_t port, uint8_t v) {
        __asm__ volatile("outb %0, %1" : : "a"(v), "Nd"(port));
}

static inline void out16(uint16_t port, uint16_t v) {
        __asm__ volatile("outw %0, %1" : : "a"(v), "Nd"(port));
}

static inline void out32(uint16_t port, uint32_t v) {
        __asm__ volatile("outl %0, %1" : : "a"(v), "Nd"(port));
}

static inline uint64_t tsc(void) {
        return __builtin_ia32_rdtsc();
}

static inline void print(const char *s) {
        for (; *s; s++) {
                while (!(in8(COM1_LINE_STATUS) & LINE_SENT))
                        ;
                out8(COM1, (uint8_t) *s);
        }
}

/* Without a library there is no division of 64-bit numbers. */
static inline uint32_t divide(uint64_t *n, uint32_t by) {
        uint32_t high = (uint32_t) (*n >> 32), low = (uint32_t) *n, rest = high % by;

        high /= by;
        __asm__("divl %2" : "+a"(low), "+d"(rest) : "rm"(by));
        *n = (uint64_t) high << 32 | low;
        return rest;
}

static inline void print_number(uint64_t n) {
        char text[24], *p = text + sizeof(text);

        *--p = 0;
        do
                *--p = (char) ('0' + divide(&n, 10));
        while (n > 0);
        print(p);
}

/* Cycles of the time stamp counter in a millisecond, by the one clock whose frequency is known. */
static inline uint32_t tsc_khz(void) {
        const uint32_t msec = 20;
        uint32_t begin = in32(PM_TIMER), passed;
        uint64_t t = tsc();

        do
                passed = (in32(PM_TIMER) - begin) & PM_TIMER_MASK;
        while (passed < PM_TIMER_HZ / 1000 * msec);
        t = (tsc() - t) * (PM_TIMER_HZ / 1000);
        divide(&t, passed);
        return (uint32_t) t;
}
