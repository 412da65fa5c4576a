/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

#include "bus-error.h"
#include "bus-job.h"
#include "handoffs.h"
#include "log-message.h"
#include "vm.h"

#define PROGRESS_USEC (UINT64_C(100) * 1000)
/* A thread that zeroes a page of 1 GiB does not stop halfway, and whoever cancels has an answer in 100 ms.
 */
#define CANCEL_USEC (UINT64_C(60) * 1000)

static const struct {
        const char *name;
        JobPhase first;
} type_table[_JOB_TYPE_MAX] = {
        [JOB_RESERVE] = { "reserve", JOB_PHASE_POPULATE },
        [JOB_ATTACH] = { "attach", JOB_PHASE_BUILD },
        [JOB_BUILD] = { "build", JOB_PHASE_BUILD },
        [JOB_HEAL] = { "heal", JOB_PHASE_HEAL },
        [JOB_SPLIT] = { "split", JOB_PHASE_SPLIT },
        [JOB_COLLAPSE] = { "collapse", JOB_PHASE_COLLAPSE },
        [JOB_POOL] = { "pool", JOB_PHASE_RESIZE },
        [JOB_CALIBRATE] = { "calibrate", JOB_PHASE_CALIBRATE },
};

static const char *const phase_table[_JOB_PHASE_MAX] = {
        [JOB_PHASE_WAIT] = "wait",     [JOB_PHASE_POPULATE] = "populate",
        [JOB_PHASE_BUILD] = "build",   [JOB_PHASE_HEAL] = "heal",
        [JOB_PHASE_SPLIT] = "split",   [JOB_PHASE_COLLAPSE] = "collapse",
        [JOB_PHASE_RESIZE] = "resize", [JOB_PHASE_CALIBRATE] = "calibrate",
};

const char *job_type_to_string(JobType t) {
        return t < _JOB_TYPE_MAX ? type_table[t].name : NULL;
}

const char *job_phase_to_string(JobPhase p) {
        return p < _JOB_PHASE_MAX ? phase_table[p] : NULL;
}

const char *job_state_to_string(const Job *j) {
        return j->canceling ? "canceling" : "running";
}

int job_new_for(Manager *m, const char *object, const char *what, uid_t uid, JobType type, Job **ret,
                sd_bus_error *error) {
        _cleanup_(job_freep) Job *j = NULL;
        int r;

        j = calloc(1, sizeof(*j));
        if (!j)
                return -ENOMEM;
        j->type = type;
        j->phase = type_table[type].first;
        j->uid = uid;
        if (uid != JOB_NO_UID) {
                r = charge_take(&j->charge, &m->accounts, uid, &(Amounts){ .jobs = 1 }, error);
                if (r < 0)
                        return r;
        }
        j->object = strdup(object);
        j->what = strdup(what);
        if (!j->object || !j->what)
                return -ENOMEM;
        j->id = m->last_job_id + 1;
        if (asprintf(&j->path, "/org/tdpd1/job/%" PRIu32, j->id) < 0) {
                j->path = NULL;
                return -ENOMEM;
        }

        m->last_job_id = j->id;
        j->manager = m;
        DL_APPEND(m->jobs, j);
        *ret = TAKE_PTR(j);
        return 0;
}

int job_new(VM *vm, uid_t uid, JobType type, Job **ret, sd_bus_error *error) {
        _cleanup_free_ char *what = NULL;
        int r;

        if (vm->job)
                return sd_bus_error_setf(error, TDP_ERROR_BUSY,
                                         "VM \"%s\" has job %" PRIu32
                                         " (%s) running: wait for its end, or cancel it",
                                         vm->name, vm->job->id, job_type_to_string(vm->job->type));

        if (asprintf(&what, "VM %s", vm->name) < 0) {
                what = NULL;
                return -ENOMEM;
        }
        r = job_new_for(vm->manager, vm->path, what, uid, type, ret, error);
        if (r < 0)
                return r;
        (*ret)->vm = vm;
        vm->job = *ret;
        return 0;
}

Job *job_free(Job *j) {
        if (!j)
                return NULL;

        sd_event_source_disable_unref(j->timer);
        sd_event_source_disable_unref(j->cancel_timer);
        if (j->work)
                j->ops->free(j->work);
        if (j->manager)
                DL_DELETE(j->manager->jobs, j);
        if (j->vm) {
                handoff_vm_changed(j->vm);
                j->vm->job = NULL;
        }
        charge_return(&j->charge);
        sd_bus_error_free(&j->error);
        free(j->object);
        free(j->what);
        free(j->path);
        free(j);
        return NULL;
}

