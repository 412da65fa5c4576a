/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool-resize.h"

#include <errno.h>

#include "clock.h"

/* One write takes a lock of the kernel and cannot be canceled, so it is for about so long. */
#define STEP_MIN_USEC  UINT64_C(30000)
#define STEP_MAX_USEC  UINT64_C(150000)
#define STEP_FIRST     MIB(256)
#define FOREIGN_MAX    16U
#define SHORT_MAX      64U
#define SHORT_MAX_USEC UINT64_C(60000000)

/* What is done about a write that fell short, one after the other as long as it brings nothing. */
static const struct {
        enum { AGAIN, COMPACT, DROP_CACHES } action;
        uint64_t pause_usec;
} remedies[] = {
        { AGAIN, 10000 }, { COMPACT, 50000 }, { DROP_CACHES, 0 }, { COMPACT, 200000 }, { AGAIN, 500000 },
};

static const char *const mode_table[_POOL_MODE_MAX] = {
        [POOL_SET] = "set",
        [POOL_GROW] = "grow",
        [POOL_SHRINK] = "shrink",
};

const char *pool_mode_to_string(PoolMode m) {
        return m >= 0 && m < _POOL_MODE_MAX ? mode_table[m] : NULL;
}

PoolMode pool_mode_from_string(const char *s) {
        for (int m = 0; m < _POOL_MODE_MAX; m++)
                if (streq(s, mode_table[m]))
                        return m;
        return _POOL_MODE_INVALID;
}

typedef struct Resize {
        const PoolIo *io;
        const PoolRequest *request;
        PoolResult result;

        uint64_t page_size;
        uint64_t now; /* what is there as far as we know */
        uint64_t surplus;
        uint64_t chunk; /* pages of one write */
        unsigned n_foreign, n_short, remedy;
        uint64_t short_since;
} Resize;

/* What would be there without us. */
static uint64_t base_of(const Resize *s) {
        return s->result.before + (uint64_t) s->result.foreign;
}

static int plan(Resize *s) {
        const PoolRequest *q = s->request;
        /* Others' changes are kept, unless a number was asked for. */
        uint64_t base = base_of(s);

        switch (q->mode) {
        case POOL_GROW:
                if (__builtin_add_overflow(base, q->pages, &s->result.goal))
                        return -ERANGE;
                break;
        case POOL_SHRINK:
                if (__builtin_sub_overflow(base, q->pages, &s->result.goal))
                        return -ERANGE;
                break;
        default:
                s->result.goal = q->pages;
                break;
        }
        return s->result.goal > INT64_MAX / s->page_size ? -ERANGE : 0;
}

/* The least number that takes nothing from anybody. */
static uint64_t floor_of(Resize *s, const Pool *p) {
        uint64_t used = p->total - MIN_OF(p->total, p->free);

        s->result.in_use = used;
        s->result.reserved = MIN_OF(p->reserved + s->request->keep, p->free);
        /* With surplus pages the kernel frees no more than that either. */
        return used + s->result.reserved;
}

static int look(Resize *s, Pool *p) {
        int r = s->io->read(s->io->userdata, p);

        if (r >= 0 && p->page_size != 0)
                s->page_size = p->page_size;
        return r;
}

/* Somebody else writes the same file. */
static int take_foreign(Resize *s, uint64_t there) {
        if (++s->n_foreign > FOREIGN_MAX)
                return -EAGAIN;
        s->result.foreign += (int64_t) (there - s->now);
        /* Nobody can take more than was there before; the rest was ours, added since. */
        s->result.foreign = MAX_OF(s->result.foreign, -(int64_t) s->result.before);
        s->now = there;
        return plan(s);
}

static int after_short(Resize *s, bool progress) {
        uint64_t now = clock_usec();
        int r = 0;

        if (s->short_since == 0)
                s->short_since = now;
        if (++s->n_short > SHORT_MAX || now - s->short_since > SHORT_MAX_USEC)
                return -ENOSPC;
        if (progress)
                s->remedy = 0;
        if (s->remedy >= ELEMENTSOF(remedies))
                return -ENOSPC;

        switch (remedies[s->remedy].action) {
        case COMPACT:
                /* Without it in the kernel the rest is tried all the same. */
                r = s->io->compact(s->io->userdata);
                s->result.compacted = s->result.compacted || r >= 0;
                break;
        case DROP_CACHES:
                if (s->request->drop_caches) {
                        r = s->io->drop_caches(s->io->userdata);
                        s->result.dropped_caches = s->result.dropped_caches || r >= 0;
                }
                break;
        default:
                break;
        }
        return s->io->wait(s->io->userdata, remedies[s->remedy++].pause_usec) ? 0 : -ECANCELED;
}

