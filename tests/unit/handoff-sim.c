/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdarg.h>
#include <stdio.h>

#include "handoff-sim.h"

#define CHANNEL_MAX 64
#define ATTIC_MAX   64
#define LOG_MAX     400
#define SETTLE_MAX  400
#define N_HOSTS     2
#define N_ROLES     2

typedef struct Packet {
        HandoffSend what;
        HandoffRole writer;
        int id, grant; /* 0: none */
} Packet;

/* One side's record of one handoff, and below what its daemon has in memory only. */
typedef struct Record {
        HandoffState state;
        int grant, generation;

        HandoffWork work;
        HandoffEvent ended; /* of work, not told yet */
        bool has_ended;
} Record;

typedef struct Host {
        bool up;
        int seen; /* highest generation, recorded */

        /* The VM here: memory that is allocated, and what is in it. */
        bool exists, paused, left;
        int generation, made_by, content;
} Host;

typedef struct Sim {
        uint64_t random;
        Host hosts[N_HOSTS];
        Record records[N_ROLES][SIM_IDS + 1]; /* ids count from 1 */
        int source[SIM_IDS + 1];              /* host, of each id */
        bool post_copy[SIM_IDS + 1];
        int n_ids, n_grants, latest;
        bool settling, failed;

        Packet channel[CHANNEL_MAX], attic[ATTIC_MAX];
        size_t n_channel, n_attic;

        SimStats *stats;
        char log[LOG_MAX][96];
        size_t n_log;
} Sim;

static uint64_t random_below(Sim *sim, uint64_t n) {
        uint64_t z = sim->random += 0x9e3779b97f4a7c15;

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return (z ^ (z >> 31)) % n;
}

static bool chance(Sim *sim, unsigned percent) {
        return random_below(sim, 100) < percent;
}

static void note(Sim *sim, const char *format, ...) _printf_(2, 3);
static void note(Sim *sim, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        vsnprintf(sim->log[sim->n_log++ % LOG_MAX], sizeof(sim->log[0]), format, ap);
        va_end(ap);
}

static void fail(Sim *sim, const char *why) {
        if (!sim->failed)
                note(sim, "FAILED: %s", why);
        sim->failed = true;
}

static Record *record(Sim *sim, HandoffRole side, int id) {
        return &sim->records[side - 1][id];
}

static Host *host_of(Sim *sim, HandoffRole side, int id) {
        return sim->hosts + (side == HANDOFF_SOURCE ? sim->source[id] : 1 - sim->source[id]);
}

/* The VM is there, and no handoff of it says that it is another's. */
static bool owns(Sim *sim, int h) {
        Host *host = sim->hosts + h;

        if (!host->exists)
                return false;
        for (int id = 1; id <= sim->n_ids; id++) {
                Record *s = record(sim, HANDOFF_SOURCE, id), *d = record(sim, HANDOFF_DESTINATION, id);

                if (sim->source[id] == h && s->generation == host->generation &&
                    !handoff_state_owns(s->state))
                        return false;
                if (sim->source[id] != h && host->made_by == id && d->state != HANDOFF_D_NONE &&
                    !handoff_state_owns(d->state))
                        return false;
        }
        return true;
}

static void check(Sim *sim) {
        if (owns(sim, 0) && owns(sim, 1))
                fail(sim, "both own the VM");
}

static void crash(Sim *sim, Host *host) {
        note(sim, "host %zu: daemon dies", (size_t) (host - sim->hosts));
        host->up = false;
        sim->stats->crashes++;
        for (int id = 1; id <= sim->n_ids; id++)
                for (HandoffRole side = HANDOFF_SOURCE; side <= HANDOFF_DESTINATION; side++)
                        if (host_of(sim, side, id) == host) {
                                record(sim, side, id)->work = HANDOFF_WORK_NONE;
                                record(sim, side, id)->has_ended = false;
                        }
}

static bool maybe_crash(Sim *sim, Host *host) {
        if (sim->settling || !chance(sim, 1))
                return false;
        crash(sim, host);
        return true;
}

