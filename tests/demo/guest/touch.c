/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The demo's guest. On the first serial port it says "ready", waits for one byte, dirties each page of its
 * RAM, and says "done PAGES NANOSECONDS". Then it halts, so that the host can look at what it did.
 */

#include <stdint.h>

#define COM1             0x3f8
#define COM1_LINE_STATUS (COM1 + 5)
#define LINE_RECEIVED    0x01
#define LINE_SENT        0x20

/* The chipset's switch between RAM and bus for 0xd0000 to 0xd7fff. */
#define PCI_ADDRESS   0xcf8
#define PCI_DATA      0xcfc
#define PAM3          0x5c
#define PAM3_READ_RAM 0x11

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

static uint8_t in8(uint16_t port) {
        uint8_t v;

        __asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port));
        return v;
}

static uint32_t in32(uint16_t port) {
        uint32_t v;

        __asm__ volatile("inl %1, %0" : "=a"(v) : "Nd"(port));
        return v;
}

static void out8(uint16_t port, uint8_t v) {
        __asm__ volatile("outb %0, %1" : : "a"(v), "Nd"(port));
}

static void out16(uint16_t port, uint16_t v) {
        __asm__ volatile("outw %0, %1" : : "a"(v), "Nd"(port));
}

static void out32(uint16_t port, uint32_t v) {
        __asm__ volatile("outl %0, %1" : : "a"(v), "Nd"(port));
}

static uint64_t tsc(void) {
        return __builtin_ia32_rdtsc();
}

static void print(const char *s) {
        for (; *s; s++) {
                while (!(in8(COM1_LINE_STATUS) & LINE_SENT))
                        ;
                out8(COM1, (uint8_t) *s);
        }
}

/* Without a library there is no division of 64-bit numbers. */
static uint32_t divide(uint64_t *n, uint32_t by) {
        uint32_t high = (uint32_t) (*n >> 32), low = (uint32_t) *n, rest = high % by;

        high /= by;
        __asm__("divl %2" : "+a"(low), "+d"(rest) : "rm"(by));
        *n = (uint64_t) high << 32 | low;
        return rest;
}

static void print_number(uint64_t n) {
        char text[24], *p = text + sizeof(text);

        *--p = 0;
        do
                *--p = (char) ('0' + divide(&n, 10));
        while (n > 0);
        print(p);
}

/* Cycles of the time stamp counter in a millisecond, by the one clock whose frequency is known. */
static uint32_t tsc_khz(void) {
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

/* Writes to the page without changing it: this code and the memory map are in the guest's RAM, too. */
static void dirty(uint32_t page) {
        __asm__ volatile("orb $0, (%0)" : : "r"(page) : "memory");
}

/*
 * Changes the memory map and changes it back, as firmware does it many times. Where memory is mapped on
 * demand, KVM forgets all of the mapping for that, so that what the firmware has touched before is not
 * missing in the count.
 */
static void change_memory_map(void) {
        const uint16_t data = PCI_DATA + (PAM3 & 3);
        uint8_t old;

        out32(PCI_ADDRESS, 1U << 31 | (PAM3 & ~3U));
        old = in8(data);
        out8(data, old ^ PAM3_READ_RAM);
        out8(data, old);
}

static uint32_t dirty_all(const struct multiboot_info *info) {
        uint32_t pages = 0;

        for (uint32_t p = info->map; p < info->map + info->map_length;) {
                const struct map_entry *e = (const struct map_entry *) (uintptr_t) p;
                uint64_t end = e->base + e->length;

                p += e->size + sizeof(e->size);
                if (e->type != MEMORY_AVAILABLE)
                        continue;
                /* Out of reach without paging; the demo gives its guests less than that. */
                if (end > UINT32_MAX)
                        end = UINT32_MAX;
                for (uint64_t page = (e->base + PAGE_SIZE - 1) & -(uint64_t) PAGE_SIZE;
                     page + PAGE_SIZE <= end; page += PAGE_SIZE, pages++)
                        dirty((uint32_t) page);
        }

        return pages;
}

static void run(const struct multiboot_info *info, uint32_t khz) {
        uint32_t pages;
        uint64_t t;

        change_memory_map();

        t = tsc();
        pages = dirty_all(info);
        t = (tsc() - t) * 1000000;
        divide(&t, khz);

        print("done ");
        print_number(pages);
        print(" ");
        print_number(t);
        print("\n");
}

void guest_main(const struct multiboot_info *info) {
        uint32_t khz;

        if (!(info->flags & INFO_HAS_MAP)) {
                print("failed: no memory map\n");
                return;
        }

        khz = tsc_khz();
        print("ready\n");
        for (;;) {
                while (!(in8(COM1_LINE_STATUS) & LINE_RECEIVED))
                        ;
                if (in8(COM1) == 'q')
                        out16(PM_CONTROL, PM_CONTROL_OFF);
                else
                        run(info, khz);
        }
}
