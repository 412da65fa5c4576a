/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The way a pool's size is changed, against a kernel that gives, refuses, and is written by others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "pool-resize.h"

/* set_max_huge_pages() for one node, in short. */
typedef struct Kernel {
        Pool pool;
        uint64_t room, room_compacted, room_dropped; /* persistent pages that can be had */
        uint64_t step;                               /* new pages of one write; 0: no limit */
        bool compacted, dropped, turned_back;
        unsigned n_writes, n_compacts, n_drops;
        unsigned cancel_after; /* writes; 0: never */
        int write_error;
        /* Somebody else, called before each read. */
        void (*other)(struct Kernel *k);
        unsigned n_reads;
        uint64_t progress, most_written;
} Kernel;

static uint64_t persistent(const Kernel *k) {
        return k->pool.total - k->pool.surplus;
}

static void kernel_set(Kernel *k, uint64_t count) {
        uint64_t room = k->dropped ? k->room_dropped : k->compacted ? k->room_compacted : k->room;
        uint64_t gained = 0, used, least;

        while (k->pool.surplus > 0 && count > persistent(k))
                k->pool.surplus--;
        while (count > persistent(k) && persistent(k) < room && (k->step == 0 || gained < k->step)) {
                k->pool.total++;
                k->pool.free++;
                gained++;
        }
        used = k->pool.total - k->pool.free;
        least = used + k->pool.reserved;
        if (least < count)
                least = count;
        while (persistent(k) > least && k->pool.free > 0) {
                k->pool.total--;
                k->pool.free--;
        }
        while (count < persistent(k))
                k->pool.surplus++;
}

static int on_read(void *userdata, Pool *ret) {
        Kernel *k = userdata;

        k->n_reads++;
        if (k->other)
                k->other(k);
        *ret = k->pool;
        return 0;
}

static int on_write(void *userdata, uint64_t pages) {
        Kernel *k = userdata;

        if (k->write_error < 0)
                return k->write_error;
        k->n_writes++;
        k->most_written = MAX_OF(k->most_written, pages);
        kernel_set(k, pages);
        return 0;
}

static int on_compact(void *userdata) {
        Kernel *k = userdata;

        k->n_compacts++;
        k->compacted = true;
        return 0;
}

static int on_drop_caches(void *userdata) {
        Kernel *k = userdata;

        k->n_drops++;
        k->dropped = true;
        return 0;
}

static bool on_wait(void *userdata, uint64_t usec) {
        Kernel *k = userdata;

        return k->turned_back || k->cancel_after == 0 || k->n_writes < k->cancel_after;
}

static void on_progress(void *userdata, uint64_t pages) {
        ((Kernel *) userdata)->progress += pages;
}

static void on_turn_back(void *userdata) {
        ((Kernel *) userdata)->turned_back = true;
}

static Kernel make(uint64_t total, uint64_t free, uint64_t room) {
        return (Kernel){
                .pool = { .page_size = MIB(2), .total = total, .free = free },
                .room = room,
                .room_compacted = room,
                .room_dropped = room,
        };
}

static int resize(Kernel *k, PoolRequest q, PoolResult *ret) {
        PoolIo io = { on_read, on_write, on_compact, on_drop_caches, on_wait, on_progress, on_turn_back, k };

        return pool_resize(&io, &q, ret);
}

static void test_plain(void **state) {
        Kernel k = make(100, 40, 100000);
        PoolResult r;

        assert_int_equal(resize(&k, (PoolRequest){ .pages = 50000 }, &r), 0);
        assert_int_equal(k.pool.total, 50000);
        assert_int_equal(r.before, 100);
        assert_int_equal(r.after, 50000);
        assert_int_equal(k.progress, 49900);
        /* In pieces, so that it can be canceled, and not one by one. */
        assert_in_range(k.n_writes, 2, 400);

        assert_int_equal(resize(&k, (PoolRequest){ .pages = 60 }, &r), 0);
        assert_int_equal(k.pool.total, 60);
        assert_int_equal(k.pool.free, 0);
        assert_int_equal(k.pool.surplus, 0);
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 60 }, &r), 0);
        assert_int_equal(k.n_compacts, 0);
}