static void post(Sim *sim, Packet p) {
        if (sim->n_attic < ATTIC_MAX)
                sim->attic[sim->n_attic++] = p;
        if (!sim->settling && chance(sim, 25)) {
                note(sim, "  lost: %s of %i", handoff_send_to_string(p.what), p.id);
                sim->stats->lost++;
                return;
        }
        /* What does not fit is lost as well. */
        if (sim->n_channel < CHANNEL_MAX)
                sim->channel[sim->n_channel++] = p;
}

/* What a daemon looks at before it makes a record for an offer. */
static bool may_prepare(Sim *sim, HandoffRole side, int id) {
        Host *host = host_of(sim, side, id);

        switch (handoff_refuse_offer((uint64_t) record(sim, HANDOFF_SOURCE, id)->generation,
                                     (uint64_t) host->seen, host->exists)) {
        case HANDOFF_REASON_STALE:
                sim->stats->stale++;
                return false;
        case HANDOFF_REASON_NAME_TAKEN:
                return false;
        default:
                break;
        }
        /* One at a time. */
        for (int other = 1; other <= sim->n_ids; other++)
                if (other != id && sim->source[other] == sim->source[id] &&
                    !handoff_state_is_final(record(sim, side, other)->state))
                        return false;
        return true;
}

/* What is written down together with the new state. */
static void write_down(Sim *sim, HandoffRole side, int id, HandoffState next, const Packet *p) {
        Record *r = record(sim, side, id);
        Host *host = host_of(sim, side, id);

        r->state = next;
        switch (next) {
        case HANDOFF_S_OFFERED:
                r->generation = host->generation;
                break;
        case HANDOFF_S_GRANTED:
                r->grant = p->grant;
                break;
        case HANDOFF_S_UNDOING:
                sim->stats->kept++;
                break;
        case HANDOFF_S_RELEASING:
                host->seen = r->generation + 1;
                break;
        case HANDOFF_D_PREPARING:
                r->grant = ++sim->n_grants;
                /* (the offer says so) */
                r->generation = record(sim, HANDOFF_SOURCE, id)->generation;
                if (r->generation < host->seen)
                        fail(sim, "prepares for a VM of the past");
                break;
        case HANDOFF_D_TAKEN:
                sim->stats->moved_by_post_copy++;
                host->generation = host->seen = r->generation + 1;
                break;
        case HANDOFF_D_OWNER:
                sim->stats->moved++;
                host->generation = host->seen = r->generation + 1;
                break;
        case HANDOFF_D_NONE:
                r->grant = 0;
                break;
        default:
                break;
        }
}

static void apply(Sim *sim, HandoffRole side, int id, HandoffEvent e, const Packet *p) {
        Record *r = record(sim, side, id);
        Host *host = host_of(sim, side, id);
        HandoffStep step = handoff_next(r->state, e);
        HandoffState before = r->state;

        if (!host->up || sim->failed || maybe_crash(sim, host))
                return;
        note(sim, "%i %s, host %zu: %s + %s -> %s, %s, send %s%s", id, handoff_role_to_string(side),
             (size_t) (host - sim->hosts), handoff_state_to_string(before), handoff_event_to_string(e),
             handoff_state_to_string(step.next), handoff_work_to_string(step.work),
             handoff_send_to_string(step.send), step.refusal ? ", refused" : "");
        sim->stats->cells[before][e]++;
        /* Both sides are honest here and do what they are told. */
        if (step.refusal == HANDOFF_PEER || step.refusal == HANDOFF_UNEXPECTED ||
            step.refusal == HANDOFF_WRONG_SIDE || step.refusal >= _HANDOFF_REFUSAL_MAX)
                fail(sim, "a cell that nothing honest leads to");
        if (before == HANDOFF_D_NONE && step.next == HANDOFF_D_PREPARING && !may_prepare(sim, side, id)) {
                post(sim, (Packet){ .what = HANDOFF_SEND_ABORT, .writer = side, .id = id });
                return;
        }

        if (step.next != before) {
                write_down(sim, side, id, step.next, p);
                r->work = HANDOFF_WORK_NONE;
                check(sim);
                if (maybe_crash(sim, host))
                        return;
        }
        if (step.work)
                r->work = step.work;
        if (maybe_crash(sim, host))
                return;
        if (step.send)
                post(sim, (Packet){ .what = step.send,
                                    .writer = side,
                                    .id = id,
                                    .grant = step.send == HANDOFF_SEND_OFFER                    ? 0
                                             : step.send == HANDOFF_SEND_ABORT && p && p->grant ? p->grant
                                             : step.send == HANDOFF_SEND_RELEASED && p          ? p->grant
                                                                                       : r->grant });
}

