/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "calibrate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "bus-calibrate.h"
#include "bus-error.h"
#include "bus-job.h"
#include "clock.h"
#include "format.h"
#include "log-message.h"
#include "populate.h"
#include "probe.h"
#include "queue.h"

/* Enough to spread over threads and to average over, and over in a moment. */
#define SCRATCH_BYTES MIB(256)
#define STEPS_MAX     CALIBRATION_RATES_MAX
#define KVM_DEVICE    "/dev/kvm"

typedef struct Step {
        const Node *node;
        uint64_t page_size;
        uint64_t bytes;
        bool probe; /* on one node only */
} Step;

typedef struct Calibrate {
        Manager *manager;
        Job *job;
        NodeTable *nodes;
        Step steps[STEPS_MAX];
        size_t n_steps, i_step;
        bool canceled;

        /* Of the step that runs: one after the other. */
        Memory *memory;
        Populate *populate;
        uint64_t started_usec;
        Worker *worker;
        ProbeResult probe;

        int stored; /* what came of it; -ECANCELED: the thread has not got to it */
        Calibration result;
} Calibrate;

static int start_step(Calibrate *c, sd_bus_error *error);

static Calibrate *calibrate_free(Calibrate *c) {
        if (!c)
                return NULL;
        populate_free(c->populate);
        worker_free(c->worker);
        memory_free(c->memory);
        node_table_free(c->nodes);
        if (c->manager->calibrate == c)
                c->manager->calibrate = NULL;
        free(c);
        return NULL;
}
DEFINE_CLEANUP(Calibrate, calibrate_free);

static void job_free_work(void *work) {
        calibrate_free(work);
}

/* Progress is of whole steps: none of a step's workers is the job's. */
static Worker *no_worker(void *work) {
        return NULL;
}

static void job_cancel_work(void *work) {
        Calibrate *c = work;

        c->canceled = true;
        if (c->populate)
                worker_cancel(populate_job.worker(c->populate));
        if (c->worker)
                worker_cancel(c->worker);
}

static const JobOps ops = { .worker = no_worker, .cancel = job_cancel_work, .free = job_free_work };

static CalibrationLeaf *result_leaf(Calibrate *c, uint64_t page_size) {
        for (size_t i = 0; i < COST_SIZES; i++)
                if (c->result.leaves[i].page_size == page_size)
                        return &c->result.leaves[i];
        return NULL;
}

static void end(Calibrate *c, const sd_bus_error *error) {
        Job *j = c->job;

        if (sd_bus_error_is_set(error))
                job_fail(j, error);
        job_end(j);
}

static void fail(Calibrate *c, int r, const char *what) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;

        if (r == -ECANCELED || c->canceled)
                sd_bus_error_setf(&error, TDP_ERROR_CANCELED, "canceled; what was measured before stays");
        else
                sd_bus_error_setf(&error, TDP_ERROR_FAILED, "%s: %s; what was measured before stays", what,
                                  strerror(-r));
        end(c, &error);
}

static int store_step(Worker *w, size_t lane, size_t piece, void *userdata) {
        Calibrate *c = userdata;
        const char *dir = c->manager->options.data_dir;

        /* systemd makes it, if that has started us. */
        if (mkdir(dir, 0755) < 0 && errno != EEXIST)
                c->stored = -errno;
        else
                c->stored = calibration_store(dir, &c->result);
        return 0;
}

static void on_stored(Worker *w, int result, void *userdata) {
        Calibrate *c = userdata;
        Manager *m = c->manager;
        char what[128];

        c->worker = worker_free(c->worker);
        /* What is stored counts, also if it was canceled a moment later: the next start would use it. */
        if (c->stored < 0) {
                snprintf(what, sizeof(what), "what was measured cannot be kept in %.80s",
                         m->options.data_dir);
                return fail(c, c->stored, what);
        }
        manager_load_calibration(m);
        log_message(MESSAGE_CALIBRATED, FIELDS({}),
                    "This host is calibrated: decisions use what was measured");
        bus_calibration_changed(m);
        end(c, &SD_BUS_ERROR_NULL);
}

