/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Long work on a VM, on a node's pool, or on the host.  A VM has one job at most. */

#include "account.h"
#include "manager.h"
#include "worker.h"

typedef enum JobType {
        JOB_RESERVE,
        JOB_ATTACH,
        JOB_BUILD,
        JOB_HEAL,
        JOB_SPLIT,
        JOB_COLLAPSE,
        JOB_POOL,
        JOB_CALIBRATE,
        _JOB_TYPE_MAX,
} JobType;

typedef enum JobPhase {
        JOB_PHASE_WAIT,
        JOB_PHASE_POPULATE,
        JOB_PHASE_BUILD,
        JOB_PHASE_HEAL,
        JOB_PHASE_SPLIT,
        JOB_PHASE_COLLAPSE,
        JOB_PHASE_RESIZE,
        JOB_PHASE_CALIBRATE,
        _JOB_PHASE_MAX,
} JobPhase;

/* The daemon's own work is charged to nobody. */
#define JOB_NO_UID ((uid_t) -1)

/* How a job is done. */
typedef struct JobOps {
        Worker *(*worker)(void *work);
        /* What goes beside a cancel of the worker; or NULL. */
        void (*cancel)(void *work);
        void (*free)(void *work);
} JobOps;

struct Job {
        Manager *manager;
        VM *vm;       /* or NULL */
        char *object; /* its object on the bus, or the node's, or the manager's */
        char *what;   /* the same for people: "VM a" */
        uid_t uid;
        uint32_t id;
        char *path;
        JobType type;
        JobPhase phase;
        bool canceling;

        /* NULL: the job has nothing to do and ends at once. */
        const JobOps *ops;
        void *work;

        uint64_t started_usec;
        uint64_t total; /* bytes */
        uint64_t done;  /* bytes, as last sent */
        sd_event_source *timer;
        sd_event_source *cancel_timer;

        /* The end.  Kept until what belongs to it is cleaned up, so that clients who hear of it find it
         * done. */
        bool failed;
        sd_bus_error error;

        Charge charge;
        Job *prev, *next;
};

const char *job_type_to_string(JobType t);
const char *job_phase_to_string(JobPhase p);
const char *job_state_to_string(const Job *j);

/* Charges uid, and becomes the VM's job.  Busy if it has one already. */
int job_new(VM *vm, uid_t uid, JobType type, Job **ret, sd_bus_error *error);
/* The same for what is no VM: a path of ours on the bus, and its name for people. */
int job_new_for(Manager *m, const char *object, const char *what, uid_t uid, JobType type, Job **ret,
                sd_bus_error *error);
Job *job_free(Job *j);
DEFINE_CLEANUP(Job, job_free);
Job *job_find(Manager *m, uint32_t id);

/* The job frees "work" at its end. */
void job_set_work(Job *j, const JobOps *ops, void *work);
/* To be called once the work has begun, to have progress sent. */
int job_watch(Job *j, JobPhase phase, uint64_t total);
Worker *job_worker(const Job *j);
uint64_t job_progress(const Job *j);
void job_cancel(Job *j);

/* Tells the end (done, or what has been set with job_fail) and frees. */
void job_fail(Job *j, const sd_bus_error *e);
void job_end(Job *j);
/* The same, once the method that made the job has replied. */
int job_end_soon(Job *j);
