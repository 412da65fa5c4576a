/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "args.h"
#include "tdp/tdp.h"

/* What the verbs "handoff" and "migrate" share: options, finding one, showing it. */

/* Of OfferHandoff, and of Start and Commit. Negative after having said what is wrong. */
int offer_options(const struct args *args, struct tdp_options **ret);
int handoff_options(const struct args *args, struct tdp_options **ret);
int handoff_role_check(const struct args *args);

/*
 * By id, the beginning of an id, or the name of a VM: one that has not ended, if there is a choice. -ENOENT
 * after having said so; what else fails is left to the context.
 */
int handoff_find(const struct args *args, struct tdp_ctx *ctx, const char *what, struct tdp_handoff **ret);

/* Nothing happens any more: "released", "kept", "done", "gone". */
bool handoff_has_ended(const struct tdp_handoff *h);

int handoff_list(const struct args *args, struct tdp_handoff *first);
int handoff_show(const struct args *args, struct tdp_handoff *h);
