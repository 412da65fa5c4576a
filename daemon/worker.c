/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "worker.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

#include "log.h"

/* A signal that arrives just before a system call does not interrupt it, so it is sent again and again. */
#define CANCEL_REPEAT_USEC (UINT64_C(20) * 1000)
#define CANCEL_SIGNAL      SIGUSR1
/* Threads that have nothing left to do but to end: most have done so a moment later, some have no CPU. */
#define JOIN_FIRST_USEC UINT64_C(50)
#define JOIN_LAST_USEC  UINT64_C(2000)

typedef struct Lane {
        WorkerLane desc;
        _Atomic size_t next;
} Lane;

typedef struct Thread {
        Worker *worker;
        size_t lane;
        pthread_t id;
        bool joined;
} Thread;

struct Worker {
        sd_event_source *done_source;
        sd_event_source *cancel_source;
        sd_event_source *join_source;
        int event_fd;

        worker_step_t step;
        worker_done_t done;
        void *userdata;

        Lane *lanes;
        size_t n_lanes;
        Thread *threads;
        size_t n_threads;
        bool joined; /* all of them */
        uint64_t join_usec;

        atomic_bool stop;
        atomic_bool canceled;
        _Atomic uint64_t progress;
        _Atomic size_t n_running;

        pthread_mutex_t lock; /* of the following three; and held until all threads have been created */
        int error;
        size_t failed_lane, failed_piece;
};

static void on_cancel_signal(int sig) {
}

int worker_setup_signals(void) {
        struct sigaction sa = { .sa_handler = on_cancel_signal }; /* no SA_RESTART: EINTR is the purpose */
        sigset_t set;

        if (sigaction(CANCEL_SIGNAL, &sa, NULL) < 0)
                return -errno;
        sigemptyset(&set);
        sigaddset(&set, CANCEL_SIGNAL);
        return -pthread_sigmask(SIG_BLOCK, &set, NULL);
}

bool worker_is_canceled(Worker *w) {
        return atomic_load(&w->stop);
}

void worker_add_progress(Worker *w, uint64_t bytes) {
        atomic_fetch_add(&w->progress, bytes);
}

void worker_block_cancel_signal(void) {
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, CANCEL_SIGNAL);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
}

uint64_t worker_progress(Worker *w) {
        return atomic_load(&w->progress);
}

void worker_failed_at(Worker *w, size_t *ret_lane, size_t *ret_piece) {
        pthread_mutex_lock(&w->lock);
        *ret_lane = w->failed_lane;
        *ret_piece = w->failed_piece;
        pthread_mutex_unlock(&w->lock);
}

/* Of these CPUs, those "n" of them that come after the first "skip". To be freed. */
static cpu_set_t *make_cpu_set(const IdSet *cpus, unsigned skip, unsigned n) {
        cpu_set_t *set = CPU_ALLOC(IDSET_MAX);
        unsigned i = 0;

        if (!set)
                return NULL;
        CPU_ZERO_S(CPU_ALLOC_SIZE(IDSET_MAX), set);
        IDSET_FOREACH (cpu, cpus) {
                if (i >= skip && i - skip < n)
                        CPU_SET_S((size_t) cpu, CPU_ALLOC_SIZE(IDSET_MAX), set);
                i++;
        }
        return set;
}

static void bind_to_cpus(pthread_t id, const IdSet *cpus) {
        unsigned n = idset_count(cpus);
        cpu_set_t *set;
        int r;

        if (n == 0) /* a node without CPUs: any will do */
                return;

        set = make_cpu_set(cpus, 0, n);
        if (!set)
                return;
        /* It costs speed only: a cpuset may forbid those CPUs. */
        r = pthread_setaffinity_np(id, CPU_ALLOC_SIZE(IDSET_MAX), set);
        if (r > 0)
                log_warning_errno(r, "A thread cannot be bound to the CPUs of its node, going on anywhere");
        CPU_FREE(set);
}

static void become_idle(void) {
        struct sched_param param = {};

        if (sched_setscheduler(0, SCHED_IDLE, &param) < 0)
                log_warning_errno(errno, "A background thread cannot be given SCHED_IDLE, going on without");
}

/* Behind all else that runs it could take for ever to notice a cancel, or to end.  The unit's LimitNICE=
 * allows it. */
static void stop_being_idle(pthread_t id) {
        struct sched_param param = {};

        (void) pthread_setschedparam(id, SCHED_OTHER, &param);
}

