/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "build.h"

#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"
#include "clock.h"
#include "format.h"
#include "process.h"

/* One call for each: long enough to be cheap, short enough for progress that moves and threads that share.
 */
#define PIECE_BYTES MIB(64)

/* EAGAIN means that a slot or a mapping changed meanwhile.  A VMM in its firmware phase does that for a
 * while, one that never stops must not keep us: 2 s at most without any progress. */
#define AGAIN_TRIES 1000U
#define AGAIN_USEC  2000U

/* Where the owner has no memory at all, heal goes on behind it. */
#define SKIP_BYTES MIB(2)

/* Nobody waits for what is done in the background: it pauses as long as it works, so that a guest's vCPUs
 * find KVM's lock free half of the time at least. */
#define PAUSE_MAX_USEC UINT64_C(20000)

struct Build {
        Worker *worker;
        int handle;
        HandleOp op;
        uint32_t max_level;
        uint64_t total;
        Span *pieces;
        size_t n_pieces;
        SpanSet covers;
        worker_done_t done;
        void *userdata;
};

static const struct {
        const char *verb, *noun;
        bool polite;
} ops[_HANDLE_OP_MAX] = {
        [HANDLE_BUILD] = { "build", "build", false },         [HANDLE_HEAL] = { "heal", "healing", true },
        [HANDLE_RELEASE] = { "release", "release", true },    [HANDLE_SPLIT] = { "split", "split", true },
        [HANDLE_COLLAPSE] = { "collapse", "collapse", true },
};

Build *build_free(Build *b) {
        if (!b)
                return NULL;
        worker_free(b->worker);
        spanset_done(&b->covers);
        free(b->pieces);
        free(b);
        return NULL;
}

static Worker *job_get_worker(void *work) {
        return ((Build *) work)->worker;
}

static void job_free_work(void *work) {
        build_free(work);
}

const JobOps build_job = { .worker = job_get_worker, .free = job_free_work };

uint64_t build_total(const Build *b) {
        return b->total;
}

HandleOp build_op(const Build *b) {
        return b->op;
}

const SpanSet *build_covers(const Build *b) {
        return &b->covers;
}

static void pass_over(Worker *w, Span *p, uint64_t bytes) {
        bytes = MIN_OF(bytes, p->size);
        p->gpa += bytes;
        p->size -= bytes;
        worker_add_progress(w, bytes);
}

int build_piece(Worker *w, int handle, HandleOp op, Span *p, uint32_t max_level) {
        unsigned again = 0;

        while (p->size > 0) {
                uint64_t before = p->size, start = clock_usec();
                int r;

                if (worker_is_canceled(w))
                        return -EINTR;
                r = handle_range(handle, op, &p->gpa, &p->size, max_level);
                worker_add_progress(w, before - p->size);
                if (p->size < before)
                        again = 0;

                switch (r) {
                case 0:
                        if (ops[op].polite) /* a cancel ends it */
                                usleep((useconds_t) MIN_OF(clock_usec() - start, PAUSE_MAX_USEC));
                        continue;
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
                        pass_over(w, p, p->size);
                        return 0;
                case -EFAULT:
                        if (op != HANDLE_HEAL)
                                return r;
                        pass_over(w, p, SKIP_BYTES - p->gpa % SKIP_BYTES);
                        continue;
                default:
                        return r;
                }
        }
        return 0;
}

/* A piece is its thread's alone; it advances, so that an error can tell where it was. */
static int build_step(Worker *w, size_t lane, size_t index, void *userdata) {
        Build *b = userdata;

        return build_piece(w, b->handle, b->op, &b->pieces[index], b->max_level);
}

static void build_done(Worker *w, int result, void *userdata) {
        Build *b = userdata;

        for (size_t i = 0; i < b->n_pieces; i++)
                if (b->pieces[i].size > 0)
                        (void) spanset_remove(&b->covers, b->pieces[i]);
        b->done(w, result, b->userdata);
}

/* Cuts at multiples of the piece's size, so that no large leaf is cut into two. */
static int cut_span(Build *b, Span s, uint64_t page_size) {
        uint64_t unit = MAX_OF(PIECE_BYTES, page_size), end = span_end(s);
        int r = 0;

        for (uint64_t gpa = s.gpa; gpa < end && r >= 0;) {
                uint64_t next = MIN_OF(end, gpa - gpa % unit + unit);

                r = spans_append(&b->pieces, &b->n_pieces, span_between(gpa, next));
                gpa = next;
        }
        b->total += s.size;
        return r < 0 ? r : spanset_add(&b->covers, s);
}

static int cut(Build *b, const struct kvm_gtdp_slot *slots, size_t n_slots, const SpanSet *within) {
        int r = 0;

        for (size_t i = 0; i < n_slots && r >= 0; i++) {
                Span slot = { .gpa = slots[i].gpa, .size = slots[i].size };

                if (slots[i].flags & KVM_GTDP_SLOT_READONLY)
                        continue;
                if (!within)
                        r = cut_span(b, slot, slots[i].page_size);
                for (size_t k = 0; within && k < within->n && r >= 0; k++)
                        if (span_overlaps(within->spans[k], slot))
                                r = cut_span(b, span_intersect(within->spans[k], slot), slots[i].page_size);
        }
        return r;
}

int build_start(sd_event *event, int handle, const BuildRequest *request, worker_done_t done, void *userdata,
                Build **ret) {
        _cleanup_(build_freep) Build *b = NULL;
        _cleanup_free_ struct kvm_gtdp_slot *slots = NULL;
        WorkerLane lane = { .cpus = request->cpus, .n_threads = 1 };
        size_t n_slots;
        int r;

        b = calloc(1, sizeof(*b));
        if (!b)
                return -ENOMEM;
        b->handle = handle;
        b->op = request->op;
        b->max_level = request->max_level;
        b->done = done;
        b->userdata = userdata;

        r = handle_get_slots(handle, &slots, &n_slots);
        if (r < 0)
                return r;
        r = cut(b, slots, n_slots, request->within);
        if (r < 0)
                return r;

        lane.n_pieces = b->n_pieces;
        if (!ops[b->op].polite)
                lane.n_threads =
                                (unsigned) MIN_OF(MAX_OF(idset_count(&lane.cpus), 1U), request->max_threads);
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
        uint64_t limit;
        char text[200];

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
                why = "no memory for page tables";
                if (process_get_memlock(getpid(), &limit) >= 0 && limit < b->total) {
                        snprintf(text, sizeof(text),
                                 "%s are needed, and tdpd may lock %s (RLIMIT_MEMLOCK): its unit needs "
                                 "LimitMEMLOCK=infinity",
                                 format_bytes(b->total), format_bytes(limit));
                        why = text;
                }
                break;
        case -ERANGE:
                name = TDP_ERROR_BUSY;
                why = "it is beyond what the VM's page tables can map before its vCPUs are set up; build again when "
                      "the VM runs";
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
                return sd_bus_error_setf(error, name, "the %s stopped: %s", ops[b->op].noun, why);
        return sd_bus_error_setf(error, name,
                                 "asked to %s %" PRIu64 " bytes, stopped after %" PRIu64
                                 " at guest-physical address 0x%" PRIx64 ": %s",
                                 ops[b->op].verb, b->total, worker_progress(b->worker), b->pieces[piece].gpa,
                                 why);
}
