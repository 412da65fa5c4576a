/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Jobs: progress, the end, cancel. */

#include <string.h>

#include "libtdp-private.h"

#define JOB         TDP_SERVICE ".Job"
#define POLL_USEC   UINT64_C(100000)
#define UNKNOWN_MAX 20
#define WAITING     "Waiting for a job"
/* The callback has to run even if the daemon hangs. */
#define REFRESH_USEC UINT64_C(1000000)

int job_new(struct tdp_ctx *ctx, uint32_t id, const char *path, const char *type, const char *vm_path,
            struct tdp_job **ret) {
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;

        job = calloc(1, sizeof(*job));
        if (!job)
                return -ENOMEM;

        job->ctx = tdp_ref(ctx);
        job->ctx_next = ctx->jobs;
        job->ctx_prevp = &ctx->jobs;
        if (ctx->jobs)
                ctx->jobs->ctx_prevp = &job->ctx_next;
        ctx->jobs = job;

        job->id = id;
        job->path = strdup(path);
        job->type = strdup(type);
        job->state = strdup("running");
        if (!job->path || !job->type || !job->state)
                return -ENOMEM;

        /* "/" stands for a VM that is not there (any more). */
        if (sd_bus_path_decode(vm_path, TDP_PATH "/vm", &job->vm_name) < 0)
                return -ENOMEM;

        *ret = TAKE_PTR(job);
        return 0;
}

int job_new_from_path(struct tdp_ctx *ctx, const char *path, const char *type, const char *vm_path,
                      struct tdp_job **ret) {
        _cleanup_free_ char *id = NULL;

        if (sd_bus_path_decode(path, TDP_PATH "/job", &id) < 0)
                return -ENOMEM;

        return job_new(ctx, id ? strtoul(id, NULL, 10) : 0, path, type, vm_path, ret);
}

TDP_EXPORT struct tdp_job *tdp_job_free(struct tdp_job *first) {
        while (first) {
                struct tdp_job *job = first;

                first = job->next;
                *job->ctx_prevp = job->ctx_next;
                if (job->ctx_next)
                        job->ctx_next->ctx_prevp = job->ctx_prevp;
                tdp_value_free(job->properties);
                free(job->path);
                free(job->type);
                free(job->state);
                free(job->vm_name);
                free(job->result);
                free(job->error_name);
                free(job->error_message);
                tdp_unref(job->ctx);
                free(job);
        }
        return NULL;
}

static void job_set_ended(struct tdp_job *job, const char *result, const char *error_name,
                          const char *message) {
        if (job->ended)
                return;
        /* Out of memory here shows as a failed job without words, never as success. */
        job->result = strdup(result);
        job->error_name = strdup(error_name);
        job->error_message = strdup(message);
        job->ended = true;
}

int job_on_removed(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        struct tdp_ctx *ctx = userdata;
        const char *path, *result, *error_name, *message;
        uint32_t id;
        int r;

        r = sd_bus_message_read(m, "uosss", &id, &path, &result, &error_name, &message);
        if (r < 0) {
                log_debug(ctx, "Ignoring a JobRemoved signal of unknown form");
                return 0;
        }

        for (struct tdp_job *job = ctx->jobs; job; job = job->ctx_next)
                if (strcmp(job->path, path) == 0)
                        job_set_ended(job, result, error_name, message);
        return 0;
}

int job_on_name_owner_changed(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        struct tdp_ctx *ctx = userdata;
        const char *name, *old_owner, *new_owner;
        int r;

        r = sd_bus_message_read(m, "sss", &name, &old_owner, &new_owner);
        if (r < 0 || old_owner[0] == '\0')
                return 0;

        /* Jobs do not survive the daemon, even if it is back at once. */
        for (struct tdp_job *job = ctx->jobs; job; job = job->ctx_next)
                job_set_ended(job, "failed", "",
                              "The daemon stopped or restarted before the job was done. "
                              "Look at \"tdpctl vms\" and the daemon's log, then ask again");
        return 0;
}

static int read_list(struct tdp_ctx *ctx, sd_bus_message *m, struct tdp_job **ret_first) {
        _cleanup_(tdp_job_freep) struct tdp_job *first = NULL;
        struct tdp_job **tail = &first;
        int r;

        r = sd_bus_message_enter_container(m, 'a', "(uosso)");
        if (r < 0)
                return r;

        for (;;) {
                const char *path, *type, *state, *vm_path;
                uint32_t id;

                r = sd_bus_message_read(m, "(uosso)", &id, &path, &type, &state, &vm_path);
                if (r < 0)
                        return r;
                if (r == 0)
                        break;

                r = job_new(ctx, id, path, type, vm_path, tail);
                if (r < 0)
                        return r;
                free((*tail)->state);
                (*tail)->state = strdup(state);
                if (!(*tail)->state)
                        return -ENOMEM;
                tail = &(*tail)->next;
        }

        *ret_first = TAKE_PTR(first);
        return 0;
}

TDP_EXPORT int tdp_list_jobs(struct tdp_ctx *ctx, struct tdp_job **ret_first) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        int r;

        r = bus_new_call(ctx, TDP_PATH, TDP_SERVICE ".Manager", "ListJobs", &m);
        if (r < 0)
                return r;

        r = bus_call_message(ctx, m, "ListJobs", &reply);
        if (r < 0)
                return r;

        r = read_list(ctx, reply, ret_first);
        if (r < 0)
                return bus_parse_failed(ctx, r, "ListJobs");
        return 0;
}

