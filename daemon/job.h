/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Long work on one VM.  A VM has one job at most. */

#include "build.h"
#include "manager.h"
#include "populate.h"

typedef enum JobType {
        JOB_RESERVE,
        JOB_ATTACH,
        JOB_BUILD,
        JOB_HEAL,
        JOB_SPLIT,
        JOB_COLLAPSE,
        _JOB_TYPE_MAX,
} JobType;

typedef enum JobPhase {
        JOB_PHASE_POPULATE,
        JOB_PHASE_BUILD,
        JOB_PHASE_HEAL,
        JOB_PHASE_SPLIT,
        JOB_PHASE_COLLAPSE,
        _JOB_PHASE_MAX,
} JobPhase;

struct Job {
        Manager *manager;
        VM *vm;
        uint32_t id;
        char *path;
        JobType type;
        JobPhase phase;
        bool canceling;

        /* One of them, or none: then the job has nothing to do and ends at once. */
        Populate *populate;
        Build *build;

        uint64_t started_usec;
        uint64_t total; /* bytes */
        uint64_t done;  /* bytes, as last sent */
        sd_event_source *timer;

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
Job *job_free(Job *j);
DEFINE_CLEANUP(Job, job_free);
Job *job_find(Manager *m, uint32_t id);

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
