/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What tests of the daemon with a stand-in for the kernel's side (standin-handle.c) share: one VM, "db". */

#include <linux/kvm_gtdp.h>

#include "fixture.h"

#define VM_PATH     "/org/tdpd1/vm/db"
#define SLOTS_BYTES (768 * MIB)

Fixture *standin_start_with(const char *scenario, const char *config);
Fixture *standin_start(const char *scenario);

/* A stand-in that is told more while it runs, see standin-handle.c.  Its tests end with standin_teardown().
 */
Fixture *standin_start_dir(const char *config);
/* One that outlives tdpd, for more than one VM, and with a store.  Its tests end with standin_teardown()
 * too. */
Fixture *standin_start_kept(const char *config);
const char *standin_dir(void);
/* The calls since the last time, a line for each: "heal 0x1000+0x1000 MAX-LEVEL". */
const char *standin_calls(void);
void standin_set(const char *name, bool on);
void standin_event(const struct kvm_gtdp_event *event);
int standin_teardown(void **state);

/* The job of a call that must succeed. */
const char *standin_attach(Fixture *f, pid_t pid, const char *decision);
const char *standin_build(Fixture *f);

void assert_state(Fixture *f, const char *expected);
/* Statistics are not read anew if reading them took long just before. */
void wait_state(Fixture *f, const char *expected);
uint64_t get_property(Fixture *f, const char *name);
void assert_property(Fixture *f, const char *name, uint64_t expected);
void wait_no_vm(Fixture *f);
