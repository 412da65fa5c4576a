/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "build.h"

#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"
#include "handle.h"

/* One call for each: long enough to be cheap, short enough for progress that moves and threads that share.
 */
#define PIECE_BYTES MIB(64)

/* EAGAIN means that a slot or a mapping changed meanwhile.  A VMM in its firmware phase does that for a
 * while, one that never stops must not keep us: 2 s at most without any progress. */
#define AGAIN_TRIES 1000U
#define AGAIN_USEC  2000U

typedef struct Piece {
        uint64_t gpa;
        uint64_t size;
} Piece;

struct Build {
        Worker *worker;
        int handle;
        uint32_t max_level;
        uint64_t total;
        Piece *pieces;
        size_t n_pieces;
        worker_done_t done;
        void *userdata;
};

Build *build_free(Build *b) {
        if (!b)
                return NULL;
        worker_free(b->worker);
        free(b->pieces);
        free(b);
        return NULL;
}

Worker *build_worker(Build *b) {
        return b->worker;
}

uint64_t build_total(const Build *b) {
        return b->total;
}

static int build_step(Worker *w, size_t lane, size_t index, void *userdata) {
        Build *b = userdata;
        Piece *p = &b->pieces[index]; /* ours alone; advances, so that an error can tell where it was */
        unsigned again = 0;

        while (p->size > 0) {
                uint64_t before = p->size;
                int r;

                if (worker_is_canceled(w))
                        return -EINTR;
                r = handle_build(b->handle, &p->gpa, &p->size, b->max_level);
                worker_add_progress(w, before - p->size);
                if (p->size < before)
                        again = 0;

                switch (r) {
                case 0:
                case -EINTR:
                        continue;
                case -EAGAIN:
                        if (++again > AGAIN_TRIES)
                                return r;
                        usleep(AGAIN_USEC);
                        continue;
                case -ENOENT:
                        /* The slot has gone since we listed it.  If it comes back, the kernel builds it when
                         * it is committed. */
                        worker_add_progress(w, p->size);
                        return 0;
                default:
                        return r;
                }
        }
        return 0;
}

static void build_done(Worker *w, int result, void *userdata) {
        Build *b = userdata;

        b->done(w, result, b->userdata);
}

/* Cuts at multiples of the piece's size, so that no large leaf is cut into two. */
static int cut(Build *b, const struct kvm_gtdp_slot *slots, size_t n_slots) {
        size_t n = 0;

        for (size_t pass = 0; pass < 2; pass++) {
                n = 0;
                for (size_t i = 0; i < n_slots; i++) {
                        uint64_t unit = MAX_OF(PIECE_BYTES, slots[i].page_size), gpa = slots[i].gpa,
                                 end = gpa + slots[i].size;

                        if (slots[i].flags & KVM_GTDP_SLOT_READONLY)
                                continue;
                        while (gpa < end) {
                                uint64_t next = MIN_OF(end, gpa - gpa % unit + unit);

                                if (pass == 1)
                                        b->pieces[n] = (Piece){ .gpa = gpa, .size = next - gpa };
                                n++;
                                gpa = next;
                        }
                        if (pass == 1)
                                b->total += slots[i].size;
                }
                if (pass == 0) {
                        b->pieces = calloc(n + 1, sizeof(Piece));
                        if (!b->pieces)
                                return -ENOMEM;
                }
        }
        b->n_pieces = n;
        return 0;
}

int build_start(sd_event *event, int handle, uint32_t max_level, const IdSet *cpus, unsigned max_threads,
                worker_done_t done, void *userdata, Build **ret) {
        _cleanup_(build_freep) Build *b = NULL;
        _cleanup_free_ struct kvm_gtdp_slot *slots = NULL;
        WorkerLane lane = { .cpus = *cpus };
        size_t n_slots;
        int r;

        b = calloc(1, sizeof(*b));
        if (!b)
                return -ENOMEM;
        b->handle = handle;
        b->max_level = max_level;
        b->done = done;
        b->userdata = userdata;

        r = handle_get_slots(handle, &slots, &n_slots);
        if (r < 0)
                return r;
        r = cut(b, slots, n_slots);
        if (r < 0)
                return r;

        lane.n_pieces = b->n_pieces;
        lane.n_threads = (unsigned) MIN_OF(MAX_OF(idset_count(cpus), 1U), max_threads);
        lane.n_threads = (unsigned) MIN_OF(MAX_OF(b->n_pieces, 1U), lane.n_threads);
        r = worker_start(event, &lane, 1, build_step, build_done, b, &b->worker);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(b);
        return 0;
}

int build_set_error(Build *b, int result, sd_bus_error *error) {
        const char *name = TDP_ERROR_FAILED, *why;
        size_t lane, piece;

        worker_failed_at(b->worker, &lane, &piece);

        switch (result) {
        case -EAGAIN:
                name = TDP_ERROR_BUSY;
                why = "the VMM keeps changing its memory slots; try again when it is up";
                break;
        case -EFAULT:
                why = "the VMM has no accessible memory there";
                break;
        case -EOPNOTSUPP:
                name = TDP_ERROR_UNSUPPORTED;
                why = "KVM runs without EPT or NPT for this VM, or its memory cannot be pinned for long (files on "
                      "disk): use memfd, hugetlbfs or anonymous memory";
                break;
        case -ENOMEM:
                why = "no memory for page tables, or tdpd may not lock that much: its unit needs LimitMEMLOCK=infinity";
                break;
        case -EIO:
                why = "KVM has given this VM up: the kernel's log says why";
                break;
        case -ESRCH:
                name = TDP_ERROR_NO_SUCH_PROCESS;
                why = "the VM or its VMM has gone";
                break;
        default:
                why = strerror(-result);
                break;
        }

        if (piece >= b->n_pieces)
                return sd_bus_error_setf(error, name, "the build stopped: %s", why);
        return sd_bus_error_setf(error, name,
                                 "asked to build %" PRIu64 " bytes, stopped after %" PRIu64
                                 " at guest-physical address 0x%" PRIx64 ": %s",
                                 b->total, worker_progress(b->worker), b->pieces[piece].gpa, why);
}