static void test_case_04_short_is_restored_or_kept(void **state) {
        Kernel k = make(1000, 400, 3738);
        PoolResult r;

        assert_int_equal(resize(&k, (PoolRequest){ .pages = 4096 }, &r), -ENOSPC);
        assert_int_equal(r.reached, 3738);
        assert_int_equal(r.after, 1000);
        assert_true(r.restored);
        assert_int_equal(k.pool.total, 1000);
        assert_int_equal(k.pool.free, 400);

        assert_int_equal(resize(&k, (PoolRequest){ .pages = 4096, .allow_partial = true }, &r), -ENOSPC);
        assert_int_equal(r.reached, 3738);
        assert_int_equal(r.after, 3738);
        assert_false(r.restored);
        assert_int_equal(k.pool.total, 3738);
        assert_in_range(k.n_writes, 2, 400);
}

static void test_case_06_compaction_then_caches_if_asked(void **state) {
        Kernel k = make(0, 0, 4);
        PoolResult r;

        k.room_compacted = 16;
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 16 }, &r), 0);
        assert_int_equal(k.n_compacts, 1);
        assert_int_equal(k.n_drops, 0);
        assert_true(r.compacted);

        k = make(0, 0, 0);
        k.room_dropped = 16;
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 16 }, &r), -ENOSPC);
        assert_int_equal(k.n_drops, 0);
        assert_int_equal(k.pool.total, 0);
        assert_false(r.dropped_caches);
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 16, .drop_caches = true }, &r), 0);
        assert_int_equal(k.n_drops, 1);
        assert_true(r.dropped_caches);
        assert_int_equal(k.pool.total, 16);
}

/* A node without memory, or 1G pages when all is in pieces: it ends, soon. */
static void test_case_07_nothing_to_be_had(void **state) {
        Kernel k = make(0, 0, 0);
        PoolResult r;

        k.pool.page_size = GIB(1);
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 16 }, &r), -ENOSPC);
        assert_int_equal(r.reached, 0);
        assert_true(r.restored);
        assert_in_range(k.n_writes, 1, 20);
        /* Some kernels cannot make them at all. */
        k.write_error = -EINVAL;
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 16 }, &r), -EINVAL);
}

static void add_seven_at_fourth_read(Kernel *k) {
        if (k->n_reads == 4)
                kernel_set(k, persistent(k) + 7);
}

static void add_one_always(Kernel *k) {
        kernel_set(k, persistent(k) + 1);
}

static void test_case_08_somebody_else_writes(void **state) {
        Kernel k = make(100, 100, 10000);
        PoolResult r;

        /* What was asked to be added is added to what is there then. */
        k.step = 50;
        k.other = add_seven_at_fourth_read;
        assert_int_equal(resize(&k, (PoolRequest){ .mode = POOL_GROW, .pages = 200 }, &r), 0);
        assert_int_equal(r.foreign, 7);
        assert_int_equal(k.pool.total, 307);

        /* A number is a number. */
        k = make(100, 100, 10000);
        k.other = add_seven_at_fourth_read;
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 2000 }, &r), 0);
        assert_int_equal(k.pool.total, 2000);

        /* Their pages stay when ours go. */
        k = make(100, 100, 250);
        k.other = add_seven_at_fourth_read;
        assert_int_equal(resize(&k, (PoolRequest){ .mode = POOL_GROW, .pages = 200 }, &r), -ENOSPC);
        assert_int_equal(k.pool.total, 107);
        assert_true(r.restored);

        /* Two that fight are no endless loop. */
        k = make(100, 100, 1000000);
        k.other = add_one_always;
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 5000 }, &r), -EAGAIN);
        assert_in_range(k.n_writes, 1, 100);
}

/* All of it, also what has just been added. */
static void takes_all_at_fourth_read(Kernel *k) {
        if (k->n_reads == 4)
                kernel_set(k, 0);
}

