/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Libraries that are loaded before all others into what is started from here on. */

/* One more; "variable" of the environment has its path. */
void preload_add(const char *variable);
void preload_none(void);
