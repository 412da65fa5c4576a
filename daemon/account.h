/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What each user holds.  A charge is embedded in what it pays for, and goes back with it. */

#include <sys/types.h>
#include <systemd/sd-bus.h>
#include <uthash.h>

#include "macro.h"

typedef struct AccountLimits {
        uint64_t vms;
        uint64_t bytes;
        uint64_t jobs;
} AccountLimits;

typedef struct Account {
        uid_t uid;
        uint64_t vms;
        uint64_t bytes;
        uint64_t jobs;
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
        uint64_t vms;
        uint64_t bytes;
        uint64_t jobs;
} Charge;

/* All or nothing; LimitExceeded, in "error", if a limit would be passed. */
int charge_take(Charge *c, Accounts *a, uid_t uid, uint64_t vms, uint64_t bytes, uint64_t jobs,
                sd_bus_error *error);
/* What is charged for has another size now.  LimitExceeded, in "error", if more would pass the limit. */
int charge_resize(Charge *c, uint64_t bytes, sd_bus_error *error);
void charge_return(Charge *c);