static void deliver(Sim *sim, Packet p) {
        static const HandoffType types[] = {
                [HANDOFF_SEND_OFFER] = HANDOFF_OFFER,       [HANDOFF_SEND_ANSWER] = HANDOFF_ANSWER,
                [HANDOFF_SEND_START] = HANDOFF_START,       [HANDOFF_SEND_COMMIT] = HANDOFF_COMMIT,
                [HANDOFF_SEND_TAKEN] = HANDOFF_COMPLETE,    [HANDOFF_SEND_COMPLETE] = HANDOFF_COMPLETE,
                [HANDOFF_SEND_RELEASED] = HANDOFF_COMPLETE, [HANDOFF_SEND_ABORT] = HANDOFF_ABORT,
        };
        HandoffRole reader = p.writer == HANDOFF_SOURCE ? HANDOFF_DESTINATION : HANDOFF_SOURCE;
        int grant = record(sim, reader, p.id)->grant;

        apply(sim, reader, p.id,
              handoff_event_received(p.writer, types[p.what], p.what == HANDOFF_SEND_TAKEN,
                                     p.grant == grant ? HANDOFF_GRANT_SAME
                                     : p.grant == 0   ? HANDOFF_GRANT_NONE
                                     : grant == 0     ? HANDOFF_GRANT_FIRST
                                                      : HANDOFF_GRANT_OTHER),
              &p);
}

static void deliver_any(Sim *sim) {
        if (sim->n_channel > 0) {
                size_t i = random_below(sim, sim->n_channel);
                Packet p = sim->channel[i];

                /* Or it comes again. */
                if (sim->settling || chance(sim, 80))
                        sim->channel[i] = sim->channel[--sim->n_channel];
                deliver(sim, p);
        }
        if (sim->n_attic > 0 && !sim->settling && chance(sim, 5)) {
                sim->stats->replayed++;
                deliver(sim, sim->attic[random_below(sim, sim->n_attic)]);
        }
}

static void end_work(Sim *sim, HandoffRole side, int id, HandoffEvent e) {
        Record *r = record(sim, side, id);

        r->work = HANDOFF_WORK_NONE;
        r->ended = e;
        r->has_ended = true;
}

static void do_work(Sim *sim, HandoffRole side, int id) {
        Record *r = record(sim, side, id);
        Host *host = host_of(sim, side, id), *peer = sim->hosts + (1 - (host - sim->hosts));

        if (!host->up || r->work == HANDOFF_WORK_NONE)
                return;
        note(sim, "%i: %s", id, handoff_work_to_string(r->work));
        switch (r->work) {
        case HANDOFF_WORK_PREPARE:
                if (chance(sim, 10)) {
                        end_work(sim, side, id, HANDOFF_PREPARE_FAILED);
                        break;
                }
                if (!host->exists) {
                        host->exists = true;
                        host->made_by = id;
                        host->generation = host->content = -1;
                        host->left = host->paused = false;
                }
                end_work(sim, side, id, HANDOFF_PREPARED);
                break;
        case HANDOFF_WORK_VERIFY:
                end_work(sim, side, id,
                         chance(sim, 5) ? HANDOFF_VERIFY_FAILED
                         : host->left   ? HANDOFF_VERIFIED_PART
                                        : HANDOFF_VERIFIED);
                break;
        case HANDOFF_WORK_FREE:
                if (host->exists && host->made_by == id) {
                        if (owns(sim, (int) (host - sim->hosts)))
                                fail(sim, "the owner's memory is freed");
                        host->exists = false;
                }
                end_work(sim, side, id, HANDOFF_FREED);
                break;
        case HANDOFF_WORK_RELEASE:
                /* (again, after a restart) */
                if (host->exists && host->generation == r->generation) {
                        if (!peer->exists || peer->left || peer->content != sim->latest)
                                fail(sim, "the source's memory is freed while it is needed");
                        host->exists = false;
                }
                end_work(sim, side, id, HANDOFF_FREED);
                break;
        case HANDOFF_WORK_UNDO:
                end_work(sim, side, id, HANDOFF_UNDONE);
                break;
        default:
                r->work = HANDOFF_WORK_NONE;
        }
        if (maybe_crash(sim, host))
                return;
}