static void *thread_main(void *arg) {
        Thread *t = arg;
        Worker *w = t->worker;
        Lane *lane = &w->lanes[t->lane];
        uint64_t one = 1;
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, CANCEL_SIGNAL);
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
        /* None may be over before it has been told where it may run. */
        pthread_mutex_lock(&w->lock);
        pthread_mutex_unlock(&w->lock);
        bind_to_cpus(pthread_self(), &lane->desc.cpus);
        if (lane->desc.idle)
                become_idle();

        while (!atomic_load(&w->stop)) {
                size_t piece = atomic_fetch_add(&lane->next, 1);
                int r;

                if (piece >= lane->desc.n_pieces)
                        break;
                r = w->step(w, t->lane, piece, w->userdata);
                if (r >= 0)
                        continue;

                pthread_mutex_lock(&w->lock);
                if (w->error == 0) {
                        w->error = r;
                        w->failed_lane = t->lane;
                        w->failed_piece = piece;
                }
                pthread_mutex_unlock(&w->lock);
                atomic_store(&w->stop, true);
        }

        /* Whoever joins it does not wait behind all else that runs. */
        if (lane->desc.idle)
                stop_being_idle(pthread_self());
        if (atomic_fetch_sub(&w->n_running, 1) == 1 && write(w->event_fd, &one, sizeof(one)) < 0)
                log_warning_errno(errno, "Waking the event loop failed");
        return NULL;
}

/*
 * If there is one thread for each CPU, each begins on one of its own: left alone, the scheduler of a busy
 * host may put several on one, and leave them there.  All that it does later is up to the scheduler: it must
 * not wait for that CPU, which may be somebody's who never lets go.
 */
static int create_thread(Thread *t, unsigned k) {
        const WorkerLane *lane = &t->worker->lanes[t->lane].desc;
        pthread_attr_t attr;
        cpu_set_t *set;
        int r;

        if (lane->n_threads < 2 || lane->n_threads != idset_count(&lane->cpus) ||
            !(set = make_cpu_set(&lane->cpus, k, 1)))
                return pthread_create(&t->id, NULL, thread_main, t);
        pthread_attr_init(&attr);
        r = pthread_attr_setaffinity_np(&attr, CPU_ALLOC_SIZE(IDSET_MAX), set);
        if (r == 0)
                r = pthread_create(&t->id, &attr, thread_main, t);
        pthread_attr_destroy(&attr);
        CPU_FREE(set);
        if (r > 0) /* not one of ours, in a cpuset */
                return pthread_create(&t->id, NULL, thread_main, t);
        bind_to_cpus(t->id, &lane->cpus);
        return 0;
}

static void worker_signal(Worker *w) {
        for (size_t i = 0; i < w->n_threads; i++)
                if (!w->threads[i].joined)
                        pthread_kill(w->threads[i].id, CANCEL_SIGNAL);
}

static void worker_join(Worker *w) {
        if (w->joined)
                return;
        w->joined = true;
        for (size_t i = 0; i < w->n_threads; i++)
                if (!w->threads[i].joined)
                        pthread_join(w->threads[i].id, NULL);
}

/* Without waiting for those that are about to end. */
static bool worker_try_join(Worker *w) {
        bool all = true;

        for (size_t i = 0; i < w->n_threads; i++) {
                Thread *t = &w->threads[i];

                t->joined = t->joined || pthread_tryjoin_np(t->id, NULL) != EBUSY;
                all = all && t->joined;
        }
        return all;
}

static int on_cancel_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        Worker *w = userdata;

        worker_signal(w);
        sd_event_source_set_time_relative(s, CANCEL_REPEAT_USEC);
        return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

void worker_cancel(Worker *w) {
        if (w->joined || atomic_exchange(&w->canceled, true))
                return;
        atomic_store(&w->stop, true);
        for (size_t i = 0; i < w->n_threads; i++)
                if (!w->threads[i].joined && w->lanes[w->threads[i].lane].desc.idle)
                        stop_being_idle(w->threads[i].id);
        worker_signal(w);
        if (w->done_source)
                (void) sd_event_add_time_relative(sd_event_source_get_event(w->done_source),
                                                  &w->cancel_source, CLOCK_MONOTONIC, CANCEL_REPEAT_USEC,
                                                  1000, on_cancel_timer, w);
}

