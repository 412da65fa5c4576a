/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What goes wrong with handoffs, as errors of the bus. */

#include "handoffs.h"

/* The name of the error that goes with the reason of an abort. */
const char *handoff_reason_error(uint32_t reason);
/* And the other way round. */
HandoffReason handoff_error_reason(const char *name);
/* The table says no. */
int handoff_refuse(const Handoff *h, HandoffRefusal refusal, sd_bus_error *error);
/* It has ended, for the reason that is in its record. */
int handoff_refuse_ended(const Handoff *h, sd_bus_error *error);
/* For what handoff_unpack() and handoff_match() return. */
int handoff_refuse_message(const HandoffProblem *problem, int r, sd_bus_error *error);
/* Failed if there is a record of it that cannot be made out: nothing is said in its name then. */
int handoff_check_known(Manager *m, const HandoffId *id, HandoffRole side, sd_bus_error *error);
