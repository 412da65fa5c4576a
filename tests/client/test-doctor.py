#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""tdpctl doctor, on the files of hosts that this one is not."""

import json
import os
import shutil
import subprocess

from lab import Lab, TDPCTL, TDPD, main

KERNEL = '6.12.1-cloud-amd64'
NOTE = b'\4\0\0\0\24\0\0\0\3\0\0\0GNU\0' + bytes(range(0xe0, 0xf4))
LIMITS = '''Limit                     Soft Limit           Hard Limit           Units
Max processes             95834                95834                processes
Max locked memory         {:<20} unlimited            bytes
Max msgqueue size         819200               819200               bytes
'''
MODULE = f'lib/modules/{KERNEL}/updates/tdpd/kvm.ko'
PARAMETERS = 'sys/module/kvm/parameters'
HEALTHY = {
    'proc/sys/kernel/osrelease': KERNEL,
    'proc/sys/kernel/numa_balancing': '0',
    'proc/meminfo': 'MemTotal:       16777216 kB\nMemFree:        1 kB',
    'proc/1/comm': 'systemd',
    'proc/77/comm': 'tdpd',
    'proc/77/limits': LIMITS.format('unlimited'),
    'dev/kvm-gtdp': '',
    f'{PARAMETERS}/gtdp': 'allow',
    f'{PARAMETERS}/tdp_mmu': 'Y',
    f'{PARAMETERS}/nx_huge_pages': 'N',
    'sys/module/kvm/notes/.note.gnu.build-id': NOTE,
    'sys/module/kvm_amd/parameters/npt': 'Y',
    'sys/module/kvm_amd/parameters/nested': '1',
    MODULE: b'\x7fELF' + bytes(5000) + NOTE + bytes(3000),
    'sys/devices/system/cpu/vulnerabilities/itlb_multihit': 'Not affected',
    'sys/kernel/mm/transparent_hugepage/enabled': 'always [madvise] never',
    'sys/kernel/mm/ksm/run': '0',
    'sys/fs/cgroup/cgroup.controllers': 'cpuset cpu io memory hugetlb pids',
    'sys/fs/cgroup/machine.slice/hugetlb.2MB.max': 'max',
    'sys/fs/cgroup/machine.slice/hugetlb.2MB.rsvd.max': 'max',
}
CHECKS = ['module', 'module-version', 'device', 'paging', 'nested', 'nx-huge-pages', 'thp', 'numa-balancing', 'ksm',
          'memlock', 'cgroups']