static void test_case_08_somebody_else_takes_all(void **state) {
        static const struct {
                PoolRequest request;
                uint64_t room;
                unsigned cancel_after;
                int r;
        } table[] = {
                { { .pages = 900 }, 500, 0, -ENOSPC },
                { { .mode = POOL_GROW, .pages = 900 }, 500, 0, -ENOSPC },
                { { .pages = 900 }, 10000, 6, -ECANCELED },
                { { .mode = POOL_GROW, .pages = 900 }, 10000, 6, -ECANCELED },
                { { .mode = POOL_GROW, .pages = 900 }, 10000, 0, 0 },
        };

        for (uint64_t before = 0; before <= 100; before += 100)
                for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                        Kernel k = make(before, before, table[i].room);
                        PoolResult r;

                        k.step = 100;
                        k.cancel_after = table[i].cancel_after;
                        k.other = takes_all_at_fourth_read;
                        assert_int_equal(resize(&k, table[i].request, &r), table[i].r);
                        assert_true(k.n_reads > 4);
                        assert_true(k.most_written <= before + 900);
                        assert_int_equal(k.pool.total, r.after);
                        /* What was there before has been taken, too. */
                        assert_int_equal(r.foreign, -(int64_t) before);
                        assert_int_equal(r.after, table[i].r < 0 ? 0 : 900);
                        assert_int_equal(r.restored, table[i].r < 0);
                }
}

static int on_read_fails(void *userdata, Pool *ret) {
        return -EMFILE;
}

static void test_nothing_seen_is_no_result(void **state) {
        PoolIo io = { .read = on_read_fails };
        PoolRequest request = { .pages = 5 };
        PoolResult r;

        assert_int_equal(pool_resize(&io, &request, &r), -EMFILE);
        assert_false(r.looked);
}

static void test_shrink_takes_from_nobody(void **state) {
        Kernel k = make(100, 60, 100);
        PoolResult r;

        k.pool.reserved = 10;
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 54, .keep = 5 }, &r), -EBUSY);
        assert_int_equal(k.n_writes, 0);
        assert_int_equal(r.in_use, 40);
        assert_int_equal(r.reserved, 15);
        assert_int_equal(resize(&k, (PoolRequest){ .mode = POOL_SHRINK, .pages = 45, .keep = 5 }, &r), 0);
        assert_int_equal(k.pool.total, 55);
        assert_int_equal(k.pool.surplus, 0);

        k = make(100, 60, 100);
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 0, .allow_partial = true }, &r), -EBUSY);
        assert_int_equal(r.after, 40);
        assert_int_equal(k.pool.total, 40);
        assert_int_equal(k.pool.surplus, 0);

        /* Surplus pages go by themselves.  Until then the kernel would make more of them, and free nothing.
         */
        k = make(13, 2, 100);
        k.pool.surplus = 3;
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 8 }, &r), -EBUSY);
        assert_int_equal(r.before, 10);
        assert_int_equal(k.n_writes, 0);
        k.pool.free = 6;
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 7 }, &r), 0);
        assert_int_equal(k.pool.total, 10);
        assert_int_equal(k.pool.surplus, 3);
}

/* Somebody takes free pages between the look and the write. */
static void take_all_at_first_read(Kernel *k) {
        if (k->n_reads == 2) {
                Pool seen = k->pool;

                /* What is read is still the old state. */
                k->pool.free = 0;
                assert_int_equal(seen.free, 100);
        }
}

static int on_read_late(void *userdata, Pool *ret) {
        Kernel *k = userdata;
        Pool before = k->pool;

        k->n_reads++;
        take_all_at_first_read(k);
        *ret = k->n_reads == 2 ? before : k->pool;
        return 0;
}

static void test_shrink_loses_a_race(void **state) {
        Kernel k = make(100, 100, 100);
        PoolIo io = { on_read_late, on_write,    on_compact,   on_drop_caches,
                      on_wait,      on_progress, on_turn_back, &k };
        PoolRequest q = { .pages = 10 };
        PoolResult r;

        assert_int_equal(pool_resize(&io, &q, &r), -EBUSY);
        assert_int_equal(k.pool.total, 100);
        assert_int_equal(k.pool.surplus, 0);
        assert_int_equal(r.in_use, 100);
}

