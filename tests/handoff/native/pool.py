# SPDX-License-Identifier: LGPL-2.1-or-later
"""Huge pages of this machine, for all jobs at once; other tests that want them wait no longer than a few kills."""

import contextlib
import fcntl
import pathlib
import threading
import time

POOL = pathlib.Path('/sys/devices/system/node/node0/hugepages/hugepages-2048kB')
LOCK = '/tmp/tdpd-test-pool.lock'
HELD_SEC = 20
TURN_SEC = 0.1  # for who waits


class NoPages(Exception):
    """This machine does not have them."""


class NoPool:
    """For guests with pages of 4K, which are everybody's."""
    leaks = ()

    @contextlib.contextmanager
    def lease(self, what):
        yield


class Pool:
    def __init__(self, pages, locks=()):
        """locks: files of those that are to be waited for, too."""
        self.pages = pages
        self.paths = [*locks, LOCK]
        self.leaks = []  # what was killed while pages got lost
        self._users = 0
        self._locks = []
        self._done = []
        self._changed = threading.Condition()

    @staticmethod
    def read(name):
        return int((POOL / name).read_text())

    @contextlib.contextmanager
    def lease(self, what):
        with self._changed:
            # Whoever waits for the lock outside gets it once those that have begun are through.
            self._changed.wait_for(lambda: self._users == 0 or time.monotonic() < self._since + HELD_SEC)
            if self._users == 0:
                self._take()
            self._users += 1
            self._done.append(what)
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                if self._users == 0:
                    self._give()
                self._changed.notify_all()

    def _take(self):
        for path in self.paths:
            self._locks.append(open(path, 'a'))
            fcntl.flock(self._locks[-1], fcntl.LOCK_EX)
        self._since = time.monotonic()
        self._done = []
        self._before = self.read('nr_hugepages')
        self._resize(self._before + self.pages)
        self._free = self.read('free_hugepages')

    def _give(self):
        end = time.monotonic() + 20
        while self.read('free_hugepages') != self._free and time.monotonic() < end:
            time.sleep(0.02)
        lost = self._free - self.read('free_hugepages')
        if lost:
            self.leaks.append(f'{lost} pages are not free after {", ".join(self._done)}')
        self._resize(self._before)
        self._unlock()
        time.sleep(TURN_SEC)

    def _unlock(self):
        while self._locks:
            self._locks.pop().close()

    def _resize(self, pages):
        (POOL / 'nr_hugepages').write_text(str(pages))
        if self.read('nr_hugepages') != pages and pages > self._before:
            got = self.read('nr_hugepages')
            (POOL / 'nr_hugepages').write_text(str(self._before))
            self._unlock()
            raise NoPages(f'node 0 should have {pages} huge pages, and has {got}')