class Doctor(Lab):
    def setUp(self):
        super().setUp()
        self.root = self.folder / 'root'
        for name, content in HEALTHY.items():
            self.put(name, content)

    def put(self, name, content):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content + '\n')

    def drop(self, name):
        path = self.root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    def run_doctor(self, *words):
        return subprocess.run([TDPCTL, 'doctor', *words], env=self.environment, capture_output=True, text=True, timeout=40,
                              check=False)

    def look(self, *words):
        """{check: finding}; the exit code must say whether there is a problem."""
        result = self.run_doctor('--json', *(words or (f'--root={self.root}',)))
        report = json.loads(result.stdout)
        levels = [f['level'] for f in report['findings']]
        self.assertLessEqual(set(levels), {'ok', 'note', 'problem'})
        self.assertEqual((report['problems'], report['notes']), (levels.count('problem'), levels.count('note')))
        self.assertEqual(result.returncode, 1 if report['problems'] else 0, result.stderr)
        for finding in report['findings']:
            self.assertEqual(set(finding), {'check', 'level', 'found', 'means', 'todo'})
            self.assertTrue(finding['found'] and finding['means'], finding)
            # What is wrong has a remedy.
            self.assertTrue(finding['level'] != 'problem' or finding['todo'], finding)
        checks = [f['check'] for f in report['findings']]
        self.assertEqual(len(checks), len(set(checks)))
        return {f['check']: f for f in report['findings']}

    def expect(self, check, level, found):
        findings = self.look()
        self.assertEqual(findings[check]['level'], level, findings[check])
        self.assertRegex(findings[check]['found'], found)
        return findings

    def test_healthy(self):
        findings = self.look()
        self.assertEqual(list(findings), CHECKS)
        self.assertEqual({f['level'] for f in findings.values()}, {'ok'})
        self.assertIn(KERNEL, findings['module-version']['found'])

    def test_text(self):
        text = self.tdpctl('doctor', f'--root={self.root}').stdout
        self.assertRegex(text, r'(?m)^     ok  module: kvm is tdpd\'s, with gtdp=allow\.$')
        self.assertTrue(text.endswith('\n0 problems, 0 notes, 11 ok.\n'), text)
        self.assertEqual(self.tdpctl('doctor', '-q', f'--root={self.root}').stdout, '')
        self.put(f'{PARAMETERS}/gtdp', 'off')
        text = self.tdpctl('doctor', '-q', f'--root={self.root}', code=1).stdout
        self.assertRegex(text, r'^problem  module: .*gtdp=off\.\n .*\n         -> Remove kvm.gtdp=off.*\n$')

    def test_module_not_loaded(self):
        self.drop('sys/module')
        findings = self.expect('module', 'problem', 'kvm is not loaded')
        self.assertEqual(findings['paging']['level'], 'problem')

    def test_module_is_another_one(self):
        self.drop(f'{PARAMETERS}/gtdp')
        findings = self.expect('module', 'problem', 'installed for this kernel.*another one is loaded')
        self.assertIn('modprobe -r', findings['module']['todo'])
        self.assertNotIn('device', findings)

        os.rename(self.root / f'lib/modules/{KERNEL}', self.root / 'lib/modules/6.12.99-cloud-amd64')
        findings = self.expect('module', 'problem', rf'{KERNEL}, and tdpd\'s modules are installed for 6\.12\.99-cloud-amd64')
        self.assertIn('Boot', findings['module']['todo'])

        self.drop('lib')
        findings = self.expect('module', 'problem', f"of kernel {KERNEL} is not tdpd's")
        self.assertIn('Install', findings['module']['todo'])

    def test_module_version(self):
        self.put(MODULE, b'\x7fELF' + bytes(5000) + NOTE[:-1] + bytes(3000))
        self.expect('module-version', 'note', 'not the one that is installed')
        self.put(MODULE, b'')
        self.expect('module-version', 'note', 'not the one that is installed')
        self.drop(MODULE)
        self.expect('module-version', 'note', 'none is installed for kernel')
        self.drop('sys/module/kvm/notes')
        self.assertNotIn('module-version', self.look())

    def test_module_modes(self):
        self.put(f'{PARAMETERS}/gtdp', 'force')
        self.expect('module', 'note', 'gtdp=force')
        self.put(f'{PARAMETERS}/gtdp', 'off')
        self.expect('module', 'problem', 'gtdp=off')

    def test_device(self):
        self.drop('dev/kvm-gtdp')
        self.expect('device', 'problem', 'no /dev/kvm-gtdp')

    def test_paging(self):
        self.put(f'{PARAMETERS}/tdp_mmu', 'N')
        self.expect('paging', 'problem', 'tdp_mmu off')
        self.put(f'{PARAMETERS}/tdp_mmu', 'Y')
        self.put('sys/module/kvm_amd/parameters/npt', 'N')
        self.expect('paging', 'problem', 'kvm_amd has npt off')
        self.drop('sys/module/kvm_amd')
        self.assertNotIn('nested', self.expect('paging', 'problem', 'neither'))
        self.put('sys/module/kvm_intel/parameters/ept', 'Y')
        self.put('sys/module/kvm_intel/parameters/nested', 'N')
        self.expect('nested', 'ok', 'kvm_intel has nested off')

    def test_case_49_nx_huge_pages(self):
        self.put(f'{PARAMETERS}/nx_huge_pages', 'Y')
        self.assertIn('does not need it', self.expect('nx-huge-pages', 'problem', 'Not affected')['nx-huge-pages']['todo'])
        self.put('sys/devices/system/cpu/vulnerabilities/itlb_multihit', 'KVM: Mitigation: Split huge pages')
        self.assertIn('trusted', self.expect('nx-huge-pages', 'problem', 'Split huge pages')['nx-huge-pages']['todo'])
        self.put(f'{PARAMETERS}/nx_huge_pages', 'never')
        self.expect('nx-huge-pages', 'ok', 'never')

    def test_thp(self):
        for text, level, found in [('[always] madvise never', 'ok', 'always'), ('always madvise [never]', 'note', 'never'),
                                   ('always', 'note', '"always"'), ('', 'note', '""'), (']x[', 'note', r'\]x\[')]:
            self.put('sys/kernel/mm/transparent_hugepage/enabled', text)
            self.expect('thp', level, found)
        self.drop('sys/kernel/mm/transparent_hugepage')
        self.expect('thp', 'note', 'no transparent huge pages')

    def test_numa_balancing(self):
        for text in ('1', '2'):
            self.put('proc/sys/kernel/numa_balancing', text)
            self.expect('numa-balancing', 'note', 'is on')
        self.drop('proc/sys/kernel/numa_balancing')
        self.expect('numa-balancing', 'ok', 'off')

    def test_ksm(self):
        self.put('sys/kernel/mm/ksm/run', '1')
        self.put('sys/kernel/mm/ksm/pages_sharing', '4711')
        self.expect('ksm', 'note', '4711 are shared')
        self.put('sys/kernel/mm/ksm/run', '2')
        self.expect('ksm', 'ok', 'not running')

    def test_case_51_memlock(self):
        self.put('proc/77/limits', LIMITS.format(8388608))
        self.expect('memlock', 'problem', r'pid 77\) may lock 8M, this host has 16G')
        self.put('proc/77/limits', LIMITS.format(16 << 30))
        self.expect('memlock', 'ok', '16G')
        self.put('proc/meminfo', 'MemTotal: lots')
        self.expect('memlock', 'problem', 'an unknown amount')
        for limits in ('', 'Max locked memory', 'Max locked memory  many'):
            self.put('proc/77/limits', limits)
            self.expect('memlock', 'note', 'cannot be read')
        self.put('proc/77/comm', 'tdpd2')
        self.expect('memlock', 'note', 'does not run')

    def test_case_16_cgroup_limits(self):
        group = 'sys/fs/cgroup/machine.slice/vm-1.scope'
        self.put(f'{group}/hugetlb.2MB.max', str(1 << 30))
        self.put(f'{group}/memory.max', '0')
        self.expect('cgroups', 'note', '^1 limits on huge pages: /machine.slice/vm-1.scope/hugetlb.2MB.max=1073741824$')
        self.put(f'{group}/hugetlb.1GB.rsvd.max', '0')
        self.expect('cgroups', 'problem', '^2 limits .*hugetlb.1GB.rsvd.max=0')
        for n in range(2, 30):
            self.put(f'sys/fs/cgroup/{"g" * 200}{n}/hugetlb.2MB.max', '4096')
        self.expect('cgroups', 'problem', r'^30 limits .*, \.\.\.$')

        self.put('sys/fs/cgroup/cgroup.controllers', 'cpu nohugetlb hugetlbx')
        self.expect('cgroups', 'ok', 'no hugetlb controller')
        self.drop('sys/fs/cgroup/cgroup.controllers')
        self.expect('cgroups', 'note', 'version 2')

    def test_files_of_any_content(self):
        """Whatever is in the files: an answer, and no crash."""
        for content in (b'', b'\0\0\0', b'\xff' * 10000, 'ä'.encode() * 5000, b'\x1b[2J\n' * 9, b'%s%n%d' * 100, b'[' * 5000):
            for name in HEALTHY:
                if name != MODULE:
                    self.put(name, content)
            result = self.run_doctor(f'--root={self.root}')
            self.assertIn(result.returncode, (0, 1), result.stderr)
            self.assertRegex(result.stdout, '^[ -~\n]*$')
            self.assertRegex(result.stdout, r'\d+ problems?, \d+ notes?, \d+ ok\.\n$')
        shutil.rmtree(self.root)
        self.root.mkdir()
        self.assertEqual(self.look()['module']['level'], 'problem')

    def test_wrong_words(self):
        self.assertIn('cannot be read', self.tdpctl('doctor', f'--root={self.folder}/nosuch', code=2).stderr)
        self.assertIn('--host has no meaning', self.tdpctl('doctor', '-H', 'far', code=2).stderr)
        self.tdpctl('doctor', 'now', code=2)
        self.tdpctl('vms', '--root=/', code=2)

    def test_daemon(self):
        """Of this very host, whose other findings are what they are."""
        self.start_bus()
        findings = self.look('--json=short')
        self.assertEqual(findings['daemon']['level'], 'problem')
        self.assertNotIn('kernel-interface', findings)
        self.start_on_bus(TDPD, f'--bus={self.environment["DBUS_SYSTEM_BUS_ADDRESS"]}', '--device=/nonexistent')
        findings = self.look('--json=short')
        self.assertEqual(findings['daemon']['level'], 'ok')
        self.assertEqual(findings['kernel-interface']['level'], 'problem')

    def test_daemon_of_another_version(self):
        self.start_fake()
        findings = self.look('--json=short')
        self.assertEqual(findings['daemon']['level'], 'note')
        self.assertIn('version 0.0, tdpctl', findings['daemon']['found'])
        self.assertEqual(findings['kernel-interface']['level'], 'ok')


if __name__ == '__main__':
    main()