static void adapt(Resize *s, uint64_t usec) {
        if (usec < STEP_MIN_USEC && s->chunk < INT64_MAX / s->page_size / 2)
                s->chunk *= 2;
        else if (usec > STEP_MAX_USEC)
                s->chunk = MAX_OF(s->chunk / 2, UINT64_C(1));
}

static int grow(Resize *s) {
        uint64_t next = s->now + MIN_OF(s->chunk, s->result.goal - s->now), start = clock_usec(), there,
                 gain;
        Pool p;
        int r;

        r = s->io->write(s->io->userdata, next);
        if (r < 0 || (r = look(s, &p)) < 0)
                return r;
        there = pool_persistent(&p);
        if (there < s->now || there > next)
                return take_foreign(s, there);

        gain = there - s->now;
        s->now = there;
        if (gain > 0)
                s->io->progress(s->io->userdata, gain);
        if (there == next) {
                adapt(s, clock_usec() - start);
                s->remedy = 0;
                return 0;
        }
        /* A signal of a cancel makes it short as well. */
        if (!s->io->wait(s->io->userdata, 0))
                return -ECANCELED;
        return after_short(s, gain > 0);
}

static int shrink(Resize *s, uint64_t limit) {
        uint64_t next = s->now - MIN_OF(s->chunk, s->now - limit), start = clock_usec(), there;
        Pool p;
        int r;

        r = s->io->write(s->io->userdata, next);
        if (r < 0 || (r = look(s, &p)) < 0)
                return r;
        there = pool_persistent(&p);
        if (p.surplus > s->surplus) {
                /* Pages were taken since we looked, and the kernel has made them surplus: that would leave
                 * their users with less than they had.  Back, and look again. */
                next = there + (p.surplus - s->surplus);
                r = s->io->write(s->io->userdata, next);
                if (r < 0 || (r = look(s, &p)) < 0)
                        return r;
                there = pool_persistent(&p);
                if (++s->n_short > SHORT_MAX)
                        return -EBUSY;
        }
        if (there > s->now || there < next)
                return take_foreign(s, there);
        s->io->progress(s->io->userdata, s->now - there);
        s->now = there;
        adapt(s, clock_usec() - start);
        return 0;
}

static int step(Resize *s, const Pool *p) {
        uint64_t least;

        if (s->now < s->result.goal)
                return grow(s);
        least = floor_of(s, p);
        if (s->now <= least || (least > s->result.goal && !s->request->allow_partial))
                return -EBUSY;
        return shrink(s, MAX_OF(least, s->result.goal));
}

static int run(Resize *s) {
        Pool p;
        int r;

        for (;;) {
                r = look(s, &p);
                if (r < 0)
                        return r;
                if (pool_persistent(&p) != s->now) {
                        r = take_foreign(s, pool_persistent(&p));
                        if (r < 0)
                                return r;
                }
                if (s->now == s->result.goal)
                        return 0;
                if (!s->io->wait(s->io->userdata, 0))
                        return -ECANCELED;
                s->surplus = p.surplus;
                r = step(s, &p);
                if (r < 0)
                        return r;
        }
}

/* Back to what was there, and what others have added or taken. */
static void restore(Resize *s) {
        uint64_t target = base_of(s);
        Pool p;

        s->io->turn_back(s->io->userdata);
        for (size_t i = 0; i < ELEMENTSOF(remedies); i++) {
                if (s->io->write(s->io->userdata, target) < 0 || look(s, &p) < 0)
                        break;
                s->now = pool_persistent(&p);
                s->result.restored = s->now == target;
                if (s->result.restored)
                        return;
                if (s->now < target && remedies[i].action == COMPACT)
                        (void) s->io->compact(s->io->userdata);
                (void) s->io->wait(s->io->userdata, remedies[i].pause_usec);
        }
}

int pool_resize(const PoolIo *io, const PoolRequest *request, PoolResult *ret) {
        Resize s = { .io = io, .request = request };
        Pool p;
        int r;

        *ret = (PoolResult){};
        r = look(&s, &p);
        if (r < 0)
                return r;
        s.result.looked = true;
        s.now = s.result.before = s.result.reached = s.result.after = pool_persistent(&p);
        s.chunk = MAX_OF(STEP_FIRST / s.page_size, UINT64_C(1));

        r = plan(&s);
        if (r >= 0)
                r = run(&s);
        s.result.reached = s.now;
        if (r < 0 && !request->allow_partial && s.now != base_of(&s))
                restore(&s);
        else
                s.result.restored = r < 0 && s.now == base_of(&s);
        s.result.after = s.now;
        *ret = s.result;
        return r;
}