static void tell_end(Sim *sim, HandoffRole side, int id) {
        Record *r = record(sim, side, id);

        if (!r->has_ended)
                return;
        r->has_ended = false;
        apply(sim, side, id, r->ended, NULL);
}

/* What VMs, VMMs and the migration tool do. */

static void run_vms(Sim *sim) {
        for (int h = 0; h < N_HOSTS; h++)
                if (owns(sim, h)) {
                        if (sim->hosts[h].paused && chance(sim, 50))
                                sim->hosts[h].paused = false;
                        if (!sim->hosts[h].paused)
                                sim->hosts[h].content = ++sim->latest;
                }
}

static void offer(Sim *sim) {
        for (int h = 0; h < N_HOSTS; h++) {
                bool busy = false;

                for (int id = 1; id <= sim->n_ids; id++)
                        busy |= sim->source[id] == h &&
                                !handoff_state_is_final(record(sim, HANDOFF_SOURCE, id)->state);
                if (!owns(sim, h) || busy || sim->n_ids == SIM_IDS || !sim->hosts[h].up)
                        continue;
                sim->n_ids++;
                sim->source[sim->n_ids] = h;
                sim->post_copy[sim->n_ids] = chance(sim, 30);
                record(sim, HANDOFF_SOURCE, sim->n_ids)->generation = -1;
                record(sim, HANDOFF_DESTINATION, sim->n_ids)->state = HANDOFF_D_NONE;
                apply(sim, HANDOFF_SOURCE, sim->n_ids, HANDOFF_CALL_OFFER, NULL);
                return;
        }
}

static void copy_and_commit(Sim *sim, int id) {
        Record *s = record(sim, HANDOFF_SOURCE, id), *d = record(sim, HANDOFF_DESTINATION, id);
        Host *from = host_of(sim, HANDOFF_SOURCE, id), *to = host_of(sim, HANDOFF_DESTINATION, id);

        if (s->state != HANDOFF_S_STARTED || !to->exists || to->made_by != id ||
            (d->state != HANDOFF_D_READY && d->state != HANDOFF_D_RECEIVING))
                return;
        from->paused = true;
        to->content = from->content;
        to->left = sim->post_copy[id];
        apply(sim, HANDOFF_SOURCE, id, HANDOFF_CALL_COMMIT, NULL);
}

static void fetch_the_rest(Sim *sim, int id) {
        Host *from = host_of(sim, HANDOFF_SOURCE, id), *to = host_of(sim, HANDOFF_DESTINATION, id);

        if (record(sim, HANDOFF_DESTINATION, id)->state != HANDOFF_D_TAKEN)
                return;
        if (to->left && (!from->exists || from->generation != record(sim, HANDOFF_SOURCE, id)->generation))
                fail(sim, "memory is still to come, and the source has none");
        to->left = false;
        apply(sim, HANDOFF_DESTINATION, id, HANDOFF_ARRIVED, NULL);
}

static void any_event(Sim *sim) {
        static const HandoffEvent events[] = { HANDOFF_CALL_CANCEL, HANDOFF_DEADLINE, HANDOFF_RETRY,
                                               HANDOFF_RETRY,       HANDOFF_RETRY,    HANDOFF_FORGET };
        HandoffRole side = chance(sim, 50) ? HANDOFF_SOURCE : HANDOFF_DESTINATION;
        HandoffEvent e = events[random_below(sim, ELEMENTSOF(events))];
        int id = 1 + (int) random_below(sim, (uint64_t) sim->n_ids);

        if ((e == HANDOFF_CALL_CANCEL || e == HANDOFF_DEADLINE) && !chance(sim, 15))
                return;
        if (e == HANDOFF_CALL_CANCEL && chance(sim, 30)) {
                Host *host = host_of(sim, side, id);

                e = HANDOFF_VMM_GONE;
                /* Its VM is gone with it; what the owner starts anew has memory of its own. */
                if (owns(sim, (int) (host - sim->hosts))) {
                        host->content = ++sim->latest;
                        host->left = false;
                }
        }
        apply(sim, side, id, e, NULL);
}

