/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The guest that is handed over. It writes to a part of its memory without end and reads the rest, and knows
 * by arithmetic what each word must hold, so that one lost page is found. It talks on the first serial port:
 *
 *   it says              when
 *   ready MEGABYTES      memory is filled
 *   one digit, 0 to 9    each 10 ms, counted up, while it runs
 *
 *   it hears             and says
 *   g                    (runs)
 *   s                    stopped TICKS PASSES; it does not run any more
 *   c                    sum FOUND EXPECTED WRONG-PAGES, of all memory (while it does not run)
 *   l                    log N, then N lines "WRITES USEC" of the last ticks, by its own clock, then end
 *   1 to 9               hot N: it writes to so many times 8 MiB (before it runs for the first time)
 */

#include "io.h"

#define FIRST     0x400000U /* above the guest itself */
#define WORDS     (PAGE_SIZE / sizeof(uint32_t))
#define HOT_STEP  (8U << 20)
#define TICK_MSEC 10U
#define LOG_SIZE  8192U

struct tick {
        uint32_t writes, usec;
};

static struct tick ticks[LOG_SIZE];
static uint32_t n_ticks;
static uint32_t khz;

/* Pages from FIRST to end; the first "hot" of them are written to. Those before "at" have been in this pass.
 */
static uint32_t pages, hot = 4 * HOT_STEP / PAGE_SIZE, at, cold_at;
static uint32_t pass = 1;

static uint32_t *page_of(uint32_t page) {
        return (uint32_t *) (uintptr_t) (FIRST + page * PAGE_SIZE);
}

/* What pass n leaves in its word of a page; pass 0 is the filling. */
static inline uint32_t value(uint32_t page, uint32_t word, uint32_t n) {
        return page * 2654435761U + word * 0x01000193U + n * 0x9e3779b9U;
}

/* Pass n writes word n of each hot page, modulo words. So this is the last pass that wrote to it. */
static inline uint32_t last_pass(uint32_t word, uint32_t done) {
        uint32_t back = (done - word) % WORDS;

        return back < done ? done - back : 0;
}

static void fill(void) {
        for (uint32_t page = 0; page < pages; page++) {
                uint32_t *p = page_of(page);

                for (uint32_t i = 0; i < WORDS; i++)
                        p[i] = value(page, i, 0);
        }
}

static void check(void) {
        uint32_t found = 0, expected = 0, wrong = 0;

        for (uint32_t page = 0; page < pages; page++) {
                uint32_t done = page >= hot ? 0 : page < at ? pass : pass - 1, bad = 0;
                const uint32_t *p = page_of(page);

                for (uint32_t i = 0; i < WORDS; i++) {
                        uint32_t want = value(page, i, done > 0 ? last_pass(i, done) : 0);

                        found = found * 31 + p[i];
                        expected = expected * 31 + want;
                        bad |= p[i] ^ want;
                }
                wrong += bad != 0;
        }

        print("sum ");
        print_number(found);
        print(" ");
        print_number(expected);
        print(" ");
        print_number(wrong);
        print("\n");
}

/* One write, and one read for each four of them. */
static inline void step(volatile uint32_t *sink) {
        page_of(at)[pass % WORDS] = value(at, pass % WORDS, pass);
        if (at % 4 == 0) {
                *sink += *(volatile uint32_t *) page_of(hot + cold_at);
                if (++cold_at >= pages - hot)
                        cold_at = 0;
        }
        if (++at >= hot) {
                at = 0;
                pass++;
        }
}

static void end_tick(uint32_t writes, uint64_t cycles) {
        uint8_t status = in8(COM1_LINE_STATUS);

        cycles *= 1000;
        divide(&cycles, khz);
        ticks[n_ticks % LOG_SIZE] = (struct tick){ writes, (uint32_t) cycles };
        /* Not to be waited for: nobody may be reading. */
        if (status & LINE_SENT)
                out8(COM1, (uint8_t) ('0' + n_ticks % 10));
        n_ticks++;
}

static void run(void) {
        volatile uint32_t sink = 0;
        uint64_t begin = tsc(), now;
        uint32_t writes = 0;

        for (;;) {
                for (unsigned i = 0; i < 64; i++)
                        step(&sink);
                writes += 64;

                now = tsc();
                if (now - begin < (uint64_t) khz * TICK_MSEC)
                        continue;
                end_tick(writes, now - begin);
                begin = now;
                writes = 0;
                if ((in8(COM1_LINE_STATUS) & LINE_RECEIVED) && in8(COM1) == 's')
                        break;
        }

        print("\nstopped ");
        print_number(n_ticks);
        print(" ");
        print_number(pass);
        print("\n");
}

static void tell_log(void) {
        uint32_t n = n_ticks < LOG_SIZE ? n_ticks : LOG_SIZE;

        print("log ");
        print_number(n);
        for (uint32_t i = n_ticks - n; i != n_ticks; i++) {
                print("\n");
                print_number(ticks[i % LOG_SIZE].writes);
                print(" ");
                print_number(ticks[i % LOG_SIZE].usec);
        }
        print("\nend\n");
}

static void set_hot(uint8_t c) {
        uint32_t wanted = (uint32_t) (c - '0') * HOT_STEP / PAGE_SIZE;

        if (pass == 1 && at == 0 && wanted < pages)
                hot = wanted;
        print("hot ");
        print_number(hot / (HOT_STEP / PAGE_SIZE));
        print("\n");
}

/* The end of the range of memory that begins at or below FIRST. */
static uint32_t memory_end(const struct multiboot_info *info) {
        for (uint32_t p = info->map; p < info->map + info->map_length;) {
                const struct map_entry *e = (const struct map_entry *) (uintptr_t) p;

                p += e->size + sizeof(e->size);
                if (e->type == MEMORY_AVAILABLE && e->base <= FIRST && e->base + e->length > FIRST &&
                    e->base + e->length <= UINT32_MAX)
                        return (uint32_t) (e->base + e->length);
        }
        return 0;
}

void guest_main(const struct multiboot_info *info) {
        uint32_t end = info->flags & INFO_HAS_MAP ? memory_end(info) : 0;

        if (end < FIRST + 2 * HOT_STEP) {
                print("failed: too little memory\n");
                return;
        }

        pages = (end - FIRST) / PAGE_SIZE;
        if (hot > pages / 2)
                hot = HOT_STEP / PAGE_SIZE;
        khz = tsc_khz();
        fill();
        print("ready ");
        print_number(pages / (1024 * 1024 / PAGE_SIZE));
        print("\n");

        for (;;) {
                uint8_t c;

                while (!(in8(COM1_LINE_STATUS) & LINE_RECEIVED))
                        ;
                c = in8(COM1);
                if (c == 'g')
                        run();
                else if (c == 'c')
                        check();
                else if (c == 'l')
                        tell_log();
                else if (c >= '1' && c <= '9')
                        set_hot(c);
        }
}