Job *job_find(Manager *m, uint32_t id) {
        Job *j;

        DL_FOREACH (m->jobs, j)
                if (j->id == id)
                        return j;
        return NULL;
}

Worker *job_worker(const Job *j) {
        return j->work ? j->ops->worker(j->work) : NULL;
}

uint64_t job_progress(const Job *j) {
        Worker *w = job_worker(j);

        return w ? MIN_OF(worker_progress(w), j->total) : j->done;
}

static int on_progress(sd_event_source *s, uint64_t usec, void *userdata) {
        Job *j = userdata;
        uint64_t done = job_progress(j);

        if (done != j->done) {
                j->done = done;
                bus_job_changed(j, "Done");
        }
        (void) sd_event_source_set_time_relative(s, PROGRESS_USEC);
        return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

void job_set_work(Job *j, const JobOps *ops, void *work) {
        j->ops = ops;
        j->work = work;
}

int job_watch(Job *j, JobPhase phase, uint64_t total) {
        j->timer = sd_event_source_disable_unref(j->timer); /* it may have had another phase before */
        j->phase = phase;
        j->total = total;
        (void) sd_event_now(j->manager->event, CLOCK_MONOTONIC, &j->started_usec);
        return sd_event_add_time_relative(j->manager->event, &j->timer, CLOCK_MONOTONIC, PROGRESS_USEC, 0,
                                          on_progress, j);
}

static int on_cancel_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        vm_reserve_tell_canceled(((Job *) userdata)->vm);
        return 0;
}

void job_cancel(Job *j) {
        Worker *w = job_worker(j);

        if (j->canceling)
                return;
        j->canceling = true;
        bus_job_changed(j, "State");
        if (j->work && j->ops->cancel)
                j->ops->cancel(j->work);
        if (w)
                worker_cancel(w);
        if (w && j->type == JOB_RESERVE)
                (void) sd_event_add_time_relative(j->manager->event, &j->cancel_timer, CLOCK_MONOTONIC,
                                                  CANCEL_USEC, 1000, on_cancel_timer, j);
}

void job_fail(Job *j, const sd_bus_error *e) {
        j->failed = true;
        sd_bus_error_free(&j->error);
        if (sd_bus_error_copy(&j->error, e) == 0 || !sd_bus_error_is_set(&j->error))
                (void) sd_bus_error_set_const(&j->error, TDP_ERROR_FAILED,
                                              "no memory for the daemon itself");
}

static void log_end(const Job *j, const char *result) {
        LogMessage message = MESSAGE_JOB_DONE;
        uint64_t now = 0;

        if (j->failed)
                message = MESSAGE_JOB_FAILED;
        else if (j->type == JOB_RESERVE)
                message = MESSAGE_VM_POPULATED;
        else if (j->vm && j->vm->state == VM_BUILT && (j->type == JOB_ATTACH || j->type == JOB_BUILD))
                message = MESSAGE_VM_BUILT;
        if (j->started_usec > 0)
                (void) sd_event_now(j->manager->event, CLOCK_MONOTONIC, &now);

        log_message(message,
                    FIELDS(FIELD_TEXT("TDP_VM", j->vm ? j->vm->name : NULL), FIELD_TEXT("TDP_WHAT", j->what),
                           FIELD_BYTES(j->total), FIELD_NUMBER("TDP_USEC", now - j->started_usec),
                           FIELD_NUMBER("TDP_JOB", j->id),
                           FIELD_TEXT("TDP_JOB_TYPE", job_type_to_string(j->type)),
                           FIELD_TEXT("TDP_RESULT", result),
                           FIELD_TEXT("TDP_ERROR", j->failed ? j->error.name : NULL)),
                    "Job %" PRIu32 " (%s) of %s: %s%s%s", j->id, job_type_to_string(j->type), j->what,
                    result, j->failed ? ": " : "", j->failed ? j->error.message : "");
}

void job_end(Job *j) {
        const char *result = "done";

        if (j->failed)
                result = streq(j->error.name, TDP_ERROR_CANCELED) ? "canceled" : "failed";

        log_end(j, result);
        bus_job_removed(j, result);
        job_free(j);
}

static int on_end_soon(sd_event_source *s, void *userdata) {
        job_end(userdata);
        return 0;
}

int job_end_soon(Job *j) {
        j->timer = sd_event_source_disable_unref(j->timer);
        return sd_event_add_defer(j->manager->event, &j->timer, on_end_soon, j);
}
