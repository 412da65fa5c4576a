/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "account.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

#include "bus-error.h"

static int check(const char *what, uid_t uid, uint64_t have, uint64_t more, uint64_t limit, const char *key,
                 sd_bus_error *error) {
        if (more <= limit && have <= limit - more)
                return 0;
        sd_bus_error_setf(error, TDP_ERROR_LIMIT,
                          "user %u has %" PRIu64 " %s and asks for %" PRIu64 " more, of at most %" PRIu64
                          ": release some, or raise %s= in tdpd.conf",
                          uid, have, what, more, limit, key);
        return -EDQUOT;
}

static void account_unref(Account *acc) {
        if (--acc->n_ref > 0)
                return;
        HASH_DEL(acc->accounts->by_uid, acc);
        free(acc);
}

int charge_take(Charge *c, Accounts *a, uid_t uid, uint64_t vms, uint64_t bytes, uint64_t jobs,
                sd_bus_error *error) {
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
        }
        acc->n_ref++;

        if ((r = check("VMs", uid, acc->vms, vms, a->limits.vms, "MaxVMs", error)) < 0 ||
            (r = check("bytes", uid, acc->bytes, bytes, a->limits.bytes, "MaxBytes", error)) < 0 ||
            (r = check("jobs", uid, acc->jobs, jobs, a->limits.jobs, "MaxJobs", error)) < 0) {
                account_unref(acc);
                return r;
        }

        acc->vms += vms;
        acc->bytes += bytes;
        acc->jobs += jobs;
        *c = (Charge){ .account = acc, .vms = vms, .bytes = bytes, .jobs = jobs };
        return 0;
}

int charge_resize(Charge *c, uint64_t bytes, sd_bus_error *error) {
        Account *acc = c->account;
        int r;

        if (bytes > c->bytes) {
                r = check("bytes", acc->uid, acc->bytes, bytes - c->bytes, acc->accounts->limits.bytes,
                          "MaxBytes", error);
                if (r < 0)
                        return r;
        }
        acc->bytes = acc->bytes - c->bytes + bytes;
        c->bytes = bytes;
        return 0;
}

void charge_return(Charge *c) {
        if (!c->account)
                return;
        c->account->vms -= c->vms;
        c->account->bytes -= c->bytes;
        c->account->jobs -= c->jobs;
        account_unref(c->account);
        *c = (Charge){};
}
