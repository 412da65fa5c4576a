/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How large a pool may be made, so that a typo does not take all memory from a host: a pure function. */

#include "node.h"

/* Bytes of a node that stay out of all its pools together, of "max_percent" of its memory that may be in
 * them.  With 100 percent nothing is kept. */
uint64_t pool_cap_kept(const Node *n, uint64_t max_percent);
/* Pages, without surplus ones, that this pool may have, with the node's other pools as they are.  Never less
 * than it has. */
uint64_t pool_cap_pages(const Node *n, const Pool *p, uint64_t max_percent);
