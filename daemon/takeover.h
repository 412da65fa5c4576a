/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "manager.h"

/*
 * Takes over what the daemon before us has left: its VMs, from their records and descriptors.  What was half
 * done is undone, what cannot be made out is left alone (quarantine.h).  Only a lack of memory is an error.
 */
int takeover(Manager *m);
