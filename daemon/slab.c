/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "slab.h"

#include <errno.h>
#include <sys/stat.h>

#include "bus-error.h"

/* Between two of them it is decided anew if the host has the time. */
#define STEP_BYTES MIB(256)
/* Of a node's CPUs, one in so many works on slabs. */
#define THREADS_SHARE 4U

Slab *slab_free(Slab *s) {
        if (!s)
                return NULL;
        populate_free(s->populate);
        memory_free(s->memory);
        free(s);
        return NULL;
}

int slab_new(Manager *m, const WarmSpec *spec, Slab **ret, sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        _cleanup_(placement_done) Placement placement = {};
        _cleanup_(slab_freep) Slab *s = NULL;
        VMOptions o = { .page_size = spec->page_size, .has_nodes = spec->has_node };
        int r;

        if (spec->has_node)
                idset_add(&o.nodes, spec->node);
        r = manager_place(m, NULL, spec->bytes, &o, &nodes, &placement, error);
        if (r < 0)
                return r;
        if (placement.n_parts != 1)
                return sd_bus_error_setf(error, TDP_ERROR_NO_PAGES, "no single node has that much free");

        s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->manager = m;
        s->spec = *spec;
        r = memory_new("warm", &placement, false, &s->memory, error);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(s);
        return 0;
}

unsigned slab_threads(const Manager *m, const NodeTable *nodes, unsigned node) {
        const Node *n = node_table_find(nodes, node);
        unsigned cpus = n ? idset_count(&n->cpus) : 0;

        return MAX_OF(1U, MIN_OF(cpus / THREADS_SHARE, (unsigned) m->config.threads));
}

static uint64_t step_bytes(const Slab *s) {
        return MIN_OF(MAX_OF(STEP_BYTES, s->memory->page_size), s->memory->bytes - s->filled);
}

int slab_step(Slab *s, worker_done_t done, void *userdata, sd_bus_error *error) {
        _cleanup_(node_table_freep) NodeTable *nodes = NULL;
        PopulateRequest request = { .idle = true, .offset = s->filled, .bytes = step_bytes(s) };
        int r;

        r = manager_load_nodes(s->manager, &nodes, error);
        if (r < 0)
                return r;
        /* A step that was stopped begins anew: what it had done already costs nothing. */
        atomic_store(&s->memory->parts[0].started, s->filled);
        request.max_threads = slab_threads(s->manager, nodes, s->memory->parts[0].node);
        return populate_start(s->manager->event, s->memory, nodes, &request, done, userdata, &s->populate,
                              error);
}

int slab_step_done(Slab *s, int result, sd_bus_error *error) {
        int r = 0;

        if (result < 0)
                r = populate_set_error(s->populate, result, error);
        else
                s->filled += step_bytes(s);
        s->populate = populate_free(s->populate);
        return r;
}

void slab_cancel(Slab *s) {
        worker_cancel(populate_job.worker(s->populate));
}

void slab_step_canceled(Slab *s) {
        MemoryPart *part = &s->memory->parts[0];
        struct stat st;

        s->populate = populate_free(s->populate);
        /* What was handed to threads ran ahead of what is there. */
        if (fstat(part->fd, &st) == 0)
                atomic_store(&part->started, MIN_OF((uint64_t) st.st_blocks * 512, part->bytes));
}
