/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What each user holds, and how much of it they may.  A charge is embedded in what it pays for: taken when
 * that is made, and returned with it, so that neither can be forgotten.
 */

#include <sys/types.h>
#include <systemd/sd-bus.h>
#include <uthash.h>

#include "macro.h"

typedef struct Amounts {
        uint64_t vms;
        uint64_t bytes;
        uint64_t jobs;
        uint64_t fds;   /* of ours, that are kept for them */
        uint64_t calls; /* that wait for an answer */
} Amounts;

typedef Amounts AccountLimits;

typedef struct Account {
        uid_t uid;
        Amounts has;
        unsigned n_ref; /* charges; the last one takes the account away */
        struct Accounts *accounts;
        UT_hash_handle hh;
} Account;

typedef struct Accounts {
        AccountLimits limits;
        Account *by_uid;
} Accounts;

typedef struct Charge {
        Account *account;
        Amounts amounts;
} Charge;

/* All or nothing; LimitExceeded, in "error", if a limit would be passed. */
int charge_take(Charge *c, Accounts *a, uid_t uid, const Amounts *amounts, sd_bus_error *error);
/* What is charged for is this much now.  LimitExceeded, in "error", if what is more passes a limit; then
 * nothing changes.  Less is always possible. */
int charge_set(Charge *c, const Amounts *amounts, sd_bus_error *error);
int charge_resize(Charge *c, uint64_t bytes, sd_bus_error *error);
void charge_return(Charge *c);