static int run_worker(Calibrate *c, worker_step_t step, worker_done_t done, const Node *node) {
        WorkerLane lane = { .n_threads = 1, .n_pieces = 1 };

        if (node)
                lane.cpus = node->cpus;
        return worker_start(c->manager->event, &lane, 1, step, done, c, &c->worker);
}

static void finish(Calibrate *c) {
        int r;

        c->result.measured_at = (uint64_t) time(NULL);
        calibration_get_host(&c->result.host);
        c->stored = -ECANCELED;
        r = run_worker(c, store_step, on_stored, NULL);
        if (r < 0)
                fail(c, r, "no thread to keep what was measured");
}

static bool probe_is_canceled(void *userdata) {
        return worker_is_canceled(userdata);
}

/* And gives the memory back: that may take a moment as well. */
static int probe_step(Worker *w, size_t lane, size_t piece, void *userdata) {
        Calibrate *c = userdata;
        const Step *s = &c->steps[c->i_step];
        const ProbeRequest q = {
                .kvm = KVM_DEVICE,
                .device = c->manager->options.device,
                .memory_fd = c->memory->parts[0].fd,
                .page_size = s->page_size,
                .bytes = s->bytes,
                .is_canceled = probe_is_canceled,
                .userdata = w,
        };
        int r = 0;

        if (s->probe)
                r = probe_run(&q, &c->probe);
        c->memory->parts[0].fd = safe_close(c->memory->parts[0].fd);
        return r;
}

static void on_probed(Worker *w, int result, void *userdata) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        Calibrate *c = userdata;
        const Step *s = &c->steps[c->i_step];
        CalibrationLeaf *l = result_leaf(c, s->page_size);
        int r;

        c->worker = worker_free(c->worker);
        c->memory = memory_free(c->memory);
        if (c->canceled || result < 0)
                return fail(c, c->canceled ? -ECANCELED : result, "the scratch memory cannot be used");
        if (s->probe && l) {
                l->fault_ns = c->probe.fault_ns;
                l->build_ns = c->probe.build_ns;
                snprintf(l->missing, sizeof(l->missing), "%s", c->probe.missing);
        }

        c->job->done += s->bytes;
        bus_job_changed(c->job, "Done");
        c->i_step++;
        r = start_step(c, &error);
        if (r < 0 && sd_bus_error_is_set(&error))
                end(c, &error);
        else if (r < 0)
                fail(c, r, "the next measurement cannot be started");
}

static void on_populated(Worker *w, int result, void *userdata) {
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        Calibrate *c = userdata;
        const Step *s = &c->steps[c->i_step];
        uint64_t usec = MAX_OF(clock_usec() - c->started_usec, UINT64_C(1));
        int r;

        if (result < 0 && !c->canceled)
                populate_set_error(c->populate, result, &error);
        c->populate = populate_free(c->populate);
        if (sd_bus_error_is_set(&error))
                return end(c, &error);
        if (c->canceled)
                return fail(c, -ECANCELED, "");
        c->result.rates[c->result.n_rates++] = (CalibrationRate){
                .node = s->node->id,
                .page_size = s->page_size,
                .bytes_per_sec = MAX_OF((uint64_t) ((double) s->bytes / (double) usec * 1000000),
                                        UINT64_C(1)),
        };
        c->probe = (ProbeResult){};
        r = run_worker(c, probe_step, on_probed, s->node);
        if (r < 0)
                fail(c, r, "no thread for the measurement");
}

