#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""tdpctl with the real daemon: that both sides mean the same by the contract."""

import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

from contract import CALIBRATION_KEYS, EXPLAIN_KEYS, LEAF_KEYS, NODE_KEYS, PLAN_KEYS, POOL_KEYS, RATE_KEYS, REASON_KEYS, STATUS_KEYS
from lab import FAKE_QEMU, Lab, TDPCTL, TDPD, TOP, VMM, main


class Options(Lab):
    def test_every_option_of_tdpd_is_told(self):
        """What getopt knows is in the help and in the manual page, and nothing else is."""
        if not TDPD:
            self.skipTest('tdpd is not built')
        table = re.findall(r'\{ "([a-z-]+)", (?:no|required|optional)_argument', (TOP / 'daemon/main.c').read_text())
        self.assertGreater(len(table), 10)
        told = subprocess.run([TDPD, '--help'], capture_output=True, text=True, check=True).stdout
        self.assertEqual(sorted(re.findall(r'(?m)^ +(?:-. )?--([a-z-]+)', told)), sorted(table))
        synopsis, options = (TOP / 'docs/man/tdpd.8').read_text().replace('\\-', '-').split('.SH DESCRIPTION', 1)
        options = options.split('.SH OPTIONS', 1)[1].split('.SH ', 1)[0]
        self.assertEqual(sorted(re.findall(r'(?m)^\.B\S* .*--([a-z-]+)', options)), sorted(table))
        self.assertEqual(sorted(re.findall(r'--([a-z-]+)', synopsis)), sorted(table))


