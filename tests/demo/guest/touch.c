/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The demo's guest. On the first serial port it says "ready", waits for one byte, dirties each page of its
 * RAM, and says "done PAGES NANOSECONDS". Then it halts, so that the host can look at what it did.
 */

#include "io.h"

/* The chipset's switch between RAM and bus for 0xd0000 to 0xd7fff. */
#define PCI_ADDRESS   0xcf8
#define PCI_DATA      0xcfc
#define PAM3          0x5c
#define PAM3_READ_RAM 0x11

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