static void restart(Sim *sim, Host *host) {
        if (host->up)
                return;
        note(sim, "host %zu: daemon starts", (size_t) (host - sim->hosts));
        host->up = true;
        for (int id = 1; id <= sim->n_ids; id++)
                for (HandoffRole side = HANDOFF_SOURCE; side <= HANDOFF_DESTINATION; side++)
                        if (host_of(sim, side, id) == host)
                                apply(sim, side, id, HANDOFF_RESTART, NULL);
}

static void step(Sim *sim) {
        HandoffRole side = chance(sim, 50) ? HANDOFF_SOURCE : HANDOFF_DESTINATION;
        int id;

        sim->stats->steps++;
        if (sim->n_ids == 0 || chance(sim, 5)) {
                offer(sim);
                return;
        }
        /* The last one, mostly. */
        id = chance(sim, 80) ? sim->n_ids : 1 + (int) random_below(sim, (uint64_t) sim->n_ids);
        switch (random_below(sim, 16)) {
        case 0:
                run_vms(sim);
                break;
        case 1:
                any_event(sim);
                break;
        case 2:
                apply(sim, HANDOFF_SOURCE, id, HANDOFF_CALL_START, NULL);
                break;
        case 3:
                copy_and_commit(sim, id);
                break;
        case 4:
                fetch_the_rest(sim, id);
                break;
        case 5:
        case 6:
                restart(sim, sim->hosts + random_below(sim, N_HOSTS));
                break;
        case 7:
        case 8:
        case 9:
                do_work(sim, side, id);
                break;
        case 10:
        case 11:
        case 12:
                tell_end(sim, side, id);
                break;
        default:
                deliver_any(sim);
        }
}

/* Both are up and reach each other, nobody calls any more, and time goes by. */
static bool settle(Sim *sim) {
        sim->settling = true;
        note(sim, "settling");
        for (unsigned round = 0; round < SETTLE_MAX && !sim->failed; round++) {
                bool quiet = true;

                for (int h = 0; h < N_HOSTS; h++)
                        restart(sim, sim->hosts + h);
                while (sim->n_channel > 0)
                        deliver_any(sim);
                for (int id = 1; id <= sim->n_ids; id++) {
                        fetch_the_rest(sim, id);
                        for (HandoffRole side = HANDOFF_SOURCE; side <= HANDOFF_DESTINATION; side++) {
                                do_work(sim, side, id);
                                tell_end(sim, side, id);
                                if (handoff_state_is_final(record(sim, side, id)->state))
                                        continue;
                                quiet = false;
                                apply(sim, side, id, chance(sim, 10) ? HANDOFF_DEADLINE : HANDOFF_RETRY,
                                      NULL);
                        }
                }
                if (quiet && sim->n_channel == 0)
                        return true;
        }
        if (!sim->failed)
                fail(sim, "does not come to an end");
        return false;
}

static void check_end(Sim *sim) {
        int owner = owns(sim, 0) ? 0 : 1;

        if (!owns(sim, owner))
                fail(sim, "nobody owns the VM");
        else if (sim->hosts[1 - owner].exists)
                fail(sim, "the other host has not freed its memory");
        else if (sim->hosts[owner].left || sim->hosts[owner].content != sim->latest)
                fail(sim, "the owner lacks memory that the VM has written");
}

bool sim_run(uint64_t seed, SimStats *stats) {
        static Sim sim;
        unsigned steps;

        sim = (Sim){ .random = seed,
                     .stats = stats,
                     .hosts = { { .up = true, .exists = true, .generation = 1, .seen = 1 },
                                { .up = true, .made_by = -1 } } };
        steps = 20 + (unsigned) random_below(&sim, 300);
        for (unsigned i = 0; i < steps && !sim.failed; i++)
                step(&sim);
        if (!sim.failed && settle(&sim))
                check_end(&sim);
        stats->traces++;
        if (!sim.failed)
                return true;

        for (size_t i = sim.n_log > LOG_MAX ? sim.n_log - LOG_MAX : 0; i < sim.n_log; i++)
                fprintf(stderr, "%s\n", sim.log[i % LOG_MAX]);
        return false;
}
