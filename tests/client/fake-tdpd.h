/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-bus.h>

#define VMS_MAX                   16
#define JOBS_MAX                  16
#define E(name)                   "org.tdpd1.Error." name
#define METHOD(name, in, out, fn) SD_BUS_METHOD(name, in, out, fn, SD_BUS_VTABLE_UNPRIVILEGED)

struct vm {
        char name[64], path[128], state[16];
        uint64_t bytes;
        uint32_t pid;
        uint64_t asked_gpa, asked_size, asked_level;
        bool used, built;
        int fds[2];
};

struct job {
        uint32_t id;
        struct vm *vm;
        char path[64], state[16], phase[16];
        const char *type;
        uint64_t done, total;
        unsigned ticks, n_ticks;
        bool used;
};

extern sd_bus *bus;

bool says(const struct vm *vm, const char *word);
struct vm *vm_by_name(const char *name);
struct vm *vm_by_path(const char *path);
struct vm *vm_new(const char *name, uint64_t bytes, const char *state);
void vm_free(struct vm *vm);
struct job *job_new(struct vm *vm, const char *type, const char *phase);

/* fake-handoff.c */
int handoffs_register(void);
void handoffs_tick(void);
int m_prepare_incoming(sd_bus_message *m, void *userdata, sd_bus_error *error);
int m_deliver_handoff(sd_bus_message *m, void *userdata, sd_bus_error *error);
int m_list_handoffs(sd_bus_message *m, void *userdata, sd_bus_error *error);
int m_offer_handoff(sd_bus_message *m, void *userdata, sd_bus_error *error);
