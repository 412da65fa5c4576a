/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What was found at the start and could not be made out: records that are damaged or newer than we are, and
 * descriptors without a record.  It is left alone, as it may be a running VM's: a file stays where it is,
 * and a descriptor open and with the service manager.
 */

#include "manager.h"

typedef struct Quarantine Quarantine;

/* "name" is that of a VM, if it is known: no other one can be made of that name.  Says so in the log. */
int quarantine_add(Manager *m, const char *what, const char *name, const char *word, const char *text);
void quarantine_done(Manager *m);
const Quarantine *quarantine_find(Manager *m, const char *name);
const char *quarantine_text(const Quarantine *q);
const char *quarantine_what(const Quarantine *q);
/* a(sss): file or descriptor, word, text. */
int quarantine_append(Manager *m, sd_bus_message *reply);