class Real(Lab):
    def setUp(self):
        super().setUp()
        if not TDPD:
            self.skipTest('tdpd is not built')
        if os.geteuid() != 0:
            self.skipTest('reserving memory needs root')
        # What these tests reserve may come from the pool that the bus tests, of another checkout too, count on.
        lock = open('/tmp/tdpd-test-pool.lock', 'a')
        self.addCleanup(lock.close)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.start_bus()
        self.start_on_bus(TDPD, f'--bus={self.environment["DBUS_SYSTEM_BUS_ADDRESS"]}',
                          f'--data-dir={self.folder / "data"}')

    def test_contract(self):
        self.assertEqual(set(self.json('status')), STATUS_KEYS)
        kernel = self.json('caps')
        self.assertLessEqual({'device', 'mode'}, set(kernel))
        nodes = self.json('nodes')
        self.assertEqual(set(nodes[0]), NODE_KEYS)
        self.assertEqual({frozenset(p) for n in nodes for p in n['pools']}, {frozenset(POOL_KEYS)})
        plan = self.json('explain', '--memory=64M', '--page-size=4K', '--decision=never')
        self.assertEqual(set(plan), EXPLAIN_KEYS)
        self.assertEqual(plan['decision'], 'skip')
        self.assertEqual([set(r) for r in plan['reasons']], [REASON_KEYS])
        self.assertEqual((self.json('vms'), self.json('jobs')), ([], []))

    def test_explain(self):
        explain = ['explain', '--memory=64M', '--page-size=4K', '--vcpus=8', '--migrations=2']
        plan = self.json(*explain)['plan']
        self.assertEqual(set(plan) - {'populate_usec'}, PLAN_KEYS)
        self.assertEqual((plan['leaves'], plan['leaf_size'], plan['vcpus'], plan['migrations'], plan['rule']), (16384, 4096, 8, 2, ''))
        self.assertEqual((plan['fault_measured'], plan['vfio_bytes']), (False, 0))
        plan = self.json(*explain, '--vfio-devices=2', '--viommu')['plan']
        self.assertEqual(plan['vfio_bytes'], 2 * (64 << 20) + (1 << 30))
        text = self.tdpctl(*explain, '--vfio-devices=2', '--viommu').stdout
        for part in ('Rule: none matches', '64M on node', 'Model: 16384 leaves of 4K', 'a fault is 2000 ns (default)', '2 migrations expected',
                     'defaults, as this host was never calibrated', 'the VMM locks 1.1G for VFIO'):
            self.assertIn(part, text)
        # What no host can do, whatever else stands in the way here.
        self.assertIn('confidential', [r['reason'] for r in self.json(*explain, '--confidential')['reasons']])

    def test_pools_no_wait(self):
        pool = next(p for p in self.json('pools') if p['page_size'] == 2 << 20)
        same = ('pools', 'set', pool['node'], '2M', pool['total'] - pool['surplus'])
        self.assertEqual(set(self.json(*same, '--no-wait')), {'job'})

    def test_calibrate(self):
        seen = self.json('calibrate', '--quiet')
        self.assertEqual(set(seen), CALIBRATION_KEYS)
        self.assertEqual([set(l) for l in seen['leaves']], [LEAF_KEYS] * 3)
        self.assertEqual({frozenset(r) for r in seen['populate']}, {frozenset(RATE_KEYS)})
        for leaf in seen['leaves']:
            self.assertEqual(bool(leaf['not_measured_as']), not (leaf['fault_measured'] and leaf['build_measured']), leaf)
        self.assertEqual(self.json('status')['calibration'], seen)
        self.assertIn('populate_usec', self.json('explain', '--memory=64M', '--page-size=4K')['plan'])
        text = self.tdpctl('calibrate').stdout
        self.assertRegex(text, r'(?m)^LEAF +FAULT NS +BUILD NS')
        self.assertRegex(text, r'(?m)^0 +4K +[\d.]+[KMGT]/s$')
        self.assertEqual(set(self.json('calibrate', '--no-wait')), {'job'})

    def test_wrong_input(self):
        for error, words in [
            ('NoSuchVM', ['show', 'x']), ('NoSuchVM', ['build', 'x']), ('NoSuchVM', ['release', 'x']),
            ('NoSuchJob', ['cancel', '4294967295']), ('NoSuchVM', ['show', '']),
            ('InvalidArgument', ['explain', '--memory=0']), ('InvalidArgument', ['explain', '--memory=5000']),
            ('InvalidArgument', ['explain', '--memory=1G', '--page-size=3M']),
            ('InvalidArgument', ['explain', '--memory=1G', '--nodes=x']),
            ('InvalidArgument', ['explain', '--memory=1G', '--decision=maybe']),
            ('InvalidArgument', ['explain', '--memory=1G', '--numa-mode=maybe']),
            ('NoSuchProcess', ['attach', 'x', '2147483647']), ('NotVMM', ['attach', 'x', str(os.getpid())]),
            ('InvalidArgument', ['attach', 'a/b', str(os.getpid())]),
        ]:
            with self.subTest(words):
                self.assertIn(f'(org.tdpd1.Error.{error})', self.tdpctl(*words, code=1).stderr)
        self.assertEqual(self.json('vms'), [])

    def vmm(self, *words):
        result = subprocess.run([VMM, *words], env=self.environment, capture_output=True, text=True)
        if result.returncode == 77:
            self.skipTest(result.stdout.strip())
        return result

    def test_attach_by_descriptor(self):
        result = self.vmm('attach', 'small')
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stdout, r'^attached [1-9]\d*$')
        self.wait_until(lambda: self.json('vms') == [], 'the release of a VM that has gone')

    def test_prefault(self):
        """With nested paging and a kernel from 6.11 on it maps; elsewhere it says why not."""
        result = self.vmm('prefault')
        if result.returncode == 0:
            self.assertEqual(result.stdout.splitlines()[0], f'mapped once, not held: {4 << 20}')
            self.assertEqual(result.stdout.splitlines()[1], 'behind the end: No such file or directory: 4096')
        else:
            self.assertRegex(result.stdout, 'Operation not supported: .*(6.11|shadow paging)')

    def test_run(self):
        """4K memory needs no pool and the stand-in for QEMU no KVM: this runs everywhere."""
        self.environment['FAKE_QEMU_RECORD'] = str(self.folder / 'qemu.json')
        run = ['run', '--memory=16M', '--page-size=4K', '--decision=never', '--name=db', '--', FAKE_QEMU]
        self.tdpctl(*run, '-fake-exit', '5', code=5)
        seen = json.loads((self.folder / 'qemu.json').read_text())
        self.assertEqual([b['size'] for b in seen['backends']], [16 << 20])
        self.assertEqual(self.json('vms'), [])

    def test_run_waits(self):
        """For small pages that no host has, so that it is refused everywhere, and in time."""
        words = ['run', '--memory=512T', '--page-size=4K', '--name=db', '--', FAKE_QEMU]
        refused = self.tdpctl(*words, code=125).stderr
        self.assertIn('org.tdpd1.Error.NoPages', refused)
        self.assertNotIn('waited', refused)
        waited = self.tdpctl(words[0], '--wait=0.3', *words[1:], code=125).stderr
        self.assertIn('Waiting for pages to come free.', waited)
        self.assertRegex(waited, r'waited 3\d\d ms, .*\(org\.tdpd1\.Error\.NoPages\)')
        self.assertEqual(self.json('vms'), [])
        self.assertIn('not a time', self.tdpctl(words[0], '--wait=0', *words[1:], code=125).stderr)

    def test_run_qemu(self):
        """A real QEMU takes its memory from a real tdpd."""
        if not shutil.which('qemu-system-x86_64'):
            self.skipTest('qemu-system-x86_64 is not installed')
        process = self.spawn(TDPCTL, 'run', '--memory=32M', '--page-size=4K', '--decision=never', '--name=db', '--',
                             'qemu-system-x86_64', '-accel', 'tcg', '-display', 'none', '-machine', 'q35', stderr=subprocess.PIPE,
                             text=True)
        # Without KVM there is nothing to attach to: that is the last word before the guest runs.
        while 'on demand' not in (line := process.stderr.readline()):
            self.assertNotEqual(line, '', 'tdpctl ended')
        self.assertEqual([v['state'] for v in self.json('vms')], ['populated'])
        children = pathlib.Path(f'/proc/{process.pid}/task/{process.pid}/children')
        qemu = int(self.wait_until(children.read_text, 'QEMU'))
        maps = pathlib.Path(f'/proc/{qemu}/maps')
        shared = lambda: [line for line in maps.read_text().splitlines() if 'memfd:' in line and ' rw-s ' in line]
        start, end = self.wait_until(shared, "the guest's memory")[0].split()[0].split('-')
        self.assertEqual(int(end, 16) - int(start, 16), 32 << 20)
        process.send_signal(signal.SIGTERM)
        # Until tdpctl has heard that the guest runs, the signal is its own.
        self.assertIn(process.wait(20), (0, 128 + signal.SIGTERM))
        self.assertEqual(self.json('vms'), [])


if __name__ == '__main__':
    main()
