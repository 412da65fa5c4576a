/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What is done in a state of a handoff, once that is written down. */

#include "handoffs.h"

/* Has the work of its state done, or looks how far it is: from the event loop. */
void handoff_look_soon(Handoff *h);
/* The same at once, for calls whose result has what comes of it. */
void handoff_look_now(Handoff *h);
/* What a VM gets here, or has, as messages call it. */
HandoffMode handoff_vm_mode(const VM *vm);
