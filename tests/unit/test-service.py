#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The unit keeps to what it may: systemd's own judgement of its sandbox, and the capabilities."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

TOP = pathlib.Path(os.environ['SOURCE_ROOT'])
THRESHOLD = 20  # tenths: 2.0

CAPABILITIES = {'CAP_SYS_PTRACE', 'CAP_DAC_READ_SEARCH', 'CAP_IPC_LOCK'}


def unit_text():
    return (TOP / 'config/tdpd.service.in').read_text().replace('@tdpd@', '/bin/true')


def values(key):
    return re.findall(rf'^{key}=(.*)$', unit_text(), re.M)


class Service(unittest.TestCase):
    @unittest.skipUnless(shutil.which('systemd-analyze'), 'there is no systemd-analyze')
    def test_exposure(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder, 'tdpd.service')

            def judge(text):
                unit.write_text(text)
                return subprocess.run(['systemd-analyze', 'security', '--offline=yes', '--no-pager',
                                       f'--threshold={THRESHOLD}', unit], capture_output=True, text=True)

            done = judge(unit_text())
            bad = '\n'.join(line for line in done.stdout.splitlines() if not line.startswith('✓'))
            self.assertEqual(done.returncode, 0, f'exposure is more than {THRESHOLD / 10}:\n{bad}\n{done.stderr}')
            # The judge is awake.
            self.assertNotEqual(judge('[Service]\nExecStart=/bin/true\n').returncode, 0)

    def test_capabilities(self):
        self.assertEqual(values('CapabilityBoundingSet'), [' '.join(values('CapabilityBoundingSet'))])
        self.assertEqual(set(values('CapabilityBoundingSet')[0].split()), CAPABILITIES)
        self.assertEqual(values('AmbientCapabilities'), [])
        self.assertEqual(values('NoNewPrivileges'), ['yes'])


if __name__ == '__main__':
    unittest.main()