TDP_EXPORT struct tdp_job *tdp_job_get_next(const struct tdp_job *job) {
        return job->next;
}

TDP_EXPORT uint32_t tdp_job_get_id(const struct tdp_job *job) {
        return job->id;
}

TDP_EXPORT const char *tdp_job_get_type(const struct tdp_job *job) {
        return job->type;
}

TDP_EXPORT const char *tdp_job_get_state(const struct tdp_job *job) {
        return tdp_value_get_string(tdp_value_find(job->properties, "State")) ?: job->state;
}

TDP_EXPORT const char *tdp_job_get_vm_name(const struct tdp_job *job) {
        return job->vm_name;
}

TDP_EXPORT const char *tdp_job_get_phase(const struct tdp_job *job) {
        return tdp_value_get_string(tdp_value_find(job->properties, "Phase"));
}

TDP_EXPORT uint64_t tdp_job_get_done(const struct tdp_job *job) {
        return tdp_value_get_uint(tdp_value_find(job->properties, "Done"));
}

TDP_EXPORT uint64_t tdp_job_get_total(const struct tdp_job *job) {
        return tdp_value_get_uint(tdp_value_find(job->properties, "Total"));
}

TDP_EXPORT int tdp_job_refresh(struct tdp_job *job) {
        struct tdp_value *properties;
        int r;

        r = bus_get_all(job->ctx, job->path, JOB, &properties);
        if (r == -ENOENT)
                return ctx_fail(job->ctx, r, TDP_ERROR_PREFIX "NoSuchJob", "Job %u has ended", job->id);
        if (r < 0)
                return r;

        tdp_value_free(job->properties);
        job->properties = properties;
        return 0;
}

TDP_EXPORT int tdp_job_cancel(struct tdp_job *job) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        r = bus_new_call(job->ctx, job->path, JOB, "Cancel", &m);
        if (r < 0)
                return r;

        r = bus_call_message(job->ctx, m, "Cancel", NULL);
        if (r == -ENOENT)
                return ctx_fail(job->ctx, r, TDP_ERROR_PREFIX "NoSuchJob",
                                "There is no job %u; it may have ended: tdpctl jobs (ListJobs) has those that run",
                                job->id);
        return r;
}

TDP_EXPORT int tdp_cancel_job(struct tdp_ctx *ctx, uint32_t id) {
        _cleanup_(tdp_job_freep) struct tdp_job *job = NULL;
        char path[sizeof(TDP_PATH "/job/") + 3 * sizeof(id)];
        _cleanup_free_ char *encoded = NULL;
        int r;

        (void) snprintf(path, sizeof(path), "%u", id);
        if (sd_bus_path_encode(TDP_PATH "/job", path, &encoded) < 0)
                return ctx_fail(ctx, -ENOMEM, NULL, "Out of memory");

        r = job_new(ctx, id, encoded, "", "/", &job);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "Out of memory");

        return tdp_job_cancel(job);
}

static int job_result(struct tdp_job *job) {
        int r;

        if (job->result && strcmp(job->result, "done") == 0)
                return 0;

        if (job->result && strcmp(job->result, "canceled") == 0)
                return ctx_fail(job->ctx, -ECANCELED, TDP_ERROR_PREFIX "Canceled", "%s",
                                job->error_message && job->error_message[0] ? job->error_message
                                                                            : "The job was canceled");

        if (!job->error_name || job->error_name[0] == '\0')
                return ctx_fail(job->ctx, -EHOSTDOWN, NULL, "%s", job->error_message ?: "The job failed");

        r = error_name_to_errno(job->error_name);
        return ctx_fail(job->ctx, r < 0 ? r : -EIO, job->error_name, "%s",
                        job->error_message ?: "The job failed");
}

static int wait_for_end(struct tdp_job *job, tdp_job_progress_fn_t fn, void *userdata) {
        unsigned n_unknown = 0;
        bool canceling = false;
        int r;

        /* Short jobs end before the first look at their progress. */
        r = bus_process_until(job->ctx, &job->ended, POLL_USEC / 4, WAITING);
        if (r < 0)
                return r;

        while (!job->ended) {
                r = tdp_job_refresh(job);
                n_unknown = r == -ENOENT ? n_unknown + 1 : 0;

                /* Other failures are a slow daemon, or a gone one: the signals decide. */
                if (fn && r != -ENOENT && fn(job, userdata) < 0 && !canceling) {
                        canceling = true;
                        (void) tdp_job_cancel(job);
                }

                r = bus_process_until(job->ctx, &job->ended, POLL_USEC, WAITING);
                if (r < 0)
                        return r;

                /* Gone for long, and its end was told to a connection that is no more. */
                if (n_unknown >= UNKNOWN_MAX)
                        job_set_ended(job, "failed", "", "The job has ended, but how is not known");
        }

        return job_result(job);
}

TDP_EXPORT int tdp_job_wait(struct tdp_job *job, tdp_job_progress_fn_t fn, void *userdata) {
        struct tdp_ctx *ctx = job->ctx;
        uint64_t saved = ctx->timeout_usec;
        int r;

        if (!ctx->bus)
                return ctx_fail(ctx, -ENOTCONN, NULL, "The connection that started the job is closed");

        ctx->timeout_usec = REFRESH_USEC;
        r = wait_for_end(job, fn, userdata);
        ctx->timeout_usec = saved;
        return r;
}
