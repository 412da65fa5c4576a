#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""tdpctl top on a terminal and in a pipe, with the stand-in daemon. What is in a frame is test-top.c's."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time

from lab import FAKE_TDPD, Lab, TDPCTL, main

ENTER, LEAVE = '\033[?1049h', '\033[?1049l'


class Terminal(Lab):
    def setUp(self):
        super().setUp()
        self.start_fake()
        for name in ('db', 'web', 'torn'):
            self.tdpctl('attach', name, os.getpid())

    def start(self, *words, columns=100, rows=20):
        self.master, self.slave = pty.openpty()
        self.addCleanup(os.close, self.slave)
        self.addCleanup(os.close, self.master)
        os.set_blocking(self.master, False)
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.environment.update(TERM='xterm', NO_COLOR='1')
        self.seen = ''

        def take_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = self.spawn(TDPCTL, 'top', *words, stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                  preexec_fn=take_terminal)

    def resize(self, columns, rows):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))

    def read(self):
        try:
            self.seen += os.read(self.master, 1 << 16).decode()
        except BlockingIOError:
            pass
        return self.seen

    def type(self, keys):
        self.seen = ''
        os.write(self.master, keys.encode())

    def await_text(self, pattern):
        return self.wait_until(lambda: re.search(pattern, self.read(), re.S), f'{pattern}, not {self.seen!r}')

    def frame(self):
        """The lines of the last whole frame."""
        self.await_text(r'\033\[H.*\033\[J')
        last = re.findall(r'\033\[H(.*?)\033\[J', self.seen, re.S)[-1]
        return [line.removesuffix('\033[K') for line in last.split('\r\n')]

    def names(self):
        lines = self.frame()
        start = next(i for i, line in enumerate(lines) if line.startswith('NAME'))
        return [line.split()[0] for line in lines[start + 1:]]

    def assert_left(self):
        """The terminal is as it was before."""
        self.wait_until(lambda: LEAVE in self.read(), 'the screen is left')
        self.assertIn('\033[?25h', self.seen)
        self.assertEqual(termios.tcgetattr(self.slave), self.before)

    def test_keys(self):
        self.start('--delay=3600')
        self.assertEqual(self.names(), ['db', 'torn', 'web'])
        self.assertIn(ENTER, self.seen)
        self.assertNotEqual(termios.tcgetattr(self.slave), self.before)
        for keys, expected in [('r', ['web', 'torn', 'db']), ('r', ['db', 'torn', 'web']), ('h', ['torn', 'db', 'web']),
                               ('nr', ['web', 'torn', 'db']), ('\033[Ax', ['web', 'torn', 'db'])]:
            self.type(keys)
            self.wait_until(lambda: '\033[J' in self.read() and self.names() == expected, f'{keys!r}: {expected}')
        self.type('q')
        self.assertEqual(self.process.wait(10), 0)
        self.assert_left()

    def test_sample_on_space_and_rates(self):
        self.start('--delay=3600')
        self.assertRegex('\n'.join(self.frame()), r'torn .* - *(\n|$)')  # one sample tells no rate
        self.type(' ')
        self.wait_until(lambda: re.search(r'torn .* 0 *(\n|$)', '\n'.join(self.frame())), 'a rate')
        self.type('q')
        self.assertEqual(self.process.wait(10), 0)

    def test_live(self):
        """What comes, works and goes is seen without a key."""
        self.start('--delay=0.1')
        self.await_text('web')
        self.tdpctl('attach', '--no-wait', 'slow', os.getpid())
        self.await_text(r'slow +building [^\r]* build \d+%')
        self.seen = ''
        self.await_text(r'slow +built ')
        self.tdpctl('release', 'slow')
        self.wait_until(lambda: self.names() == ['db', 'torn', 'web'], 'gone')
        os.kill(self.process.pid, signal.SIGTERM)
        self.assertEqual(self.process.wait(10), 0)
        self.assert_left()

    def test_resize(self):
        self.start('--delay=3600')
        wide = self.frame()
        for columns, rows in [(40, 5), (20, 3), (1, 1), (100, 20)]:
            self.seen = ''
            self.resize(columns, rows)
            self.await_text(r'\033\[J')
            lines = self.frame()
            self.assertLessEqual(len(lines), rows)
            self.assertLessEqual(max(map(len, lines)), columns)
        self.assertEqual(lines[1:], wide[1:])
        self.type('q')
        self.assertEqual(self.process.wait(10), 0)

    def test_stop_and_continue(self):
        self.start('--delay=3600')
        self.frame()
        self.type('\x1a')
        self.assertTrue(os.WIFSTOPPED(os.waitpid(self.process.pid, os.WUNTRACED)[1]))
        self.assert_left()
        self.seen = ''
        os.kill(self.process.pid, signal.SIGCONT)
        self.await_text(re.escape(ENTER))
        self.assertEqual(self.names(), ['db', 'torn', 'web'])
        self.type('\x03')
        self.assertEqual(self.process.wait(10), 0)
        self.assert_left()

    def test_daemon_goes_and_comes_back(self):
        self.start('--delay=0.2')
        self.frame()
        pid = int(subprocess.run(['busctl', f'--address={self.environment["DBUS_SYSTEM_BUS_ADDRESS"]}', 'status', 'org.tdpd1'],
                                 capture_output=True, text=True, check=True).stdout.split('PID=')[1].split()[0])
        os.kill(pid, signal.SIGKILL)
        self.await_text('Old numbers: .*web')
        self.start_on_bus(FAKE_TDPD)
        self.wait_until(lambda: 'VMs: 0,' in self.frame()[0], 'the new daemon')
        self.assertNotIn('Old numbers', '\n'.join(self.frame()))
        self.type('q')
        self.assertEqual(self.process.wait(10), 0)

    def test_terminal_goes(self):
        self.start('--delay=3600')
        self.frame()
        os.kill(self.process.pid, signal.SIGHUP)
        self.assertEqual(self.process.wait(10), 0)


