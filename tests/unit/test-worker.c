/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>

#include "worker.h"

typedef struct Run {
        sd_event *event;
        Worker *worker;
        _Atomic unsigned seen[2][100];
        bool done;
        int result;
        bool affinity_is_wrong;
} Run;

static int setup(void **state) {
        Run *run = calloc(1, sizeof(*run));

        assert_non_null(run);
        assert_true(sd_event_new(&run->event) >= 0);
        *state = run;
        return worker_setup_signals();
}

static int teardown(void **state) {
        Run *run = *state;

        worker_free(run->worker);
        sd_event_unref(run->event);
        free(run);
        return 0;
}

static void on_done(Worker *w, int result, void *userdata) {
        Run *run = userdata;

        assert_false(run->done);
        run->done = true;
        run->result = result;
}

static void start(Run *run, const WorkerLane *lanes, size_t n, worker_step_t step) {
        assert_int_equal(worker_start(run->event, lanes, n, step, on_done, run, &run->worker), 0);
}

static void wait_done(Run *run) {
        while (!run->done)
                assert_true(sd_event_run(run->event, 5000000) > 0);
}

static int step_count(Worker *w, size_t lane, size_t piece, void *userdata) {
        Run *run = userdata;

        atomic_fetch_add(&run->seen[lane][piece], 1);
        worker_add_progress(w, 10);
        return 0;
}

static void test_each_piece_once(void **state) {
        WorkerLane lanes[] = { { .n_threads = 3, .n_pieces = 100 }, { .n_threads = 1, .n_pieces = 7 } };
        Run *run = *state;

        start(run, lanes, 2, step_count);
        wait_done(run);
        assert_int_equal(run->result, 0);
        assert_int_equal(worker_progress(run->worker), 1070);
        for (size_t i = 0; i < 100; i++) {
                assert_int_equal(run->seen[0][i], 1);
                assert_int_equal(run->seen[1][i], i < 7);
        }
}

static void test_nothing_to_do(void **state) {
        WorkerLane lane = { .n_threads = 1 };
        Run *run = *state;

        start(run, &lane, 1, step_count);
        wait_done(run);
        assert_int_equal(run->result, 0);
}

static int step_fail(Worker *w, size_t lane, size_t piece, void *userdata) {
        Run *run = userdata;

        atomic_fetch_add(&run->seen[lane][piece], 1);
        return piece == 5 ? -EDOM : 0;
}

static void test_error_stops_all(void **state) {
        WorkerLane lane = { .n_threads = 1, .n_pieces = 100 };
        Run *run = *state;
        size_t where, piece;

        start(run, &lane, 1, step_fail);
        wait_done(run);
        assert_int_equal(run->result, -EDOM);
        worker_failed_at(run->worker, &where, &piece);
        assert_int_equal(where, 0);
        assert_int_equal(piece, 5);
        assert_int_equal(run->seen[0][6], 0);
}

/* A system call that would last for ever, like a build could. */
static int step_block(Worker *w, size_t lane, size_t piece, void *userdata) {
        while (!worker_is_canceled(w))
                (void) poll(NULL, 0, -1);
        return -EINTR;
}

static void test_cancel_interrupts(void **state) {
        WorkerLane lane = { .n_threads = 4, .n_pieces = 8 };
        Run *run = *state;

        start(run, &lane, 1, step_block);
        worker_cancel(run->worker);
        worker_cancel(run->worker); /* the second time does nothing */
        wait_done(run);
        assert_int_equal(run->result, -ECANCELED);
}

static void test_free_while_running(void **state) {
        WorkerLane lane = { .n_threads = 4, .n_pieces = 8 };
        Run *run = *state;

        start(run, &lane, 1, step_block);
        run->worker = worker_free(run->worker);
        assert_false(run->done);
}

static int step_affinity(Worker *w, size_t lane, size_t piece, void *userdata) {
        Run *run = userdata;
        cpu_set_t set;

        if (sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) != 1 || !CPU_ISSET(0, &set))
                run->affinity_is_wrong = true;
        return 0;
}

static void test_affinity(void **state) {
        WorkerLane lane = { .n_threads = 1, .n_pieces = 3 };
        Run *run = *state;

        idset_add(&lane.cpus, 0);
        start(run, &lane, 1, step_affinity);
        wait_done(run);
        assert_false(run->affinity_is_wrong);
}

static int step_each_cpu(Worker *w, size_t lane, size_t piece, void *userdata) {
        Run *run = userdata;
        cpu_set_t set, all;

        if (sched_getaffinity(0, sizeof(set), &set) < 0 ||
            sched_getaffinity(getpid(), sizeof(all), &all) < 0 || !CPU_EQUAL(&set, &all))
                run->affinity_is_wrong = true;
        return 0;
}

/* One thread for each CPU begins on its own, and may run on all of them. */
static void test_one_for_each_cpu(void **state) {
        WorkerLane lane = {};
        Run *run = *state;
        cpu_set_t all;

        assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
        for (unsigned i = 0; i < CPU_SETSIZE; i++)
                if (CPU_ISSET(i, &all))
                        idset_add(&lane.cpus, i);
        lane.n_threads = idset_count(&lane.cpus);
        for (unsigned i = 0; i < 50; i++) {
                cpu_set_t now;

                /* With none they are over before the next one is there. */
                lane.n_pieces = i % 2 ? 2000 : 0;
                run->done = false;
                start(run, &lane, 1, step_each_cpu);
                wait_done(run);
                assert_int_equal(run->result, 0);
                run->worker = worker_free(run->worker);
                assert_int_equal(sched_getaffinity(0, sizeof(now), &now), 0);
                assert_true(CPU_EQUAL(&now, &all));
        }
        assert_false(run->affinity_is_wrong);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_each_piece_once, setup, teardown),
                cmocka_unit_test_setup_teardown(test_nothing_to_do, setup, teardown),
                cmocka_unit_test_setup_teardown(test_error_stops_all, setup, teardown),
                cmocka_unit_test_setup_teardown(test_cancel_interrupts, setup, teardown),
                cmocka_unit_test_setup_teardown(test_free_while_running, setup, teardown),
                cmocka_unit_test_setup_teardown(test_affinity, setup, teardown),
                cmocka_unit_test_setup_teardown(test_one_for_each_cpu, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
