/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "account.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"

static const struct {
        size_t offset;
        const char *what, *key, *remedy;
} kinds[] = {
        { offsetof(Amounts, vms), "VMs", "MaxVMs", "release some" },
        { offsetof(Amounts, bytes), "bytes", "MaxBytes", "release some" },
        { offsetof(Amounts, jobs), "jobs", "MaxJobs", "wait for some" },
        { offsetof(Amounts, fds), "descriptors", "MaxFDs", "release some VMs" },
        { offsetof(Amounts, calls), "waiting calls", "MaxCalls", "wait for some answers" },
};

static uint64_t *amount(Amounts *a, size_t kind) {
        return (uint64_t *) ((char *) a + kinds[kind].offset);
}

static uint64_t amount_of(const Amounts *a, size_t kind) {
        return *amount((Amounts *) a, kind);
}

/* "old" is what of it is there already. */
static int check(const Account *acc, const Amounts *old, const Amounts *new, sd_bus_error *error) {
        for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
                uint64_t before = amount_of(old, i), now = amount_of(new, i), more = now - before;
                uint64_t have = amount_of(&acc->has, i), limit = amount_of(&acc->accounts->limits, i);

                if (now <= before || (more <= limit && have <= limit - more))
                        continue;
                sd_bus_error_setf(error, TDP_ERROR_LIMIT,
                                  "user %u has %" PRIu64 " %s and asks for %" PRIu64
                                  " more, of at most %" PRIu64 ": %s, or raise %s= in tdpd.conf",
                                  acc->uid, have, kinds[i].what, more, limit, kinds[i].remedy, kinds[i].key);
                return -EDQUOT;
        }
        return 0;
}

static void account_unref(Account *acc) {
        if (--acc->n_ref > 0)
                return;
        HASH_DEL(acc->accounts->by_uid, acc);
        free(acc);
}

int charge_set(Charge *c, const Amounts *amounts, sd_bus_error *error) {
        int r;

        r = check(c->account, &c->amounts, amounts, error);
        if (r < 0)
                return r;
        for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
                *amount(&c->account->has, i) += amount_of(amounts, i) - amount_of(&c->amounts, i);
        c->amounts = *amounts;
        return 0;
}

int charge_take(Charge *c, Accounts *a, uid_t uid, const Amounts *amounts, sd_bus_error *error) {
        Account *acc;
        int r;

        assert(!c->account);

        HASH_FIND(hh, a->by_uid, &uid, sizeof(uid), acc);
        if (!acc) {
                acc = calloc(1, sizeof(*acc));
                if (!acc)
                        return -ENOMEM;
                acc->uid = uid;
                acc->accounts = a;
                HASH_ADD(hh, a->by_uid, uid, sizeof(acc->uid), acc);
                if (!acc->hh.tbl) {
                        free(acc);
                        return -ENOMEM;
                }
        }
        acc->n_ref++;

        *c = (Charge){ .account = acc };
        r = charge_set(c, amounts, error);
        if (r < 0) {
                *c = (Charge){};
                account_unref(acc);
        }
        return r;
}

int charge_resize(Charge *c, uint64_t bytes, sd_bus_error *error) {
        Amounts amounts = c->amounts;

        amounts.bytes = bytes;
        return charge_set(c, &amounts, error);
}

void charge_return(Charge *c) {
        if (!c->account)
                return;
        (void) charge_set(c, &(Amounts){}, NULL);
        account_unref(c->account);
        *c = (Charge){};
}
