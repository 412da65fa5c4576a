/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "macro.h"

/* What can be built of the VM behind a handle: bytes of its slots, and the largest page that backs one. */
int slots_measure(int handle, uint64_t *ret_bytes, uint64_t *ret_page_size);