class Batch(Lab):
    def test_pipe(self):
        """One sample, or as many as told, and no control characters."""
        self.start_fake()
        self.tdpctl('attach', 'db', os.getpid())
        text = self.tdpctl('top').stdout
        self.assertNotIn('\033', text)
        self.assertRegex(text, r'(?s)^tdpd 0\.0 .*\nnode 0 +2M \[#+\.+\] 128M: 8M leased, .*\nNAME.*\ndb +built +64M +100%')
        start = time.monotonic()
        text = self.tdpctl('top', '-b', '-n', '3', '-d', '0.2').stdout
        self.assertEqual(len(re.findall('^tdpd ', text, re.M)), 3)
        self.assertGreater(time.monotonic() - start, 0.35)
        self.assertRegex(text.split('\n\n')[2], r'db .* 0\n')

    def test_hostile_names(self):
        self.start_fake()
        self.tdpctl('attach', 'a\033[2J\nb', os.getpid())
        self.assertRegex(self.tdpctl('top').stdout, r'\na\?\[2J\?b +built ')

    def test_refused(self):
        for words, says in [(('--json',), 'metrics --json'), (('--delay=0',), 'seconds from'), (('-d', '-1'), 'seconds from'),
                            (('-d', 'nan'), 'seconds from'), (('-d', '1e9'), 'seconds from'), (('-n', '0'), 'show nothing'),
                            (('db',), 'one argument too many')]:
            self.assertIn(says, self.tdpctl('top', *words, code=2).stderr)

    def test_daemon_dies(self):
        self.start_fake()
        process = self.spawn(TDPCTL, 'top', '-n', '1000', '-d', '0.1', stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()
        self.tdpctl('attach', '--no-wait', 'die', os.getpid())
        out, err = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 3, out + err)
        self.assertIn(b'tdpctl: ', err)

    def test_no_daemon(self):
        self.start_bus()
        self.assertEqual(self.tdpctl('top', code=3).stdout, '')


if __name__ == '__main__':
    main()
