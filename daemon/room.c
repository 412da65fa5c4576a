/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "room.h"

#include <errno.h>
#include <utlist.h>

#include "cut.h"
#include "vm.h"
#include "warm.h"

typedef struct Room {
        VM *vm;
        Slab *leaving;
        Cut *cut; /* of the first */
        void (*done)(VM *vm, int result);
} Room;

void room_close(Manager *m, Slab *leaving) {
        Slab *s, *tmp;

        DL_FOREACH_SAFE(leaving, s, tmp) {
                DL_DELETE(leaving, s);
                warm_close(m->warm, s);
        }
}

static void room_free(void *work) {
        Room *room = work;

        cut_free(room->cut);
        room_close(room->vm->manager, room->leaving);
        free(room);
}

static Worker *room_worker(void *work) {
        return ((Room *) work)->cut ? cut_job.worker(((Room *) work)->cut) : NULL;
}

static const JobOps room_job = { .worker = room_worker, .free = room_free };

static void on_cut(Worker *w, int result, void *userdata) {
        Room *room = userdata;
        VM *vm = room->vm;
        int r = result;

        if (r >= 0) {
                Slab *s = room->leaving;

                room->cut = cut_free(room->cut);
                DL_DELETE(room->leaving, s);
                slab_free(s);
                if (room->leaving) {
                        r = cut_start(vm->manager->event, room->leaving->memory, 0, on_cut, room,
                                      &room->cut);
                        if (r >= 0)
                                return;
                } else {
                        void (*done)(VM * vm, int result) = room->done;

                        job_set_work(vm->job, NULL, NULL);
                        room_free(room);
                        done(vm, 0);
                        return;
                }
        }
        room->done(vm, r);
}

int room_make(VM *vm, Slab *leaving, void (*done)(VM *vm, int result)) {
        Room *room;
        int r;

        room = calloc(1, sizeof(*room));
        if (!room) {
                room_close(vm->manager, leaving);
                return -ENOMEM;
        }
        *room = (Room){ .vm = vm, .leaving = leaving, .done = done };
        job_set_work(vm->job, &room_job, room);
        r = cut_start(vm->manager->event, leaving->memory, 0, on_cut, room, &room->cut);
        if (r < 0)
                return r;
        return job_watch(vm->job, JOB_PHASE_POPULATE, vm->bytes);
}
