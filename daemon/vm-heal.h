/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Has done what heal.h decides, for one VM: a thread at a time, when no job of the VM runs. */

#include "heal.h"
#include "manager.h"

typedef struct Healer Healer;

int healer_new(VM *vm, Healer **ret);
Healer *healer_free(Healer *h); /* waits for the thread */

/* The configuration has changed. */
void healer_set_limits(Healer *h, const HealLimits *limits);

/* What has happened: takes note, and does it when it is time. */
void healer_hole(Healer *h, Span span, unsigned reason);
void healer_everything(Healer *h);
void healer_slot_gone(Healer *h, Span slot);
void healer_set_logging(Healer *h, SpanSet *logging);
/* Lets the pins of memory go that the kernel has built by itself, and that its user may not have. */
void healer_let_go(Healer *h, Span span);

/* A job has begun, or ended. */
void healer_pause(Healer *h);
void healer_resume(Healer *h);
/* Whether a thread still uses the handle; it has been told to stop, and vm_release_continue() follows. */
bool healer_is_stopping(Healer *h);

typedef struct HealerCounts {
        uint64_t rounds, bytes, put_off;
} HealerCounts;

HealerCounts healer_counts(const Healer *h);
