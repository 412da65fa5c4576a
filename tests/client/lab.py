# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the client's tests share: a private bus, daemons on it, and tdpctl."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
TDPCTL = os.environ['TDPCTL']
FAKE_TDPD = os.environ['FAKE_TDPD']
FAKE_SYSTEMD = os.environ['FAKE_SYSTEMD']
VMM = os.environ['VMM']
TDPD = os.environ.get('TDPD', '')
# A child of tdpctl that is a VMM as far as "run" sees.
FAKE_QEMU = TOP / 'tests/client/fake-qemu'

BUS_CONFIG = '''<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path={folder}/bus</listen>
  <auth>EXTERNAL</auth>
  <servicedir>{folder}</servicedir>
  <policy context="default">
    <allow user="*"/> <allow send_destination="*"/> <allow receive_sender="*"/> <allow own="*"/>
  </policy>
</busconfig>
'''


class Lab(unittest.TestCase):
    """Each test has a bus of its own, and what it starts ends with it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='tdpctl-test-'))
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {**os.environ, 'DBUS_SYSTEM_BUS_ADDRESS': f'unix:path={self.folder}/bus'}

    def spawn(self, *command, **options):
        process = subprocess.Popen([str(word) for word in command], env=self.environment, **options)

        def end():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()

        self.addCleanup(end)
        return process

    def wait_until(self, condition, what, seconds=20):
        deadline = time.monotonic() + seconds
        while not (result := condition()):
            self.assertLess(time.monotonic(), deadline, f'timed out: {what}')
            time.sleep(0.05)
        return result

    def start_bus(self, service=None, *options):
        """service: what starts tdpd when it is called, as in a .service file."""
        if not shutil.which('dbus-daemon'):
            self.skipTest('dbus-daemon is not installed')
        config = self.folder / 'bus.conf'
        config.write_text(BUS_CONFIG.format(folder=self.folder))
        if service:
            (self.folder / 'org.tdpd1.service').write_text(f'[D-BUS Service]\nName=org.tdpd1\n{service}\n')
        bus = self.spawn('dbus-daemon', f'--config-file={config}', '--nofork', '--print-address', *options, stdout=subprocess.PIPE)
        self.assertIn(b'unix:', bus.stdout.readline())  # printed when it listens

    def start_on_bus(self, *command, name='org.tdpd1'):
        process = self.spawn(*command)
        query = ['busctl', f'--address={self.environment["DBUS_SYSTEM_BUS_ADDRESS"]}', 'status', name]
        self.wait_until(lambda: process.poll() is not None or
                        subprocess.run(query, env=self.environment, capture_output=True).returncode == 0, name)
        self.assertIsNone(process.poll(), f'{command[0]} ended')
        return process

    def start_fake(self):
        self.start_bus()
        return self.start_on_bus(FAKE_TDPD)

    def tdpctl(self, *words, code=0, timeout=40):
        """Returns the completed process, having checked its exit code."""
        result = subprocess.run([TDPCTL, *map(str, words)], env=self.environment, capture_output=True, text=True,
                                timeout=timeout, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(result.returncode, code, f'tdpctl {words}: {result.stdout}{result.stderr}')
        return result

    def json(self, *words, **options):
        return json.loads(self.tdpctl(*words, '--json', **options).stdout)


def main():
    """Runs the classes of the command line. Each test is counted, in cmocka's words, which tests/check understands; if
    all were skipped, so is the whole."""
    program = unittest.main(verbosity=2, exit=False)
    result = program.result
    for test, reason in result.skipped:
        name = test.id().split('.')[-1]
        print(f'[ RUN      ] {name}\n{reason}\n[  SKIPPED ] {name}')
    if not result.wasSuccessful():
        raise SystemExit(1)
    if result.skipped and len(result.skipped) == result.testsRun:
        print(result.skipped[0][1], file=sys.stderr)
        raise SystemExit(77)
    print(f'[  PASSED  ] {result.testsRun - len(result.skipped)} test(s).')