/* Without "error" set if there is no more to say than what it returns. */
static int start_step(Calibrate *c, sd_bus_error *error) {
        const Step *s = &c->steps[c->i_step];
        PlacementPart part;
        PopulateRequest request = { .max_threads = (unsigned) c->manager->config.threads };
        Placement p = { .parts = &part, .n_parts = 1 };
        int r;

        if (c->i_step == c->n_steps) {
                finish(c);
                return 0;
        }
        part = (PlacementPart){ .node = s->node->id, .bytes = s->bytes };
        p.page_size = s->page_size;
        r = memory_new("calibrate", &p, false, &c->memory, error);
        if (r < 0)
                return r;
        c->started_usec = clock_usec();
        return populate_start(c->manager->event, c->memory, c->nodes, &request, on_populated, c,
                              &c->populate, error);
}

/* Half of what is free at most, in whole pages. */
static uint64_t scratch_bytes(Manager *m, const Node *n, const Claim *claims, size_t n_claims,
                              uint64_t page_size) {
        uint64_t pages = placement_available(n, claims, n_claims, page_size) / page_size;

        if (pages > 1)
                pages /= 2;
        return MIN_OF(pages, MAX_OF(SCRATCH_BYTES / page_size, UINT64_C(1))) * page_size;
}

static int plan(Calibrate *c, sd_bus_error *error) {
        static const uint64_t sizes[COST_SIZES] = { KIB(4), MIB(2), GIB(1) };
        _cleanup_free_ Claim *claims = NULL;
        size_t n_claims;
        int r;

        r = manager_load_nodes(c->manager, &c->nodes, error);
        if (r < 0)
                return r;
        queue_mark(c->manager, NULL, c->nodes);
        r = manager_claims(c->manager, &claims, &n_claims);
        if (r < 0)
                return r;
        for (size_t k = 0; k < COST_SIZES; k++) {
                CalibrationLeaf *l = &c->result.leaves[k];

                l->page_size = sizes[k];
                snprintf(l->missing, sizeof(l->missing),
                         "no page of %s was free: add some to a pool and calibrate again",
                         format_bytes(sizes[k]));
                for (size_t i = 0; i < c->nodes->n_nodes && c->n_steps < STEPS_MAX; i++) {
                        const Node *n = &c->nodes->nodes[i];
                        uint64_t bytes = scratch_bytes(c->manager, n, claims, n_claims, sizes[k]);

                        if (bytes == 0)
                                continue;
                        c->steps[c->n_steps++] = (Step){
                                .node = n,
                                .page_size = sizes[k],
                                .bytes = bytes,
                                .probe = l->missing[0] != '\0',
                        };
                        l->missing[0] = '\0';
                }
        }
        return 0;
}

int calibrate_start(Manager *m, uid_t uid, Job **ret, sd_bus_error *error) {
        _cleanup_(calibrate_freep) Calibrate *c = NULL;
        uint64_t total = 0;
        Job *j;
        int r;

        if (m->calibrate)
                return sd_bus_error_setf(error, TDP_ERROR_BUSY,
                                         "job %" PRIu32
                                         " calibrates already: wait for its end, or cancel it",
                                         m->calibrate->job->id);
        c = calloc(1, sizeof(*c));
        if (!c)
                return -ENOMEM;
        c->manager = m;
        r = plan(c, error);
        if (r < 0)
                return r;
        if (c->n_steps == 0)
                return sd_bus_error_setf(
                                error, TDP_ERROR_NO_PAGES,
                                "no memory is free to measure with: what was measured before stays; "
                                "release a VM, or try again later");
        for (size_t i = 0; i < c->n_steps; i++)
                total += c->steps[i].bytes;

        r = job_new_for(m, "/org/tdpd1", "this host", uid, JOB_CALIBRATE, &j, error);
        if (r < 0)
                return r;
        c->job = j;
        r = job_watch(j, JOB_PHASE_CALIBRATE, total);
        if (r >= 0)
                r = start_step(c, error);
        if (r < 0) {
                job_free(j);
                if (sd_bus_error_is_set(error))
                        return r;
                return sd_bus_error_setf(error, TDP_ERROR_FAILED, "the calibration cannot be started: %s",
                                         strerror(-r));
        }
        job_set_work(j, &ops, c);
        m->calibrate = TAKE_PTR(c);
        *ret = j;
        return 0;
}
