/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Sends standard output through a pager, if it is a terminal and one is to be had. */
void pager_open(void);

/* Waits until the user has left the pager. */
void pager_close(void);
