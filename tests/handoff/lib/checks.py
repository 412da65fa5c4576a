# SPDX-License-Identifier: LGPL-2.1-or-later
"""Checks that are counted, as tests/check/run wants to read them."""

import contextlib
import time

from hosts import Failed


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    @contextlib.contextmanager
    def check(self, what):
        """Failed inside is a failure, and the next check goes on."""
        begin = time.monotonic()
        try:
            yield
        except (Failed, OSError, ValueError, KeyError, IndexError) as e:
            self.failed += 1
            print(f'FAILED  {what}\n  {type(e).__name__}: {e}', flush=True)
        else:
            self.passed += 1
            print(f'ok      {what} ({time.monotonic() - begin:.1f} s)', flush=True)

    def that(self, what, condition, found=''):
        with self.check(what):
            if not condition:
                raise Failed(str(found))

    def end(self):
        print(f'{self.passed} passed, {self.failed} failed, 0 skipped', flush=True)
        return 1 if self.failed or not self.passed else 0