static void end(Worker *w) {
        bool complete = true;
        int result;

        w->cancel_source = sd_event_source_disable_unref(w->cancel_source);
        for (size_t i = 0; i < w->n_lanes; i++)
                complete = complete && atomic_load(&w->lanes[i].next) >= w->lanes[i].desc.n_pieces;
        result = w->error;
        /* Steps that were interrupted for good end with EINTR.  A cancel that came after the last piece is
         * one all the same: whoever asked for it counts on it. */
        if (atomic_load(&w->canceled))
                result = -ECANCELED;
        else if (result == 0 && !complete)
                result = -EAGAIN;

        w->done(w, result, w->userdata);
}

static int on_join_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        Worker *w = userdata;

        if (!worker_try_join(w)) {
                w->join_usec = MIN_OF(2 * w->join_usec, JOIN_LAST_USEC);
                (void) sd_event_source_set_time_relative(s, w->join_usec);
                return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
        }
        worker_join(w);
        end(w);
        return 0;
}

static int on_done(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        Worker *w = userdata;

        (void) sd_event_source_set_enabled(s, SD_EVENT_OFF);
        w->join_usec = JOIN_FIRST_USEC;
        if (!worker_try_join(w) &&
            sd_event_add_time_relative(sd_event_source_get_event(s), &w->join_source, CLOCK_MONOTONIC,
                                       w->join_usec, 1, on_join_timer, w) >= 0)
                return 0;
        worker_join(w);
        end(w);
        return 0;
}

Worker *worker_free(Worker *w) {
        if (!w)
                return NULL;

        sd_event_source_disable_unref(w->done_source);
        sd_event_source_disable_unref(w->cancel_source);
        sd_event_source_disable_unref(w->join_source);
        atomic_store(&w->stop, true);
        while (!w->joined && atomic_load(&w->n_running) > 0) {
                worker_signal(w);
                usleep(1000);
        }
        worker_join(w);
        safe_close(w->event_fd);
        pthread_mutex_destroy(&w->lock);
        free(w->lanes);
        free(w->threads);
        free(w);
        return NULL;
}

int worker_start(sd_event *event, const WorkerLane *lanes, size_t n_lanes, worker_step_t step,
                 worker_done_t done, void *userdata, Worker **ret) {
        _cleanup_(worker_freep) Worker *w = NULL;
        size_t n_threads = 0;
        int r;

        w = calloc(1, sizeof(*w));
        if (!w)
                return -ENOMEM;
        w->event_fd = -1;
        w->step = step;
        w->done = done;
        w->userdata = userdata;
        pthread_mutex_init(&w->lock, NULL);

        for (size_t i = 0; i < n_lanes; i++)
                n_threads += MAX_OF(lanes[i].n_threads, 1U);
        w->lanes = calloc(n_lanes + 1, sizeof(Lane));
        w->threads = calloc(n_threads + 1, sizeof(Thread));
        if (!w->lanes || !w->threads)
                return -ENOMEM;
        w->n_lanes = n_lanes;
        for (size_t i = 0; i < n_lanes; i++)
                w->lanes[i].desc = lanes[i];

        w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (w->event_fd < 0)
                return -errno;
        r = sd_event_add_io(event, &w->done_source, w->event_fd, EPOLLIN, on_done, w);
        if (r < 0)
                return r;

        pthread_mutex_lock(&w->lock);
        /* Counted before they run, and one more for us, so that the last one out is known. */
        atomic_store(&w->n_running, n_threads + 1);
        for (size_t i = 0; i < n_lanes; i++)
                for (unsigned k = 0; k < MAX_OF(lanes[i].n_threads, 1U); k++) {
                        Thread *t = &w->threads[w->n_threads];

                        *t = (Thread){ .worker = w, .lane = i };
                        r = create_thread(t, k);
                        if (r > 0) {
                                pthread_mutex_unlock(&w->lock);
                                atomic_fetch_sub(&w->n_running, n_threads + 1 - w->n_threads);
                                return -r;
                        }
                        w->n_threads++;
                }
        pthread_mutex_unlock(&w->lock);
        if (atomic_fetch_sub(&w->n_running, 1) == 1) {
                uint64_t one = 1;

                if (write(w->event_fd, &one, sizeof(one)) < 0)
                        return -errno;
        }

        *ret = TAKE_PTR(w);
        return 0;
}
