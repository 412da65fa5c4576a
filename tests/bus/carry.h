/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A tool that carries messages between the two sides of a handoff. Calls must succeed, unless they say
 * otherwise. */

#include "craft.h"
#include "fixture.h"

#define HANDOFF_INTERFACE "org.tdpd1.Handoff"

typedef struct Side {
        Fixture *f;
        char path[128]; /* of the handoff */
        char job[64];
} Side;

#define CARRY_BYTES (8 * MIB)
#define CARRY_USEC  UINT64_C(600000000) /* time that no test takes */

/* A VM that runs, "db" of the stand-in, on memory of ours. */
pid_t carry_run_vm(Fixture *f);
void carry_offer(Side *source, Fixture *f, const char *vm, uint64_t deadline_usec, bool post_copy,
                 Bytes *ret);
/* On these nodes, or NULL: any. Under this name, or NULL: the VM's. false: refused, with the error. */
bool carry_try_prepare_on(const char *nodes, Side *destination, Fixture *f, const Bytes *offer,
                          const char *name, uint64_t page_size, Bytes *ret_answer, sd_bus_error *error);
/* The same on node 0. */
bool carry_try_prepare(Side *destination, Fixture *f, const Bytes *offer, const char *name,
                       uint64_t page_size, Bytes *ret_answer, sd_bus_error *error);
void carry_prepare(Side *destination, Fixture *f, const Bytes *offer, const char *name, Bytes *ret_answer);
/* What is said to it at once is in "ret_reply"; the path, if "path" is no NULL. */
bool carry_try_deliver(Fixture *f, const Bytes *message, Bytes *ret_reply, char *path, sd_bus_error *error);
void carry_deliver(Fixture *f, const Bytes *message, Bytes *ret_reply);
void carry_next(const Side *s, Bytes *ret);
/* Waits until there is something. */
void carry_wait_next(const Side *s, Bytes *ret);
/* "member" is Start or Commit: with these options. */
bool carry_try_call(const Side *s, const char *member, Bytes *ret, sd_bus_error *error, const char *types,
                    ...);
void carry_start(const Side *s, const char *logging, Bytes *ret);
void carry_commit(const Side *s, uint64_t bytes_left, Bytes *ret);
void carry_plain(const Side *s, const char *member); /* Arrived, Forget */
void carry_cancel(const Side *s, const char *text);

char *carry_property(const Side *s, const char *name);
uint64_t carry_number(const Side *s, const char *name);
bool carry_is(const Side *s, const char *state);
void carry_wait_state(const Side *s, const char *state);
/* How often it has come to that since tdpd was started: "committed", or the reason that it was off. */
uint64_t carry_outcomes(const Side *s, const char *role, const char *outcome);
void carry_assert(const Side *s, const char *property, const char *value);
