/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "handoffs.h"

/* Tells that it has come to its state, if that is one that operators look for. */
void handoff_log(const Handoff *h);
