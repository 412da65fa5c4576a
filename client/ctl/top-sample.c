/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The daemon's numbers for "top", and what two samples of them tell. */

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "cleanup.h"
#include "pool-list.h"
#include "top.h"
#include "verbs.h"

static uint64_t now_usec(void) {
        struct timespec ts;

        (void) clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}

void top_sample_done(struct top_sample *s) {
        for (size_t i = 0; i < s->n_vms; i++) {
                free(s->vms[i].name);
                free(s->vms[i].state);
        }
        free(s->version);
        free(s->pools);
        free(s->vms);
        free(s->jobs);
        *s = (struct top_sample){};
}

static int grow(void *array, size_t n, size_t size) {
        void **p = array, *grown;

        /* A step at a time: hosts have few of each. */
        if (n % 64 != 0)
                return 0;
        grown = reallocarray(*p, n + 64, size);
        if (!grown)
                return -ENOMEM;
        *p = grown;
        return 0;
}

static uint64_t multiply(uint64_t a, uint64_t b) {
        uint64_t product;

        return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static int read_pools(struct top_sample *s, const struct tdp_value *manager, const struct tdp_node *nodes) {
        const struct tdp_value *pool;
        const struct tdp_node *node;

        tdp_node_foreach (nodes, node)
                tdp_value_foreach (tdp_value_find(tdp_node_get_properties(node), "Pools"), pool) {
                        uint64_t page_size = tdp_value_get_uint(tdp_value_at(pool, 0));

                        if (grow(&s->pools, s->n_pools, sizeof(*s->pools)) < 0)
                                return -ENOMEM;
                        s->pools[s->n_pools++] = (struct top_pool){
                                .node = tdp_node_get_id(node),
                                .page_size = page_size,
                                .total = multiply(tdp_value_get_uint(tdp_value_at(pool, 1)), page_size),
                                .free = multiply(tdp_value_get_uint(tdp_value_at(pool, 2)), page_size),
                                .warm = pool_list_get(tdp_value_find(manager, "WarmBytes"),
                                                      tdp_node_get_id(node), page_size),
                                .leased = multiply(tdp_value_get_uint(tdp_value_at(pool, 5)), page_size),
                        };
                }
        return 0;
}

static int read_vms(struct top_sample *s, struct tdp_vm *vms) {
        struct tdp_vm *vm;
        int r;

        tdp_vm_foreach (vms, vm) {
                const struct tdp_value *p;
                struct top_vm *t;

                r = tdp_vm_refresh(vm);
                if (r == -ENOENT) /* gone since the list */
                        continue;
                if (r < 0)
                        return r;
                p = tdp_vm_get_properties(vm);
                if (grow(&s->vms, s->n_vms, sizeof(*s->vms)) < 0)
                        return -ENOMEM;
                t = &s->vms[s->n_vms++];
                *t = (struct top_vm){
                        .name = strdup(tdp_vm_get_name(vm)),
                        .state = strdup(tdp_vm_get_state(vm)),
                        .bytes = tdp_value_get_uint(tdp_value_find(p, "Bytes")),
                        .built = tdp_value_get_uint(tdp_value_find(p, "BuiltBytes")),
                        .mapped = tdp_value_get_uint(tdp_value_find(p, "MappedBytes")),
                        .pinned = tdp_value_get_uint(tdp_value_find(p, "PinnedBytes")),
                        .holes = tdp_value_get_uint(tdp_value_find(p, "Holes")),
                        .faults = tdp_value_get_uint(tdp_value_find(p, "FaultsSinceBuild")),
                        .fault_rate = TOP_RATE_UNKNOWN,
                };
                if (!t->name || !t->state)
                        return -ENOMEM;
        }
        return 0;
}

static void job_text(const struct tdp_job *job, char *buf, size_t size) {
        uint64_t done = tdp_job_get_done(job), total = tdp_job_get_total(job);

        if (total > 0)
                (void) snprintf(buf, size, "%s %.0f%%", tdp_job_get_phase(job) ?: tdp_job_get_type(job),
                                (double) (done < total ? done : total) * 100 / (double) total);
        else
                (void) snprintf(buf, size, "%s", tdp_job_get_type(job));
}

static int read_jobs(struct top_sample *s, struct tdp_job *jobs) {
        struct tdp_job *job;

        tdp_job_foreach (jobs, job) {
                const char *vm = tdp_job_get_vm_name(job);
                size_t i = 0;

                s->n_all_jobs++;
                (void) tdp_job_refresh(job); /* if it ends meanwhile, it is shown as it was */
                while (vm && i < s->n_vms && strcmp(s->vms[i].name, vm) != 0)
                        i++;
                if (vm && i < s->n_vms)
                        job_text(job, s->vms[i].job, sizeof(s->vms[i].job));
                if (vm)
                        continue;
                if (grow(&s->jobs, s->n_jobs, sizeof(*s->jobs)) < 0)
                        return -ENOMEM;
                s->jobs[s->n_jobs].id = tdp_job_get_id(job);
                job_text(job, s->jobs[s->n_jobs].text, sizeof(s->jobs[0].text));
                s->n_jobs++;
        }
        return 0;
}

int top_read(struct tdp_ctx *ctx, struct top_sample *ret) {
        _cleanup_(tdp_value_freep) struct tdp_value *manager = NULL;
        _cleanup_(tdp_node_freep) struct tdp_node *nodes = NULL;
        _cleanup_(tdp_job_freep) struct tdp_job *jobs = NULL;
        _cleanup_(tdp_vm_freep) struct tdp_vm *vms = NULL;
        _cleanup_(top_sample_done) struct top_sample s = { .usec = now_usec() };
        int r;

        r = tdp_get_manager(ctx, &manager);
        if (r >= 0)
                r = tdp_list_nodes(ctx, &nodes);
        if (r >= 0)
                r = tdp_list_vms(ctx, &vms);
        if (r >= 0)
                r = tdp_list_jobs(ctx, &jobs);
        if (r >= 0)
                r = read_pools(&s, manager, nodes);
        if (r >= 0)
                r = read_vms(&s, vms);
        if (r >= 0)
                r = read_jobs(&s, jobs);
        if (r < 0)
                return r;

        s.version = strdup(tdp_value_get_string(tdp_value_find(manager, "Version")) ?: "?");
        if (!s.version)
                return -ENOMEM;
        *ret = s;
        s = (struct top_sample){};
        return 0;
}

/* 0 for what is empty, so that a VM without a mapping is not the one that lacks most of it. */
static double missing(const struct top_vm *vm) {
        return vm->built > 0 ? 1 - (double) vm->mapped / (double) vm->built : 0;
}

static int compare(const void *a, const void *b, void *userdata) {
        const struct top_vm *x = a, *y = b;
        double p = 0, q = 0;

        switch (*(const enum top_sort *) userdata) {
        case TOP_SORT_MEMORY:
                p = (double) x->bytes, q = (double) y->bytes;
                break;
        case TOP_SORT_PINNED:
                p = (double) x->pinned, q = (double) y->pinned;
                break;
        case TOP_SORT_MAPPED:
                p = missing(x), q = missing(y);
                break;
        case TOP_SORT_HOLES:
                p = (double) x->holes, q = (double) y->holes;
                break;
        case TOP_SORT_FAULTS:
                p = x->fault_rate, q = y->fault_rate;
                break;
        case TOP_SORT_JOB:
                p = x->job[0] != '\0', q = y->job[0] != '\0';
                break;
        case TOP_SORT_NAME:
        case _TOP_SORT_MAX:
                break;
        }
        return p > q ? -1 : p < q ? 1 : strcmp(x->name, y->name);
}

void top_sort(struct top_sample *s, enum top_sort sort, bool reverse) {
        if (s->n_vms == 0)
                return;
        qsort_r(s->vms, s->n_vms, sizeof(*s->vms), compare, &sort);
        for (size_t i = 0; reverse && i < s->n_vms / 2; i++) {
                struct top_vm t = s->vms[i];

                s->vms[i] = s->vms[s->n_vms - 1 - i];
                s->vms[s->n_vms - 1 - i] = t;
        }
}

void top_rates(struct top_sample *before, struct top_sample *now) {
        double seconds = (double) (now->usec - before->usec) / 1e6;
        size_t k = 0;

        top_sort(before, TOP_SORT_NAME, false);
        top_sort(now, TOP_SORT_NAME, false);
        for (size_t i = 0; i < now->n_vms && seconds > 0; i++) {
                struct top_vm *vm = &now->vms[i];

                while (k < before->n_vms && strcmp(before->vms[k].name, vm->name) < 0)
                        k++;
                /* A new build starts the count again. */
                if (k < before->n_vms && strcmp(before->vms[k].name, vm->name) == 0 &&
                    before->vms[k].faults <= vm->faults)
                        vm->fault_rate = (double) (vm->faults - before->vms[k].faults) / seconds;
        }
}
