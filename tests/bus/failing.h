/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A tdpd, one of whose calls fails (fail.h), for tests. */

#include "fail.h"
#include "fixture.h"

/* As fixture_start(), with what makes calls fail loaded into tdpd. */
Fixture *failing_start(const char *config, const char *arg);
/* Another one, as fixture_try_restart(), for what was armed before. */
bool failing_restart(Fixture *f, int *ret_status);

/* The n-th such call from now on fails with that error, once. */
void failing_arm(const char *call, int error, unsigned n, bool libraries);
/* No more; returns whether it has. */
bool failing_disarm(void);

/* Descriptors that tdpd has open. */
unsigned failing_count_fds(Fixture *f);
/* Waits a little: threads close some. Fails the test if there are not as many. */
void failing_assert_fds(Fixture *f, unsigned expected, const char *what);
/* Whether tdpd has ended. It must have ended by itself then, and told that it failed: not by a signal. */
bool failing_has_ended(Fixture *f, const char *what);