static void test_case_12_cancel_restores(void **state) {
        Kernel k = make(10, 10, 1000000);
        PoolResult r;

        k.step = 128;
        k.cancel_after = 3;
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 500000 }, &r), -ECANCELED);
        assert_in_range(r.reached, 11, 499999);
        assert_int_equal(k.pool.total, 10);
        assert_true(r.restored);

        k = make(10, 10, 1000000);
        k.step = 128;
        k.cancel_after = 3;
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 500000, .allow_partial = true }, &r),
                         -ECANCELED);
        assert_int_equal(k.pool.total, r.reached);
        assert_false(r.restored);

        /* A shrink that is taken back grows, and may not get there: then it says so. */
        k = make(500000, 500000, 499900);
        k.cancel_after = 3;
        assert_int_equal(resize(&k, (PoolRequest){ .pages = 0 }, &r), -ECANCELED);
        assert_false(r.restored);
        assert_int_equal(r.after, 499900);
        assert_int_equal(k.pool.total, 499900);
}

static void test_numbers_out_of_range(void **state) {
        Kernel k = make(10, 10, 10);
        PoolResult r;

        assert_int_equal(resize(&k, (PoolRequest){ .mode = POOL_SHRINK, .pages = 11 }, &r), -ERANGE);
        assert_int_equal(resize(&k, (PoolRequest){ .mode = POOL_GROW, .pages = UINT64_MAX }, &r), -ERANGE);
        assert_int_equal(resize(&k, (PoolRequest){ .pages = UINT64_MAX }, &r), -ERANGE);
        assert_int_equal(k.n_writes, 0);
}

static uint64_t seed;

static uint64_t random_below(uint64_t n) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        return (seed >> 33) % n;
}

static void sometimes(Kernel *k) {
        uint64_t p = persistent(k);

        switch (random_below(12)) {
        case 0:
                kernel_set(k, p + random_below(20));
                break;
        case 1:
                k->pool.free -= k->pool.free > k->pool.reserved + 3 ? 3 : 0;
                break;
        case 2:
                k->pool.reserved = random_below(k->pool.free + 1);
                break;
        default:
                break;
        }
}

/* Whatever happens: what is in use or reserved is left alone, and a failure leaves what was there. */
static void test_case_19_random(void **state) {
        for (unsigned i = 0; i < 20000; i++) {
                uint64_t total = random_below(300), in_use = total > 0 ? random_below(total) : 0, surplus;
                Kernel k = make(total, total - in_use, random_below(600));
                PoolRequest q = {
                        .mode = (PoolMode) random_below(_POOL_MODE_MAX),
                        .pages = random_below(700),
                        .allow_partial = random_below(2),
                        .drop_caches = random_below(2),
                };
                bool alone = random_below(2);
                PoolResult r;
                int e;

                seed += i;
                k.room += total;
                k.room_compacted = k.room + random_below(50);
                k.room_dropped = k.room_compacted + random_below(50);
                k.pool.reserved = random_below(k.pool.free + 1);
                k.pool.surplus = in_use > 0 ? random_below(in_use) : 0;
                surplus = k.pool.surplus;
                k.step = random_below(40);
                k.cancel_after = (unsigned) random_below(20);
                k.other = alone ? NULL : sometimes;
                total = persistent(&k);

                e = resize(&k, q, &r);
                assert_true(k.pool.free >= k.pool.reserved || !alone);
                assert_true(k.pool.surplus <= surplus || !alone);
                if (!alone)
                        continue;
                assert_int_equal(r.before, total);
                assert_int_equal(r.after, persistent(&k));
                assert_int_equal(r.foreign, 0);
                if (e == 0)
                        assert_int_equal(persistent(&k), r.goal);
                else if (!q.allow_partial && e != -ECANCELED)
                        assert_int_equal(persistent(&k), total);
                if (e < 0 && r.restored)
                        assert_int_equal(persistent(&k), total);
                if (k.n_drops > 0)
                        assert_true(q.drop_caches);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_plain),
                cmocka_unit_test(test_case_04_short_is_restored_or_kept),
                cmocka_unit_test(test_case_06_compaction_then_caches_if_asked),
                cmocka_unit_test(test_case_07_nothing_to_be_had),
                cmocka_unit_test(test_case_08_somebody_else_writes),
                cmocka_unit_test(test_case_08_somebody_else_takes_all),
                cmocka_unit_test(test_nothing_seen_is_no_result),
                cmocka_unit_test(test_shrink_takes_from_nobody),
                cmocka_unit_test(test_shrink_loses_a_race),
                cmocka_unit_test(test_case_12_cancel_restores),
                cmocka_unit_test(test_numbers_out_of_range),
                cmocka_unit_test(test_case_19_random),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
