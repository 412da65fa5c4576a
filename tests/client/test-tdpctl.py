#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""tdpctl with a stand-in daemon and without one: JSON, exit codes, wrong input.

  test-tdpctl.py CLASS...
"""

import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import termios
import time

from contract import EXPLAIN_KEYS, JOB_KEYS, NODE_KEYS, POOL_KEYS, POOLS_KEYS, REASON_KEYS, STATUS_KEYS, VM_KEYS, VMS_KEYS, \
    WARM_KEYS
from lab import FAKE_QEMU, FAKE_SYSTEMD, FAKE_TDPD, Lab, TDPCTL, TOP, main


def verbs():
    text = subprocess.run([TDPCTL, '--help'], capture_output=True, text=True, check=True).stdout
    section = text.split('Verbs:\n')[1].split('\nOptions:')[0]
    return re.findall(r'^  (\w+)', section, re.M)


class Texts(Lab):
    def test_help_lists_every_verb_of_the_table(self):
        source = (TOP / 'client/ctl/verbs.c').read_text()
        table = [block for block in source.split('.name = ')[1:] if '.hidden = true' not in block]
        self.assertEqual(verbs(), [re.match(r'"(\w+)"', block)[1] for block in table])

    def test_every_verb_has_help(self):
        for verb in verbs():
            text = self.tdpctl(verb, '--help').stdout
            self.assertTrue(text.startswith(f'tdpctl {verb}'), text)
            self.assertIn('--json', text)

    def test_man_page_and_completion_know_all(self):
        man = (TOP / 'docs/man/tdpctl.1').read_text().replace('\\-', '-')
        completion = (TOP / 'packaging/completions/tdpctl').read_text()
        for verb in verbs():
            self.assertRegex(man, rf'(?m)^\.(B|BR|BI) "?{verb}\b')
            self.assertRegex(completion, rf'\b{verb}\b')
            for option in re.findall(r'--([a-z-]+)', self.tdpctl(verb, '--help').stdout):
                self.assertIn(f'--{option}', man)
                self.assertIn(f'--{option}', completion)

    def complete(self, *words):
        script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tdpctl; echo "${COMPREPLY[@]}"'
        result = subprocess.run(['bash', '-c', script, 'bash', TOP / 'packaging/completions/tdpctl', 'tdpctl', *words],
                                env={**self.environment, 'PATH': f'{os.path.dirname(TDPCTL)}:{os.environ["PATH"]}'},
                                capture_output=True, text=True, check=True)
        self.assertEqual(result.stderr, '')
        return result.stdout.split()

    def test_completion(self):
        self.assertEqual(self.complete('st'), ['status'])
        self.assertEqual(self.complete(''), verbs())
        self.assertEqual(self.complete('run', '--dec'), ['--decision'])
        self.assertEqual(self.complete('run', '--decision', '='), ['auto', 'always', 'never'])
        self.assertEqual(self.complete('--json', '=', 'sh'), ['short'])
        self.assertEqual(self.complete('--json', 'vm'), ['vms'])
        self.assertEqual(self.complete('vms', '--mem'), [])
        self.start_fake()
        self.tdpctl('attach', 'db', os.getpid())
        self.assertEqual(self.complete('show', ''), ['db'])

    def test_version(self):
        self.assertEqual(self.tdpctl('--version').stdout.strip(), f'tdpctl {(TOP / "VERSION").read_text().strip()}')


class Usage(Lab):
    """Nothing here may need a daemon: there is none."""

    def refused(self, *words, code=2, says=''):
        result = self.tdpctl(*words, code=code)
        self.assertEqual(result.stdout, '')
        self.assertRegex(result.stderr, says or 'tdpctl: ')

    def test_pools(self):
        for words, says in ((['more', '0', '2M', '1'], 'use set, grow or shrink'), (['set', '0', '2M'], 'how many pages'),
                            (['set', 'x', '2M', '1'], 'not the number of a node'), (['set', '0', '2Q', '1'], 'not a page size'),
                            (['grow', '0', '2M', 'many'], 'not a number of pages'), (['set', '--holders'], 'only looks')):
            self.refused('pools', *words, says=says)

    def test_wrong_words(self):
        self.refused(says='verb is missing')
        self.refused('stauts', says='Did you mean "status"')
        self.refused('frobnicate', says='tdpctl --help')
        self.refused('', says='Unknown verb ""')
        self.refused('sh\x1b[2Jow\x07\u00f6', says=r'Unknown verb "sh\?\[2Jow\?\u00f6"')
        self.refused('status', '--jsn', says='Did you mean --json')
        self.refused('status', '--json=xml', says='short, pretty or off')
        self.refused('status', '--frob', says='tdpctl status --help')
        self.refused('status', '-z', says='tdpctl status --help')
        self.refused('--frob', 'status', says='See tdpctl --help')
        self.refused('status', 'now', says=r'one argument too many: tdpctl status\n$')
        self.refused('show', says='tdpctl show VM')
        self.refused('vms', '--memory=1G', says='no meaning for "vms"')
        self.refused('build', 'x', '--max-level=8M', says='4K, 2M, 1G')
        for value in ('x', '4G', '4G+', '+4G', '4G+x', '0x+1', '0xg+1', '0x10000000000000000+1', '-1+4K'):
            self.refused('split', 'x', f'--range={value}', says='not a range')
        self.refused('heal', 'x', '--max-level=2M', says='no meaning for "heal"')
        self.refused('cancel', 'x', says='not the number of a job')
        self.refused('release')

    def test_full_disk(self):
        for words in (['--help'], ['help'], ['--version'], ['status', '--help'], ['doctor']):
            with open('/dev/full', 'w', encoding='ascii') as full:
                result = subprocess.run([TDPCTL, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(result.returncode, 1, words)
            if words != ['doctor']:  # it has found problems on most machines, and that counts
                self.assertIn('Output could not be written', result.stderr, words)

    def test_attach(self):
        self.refused('attach', 'x', says='Give its pid')
        self.refused('attach', 'x', '0', says='not the pid')
        self.refused('attach', 'x', 'self', says='not a pid')
        self.refused('attach', 'x', '99999999999', says='not a pid')
        self.refused('attach', 'x', '1', '--pid=1', says='given twice')

    def test_explain(self):
        self.refused('explain', says='--memory=SIZE')
        for size in ('', '-1', '1X', '1.5G', 'G', '99999999999999T'):
            self.refused('explain', f'--memory={size}', says='--memory')

    def test_run(self):
        self.refused('run', code=125, says='--name=NAME --memory=SIZE')
        self.refused('run', '--', 'true', code=125, says='--name')
        self.refused('run', '--name=x', '--', 'true', code=125, says='--memory')
        self.refused('run', '--name=x', '--memory=1Q', '--', 'true', code=125, says='not a size')
        self.refused('-H', 'there', 'run', '--name=x', '--memory=1G', '--', 'true', code=125, says='--host')
        self.refused('run', '--name=x', '--memory=1G', '--', 'q', '-m', '2G', code=125, says='contradicts --memory=1G')
        self.refused('run', '--name=x', '--memory=1G', '--', 'q', '-daemonize', code=125, says='-daemonize')
        self.refused('run', '--name=x', '--memory=1G', '--', 'q', '-M', 'memory-backend=m', code=125, says='memory-backend')


class NoDaemon(Lab):
    def unreachable(self, says, code=3):
        start = time.monotonic()
        result = self.tdpctl('status', code=code)
        self.assertLess(time.monotonic() - start, 2)
        self.assertRegex(result.stderr, says)

    def test_no_bus(self):
        self.unreachable('cannot be reached.*\n.*systemctl status tdpd')
        self.tdpctl('run', '--name=x', '--memory=1G', '--', 'true', code=125)

    def test_no_systemd(self):
        self.start_bus()
        self.unreachable('cannot be reached.*\n.*systemctl status tdpd')
        for verb in (['vms'], ['nodes'], ['jobs'], ['caps'], ['show', 'x'], ['attach', 'x', '1'], ['build', 'x'], ['heal', 'x'], ['split', 'x'],
                     ['release', 'x'], ['explain', '--memory=1G'], ['cancel', '1']):
            self.tdpctl(*verb, code=3)

    def test_unit_states(self):
        for states, says in {
            ('loaded', 'inactive', 'dead', 'success'): 'not running.*systemctl start tdpd',
            ('loaded', 'failed', 'failed', 'exit-code'): r'has failed \(exit-code\).*journalctl -u tdpd',
            ('loaded', 'active', 'running', 'success'): 'active .running., but does not answer',
            ('loaded', 'activating', 'start', 'success'): r'is activating \(start\)',
            ('not-found', 'inactive', 'dead', 'success'): 'not installed.*package "tdpd"',
            ('masked', 'inactive', 'dead', 'success'): 'systemctl unmask',
        }.items():
            with self.subTest(states):
                self.setUp()
                self.start_bus()
                self.start_on_bus(FAKE_SYSTEMD, *states, name='org.freedesktop.systemd1')
                self.unreachable(says)

    def test_case_67_service_exits(self):
        """It exits before it has its name."""
        self.start_bus('Exec=/bin/false')
        self.start_on_bus(FAKE_SYSTEMD, 'loaded', 'failed', 'failed', 'exit-code', name='org.freedesktop.systemd1')
        self.unreachable(r'(?s)cannot be reached.*has failed \(exit-code\).*journalctl -u tdpd')

    def test_case_67_masked(self):
        self.start_bus('Exec=/bin/false\nSystemdService=tdpd.service', '--systemd-activation')
        self.start_on_bus(FAKE_SYSTEMD, 'masked', 'inactive', 'dead', 'success', 'org.freedesktop.systemd1.UnitMasked',
                          name='org.freedesktop.systemd1')
        self.unreachable('(?s)cannot be reached.*masked.*systemctl unmask')

    def test_case_67_nobody_tells(self):
        """The bus is not told that it has failed, and would have us wait for 25 seconds."""
        self.start_bus('Exec=/bin/false\nSystemdService=tdpd.service', '--systemd-activation')
        self.start_on_bus(FAKE_SYSTEMD, 'loaded', 'failed', 'failed', 'exit-code', name='org.freedesktop.systemd1')
        self.unreachable(r'(?s)has not answered yet.*has failed \(exit-code\)')

    def test_case_72_owner_is_not_root(self):
        if os.geteuid() != 0:
            self.skipTest('needs root, to have it run by somebody else')
        self.start_bus()
        os.chmod(self.folder, 0o755)
        self.start_on_bus('setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', FAKE_TDPD)
        result = self.tdpctl('vms', code=3)
        self.assertIn('process of user 65534 and not of root', result.stderr)
        result = self.tdpctl('attach', 'db', os.getpid(), code=3)
        self.assertIn('is not trusted', result.stderr)

    def test_hung_daemon(self):
        daemon = self.start_fake()
        daemon.send_signal(signal.SIGSTOP)
        process = self.spawn(TDPCTL, 'status', stderr=subprocess.PIPE)
        start = time.monotonic()
        self.assertIn(b'has not answered yet', process.stderr.readline())
        self.assertIn(b'tdpd', process.stderr.readline())
        self.assertLess(time.monotonic() - start, 2)
        # It was only slow.
        daemon.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(20), 0)


class Contract(Lab):
    """The JSON of each verb, against a daemon that knows a built VM."""

    def setUp(self):
        super().setUp()
        self.start_fake()

    def test_pools(self):
        pools = self.json('pools')
        self.assertEqual([set(p) for p in pools], [POOLS_KEYS])
        self.assertEqual((pools[0]['available'], pools[0]['for_others'], pools[0]['target']), (50, 10, 128))
        self.assertRegex(self.tdpctl('pools').stdout, r'0 +2M +64 +60 +50 +0 +0 +4 +10 +128 +short')

    def test_warm(self):
        warm = self.json('warm')
        self.assertEqual([set(w) for w in warm], [WARM_KEYS, WARM_KEYS])
        self.assertEqual((warm[0]['ready'], warm[0]['wanted'], warm[0]['filling']), (1, 2, 1 << 30))
        self.assertEqual((warm[0]['node'], warm[1]['node']), (0, -1))
        text = self.tdpctl('warm').stdout
        self.assertRegex(text, r'4G\*2 node=0 page=2M +1 of 2 +1G +pressure +tasks waited')
        self.assertRegex(text, r'1G\*1 +1 of 1 +- +- +-')

    def test_status_caps_nodes(self):
        status = self.json('status')
        self.assertEqual(set(status), STATUS_KEYS)
        self.assertEqual(status['draining'], [{'name': 'old', 'bytes': 2 << 30, 'pids': [77]}])
        self.assertEqual(status['quarantine'],
                         [{'what': '/run/tdpd/x.vm', 'reason': 'newer', 'text': 'it is of version 2'}])
        text = self.tdpctl('status').stdout
        self.assertIn('drains: 2G of old', text)
        self.assertIn('left: /run/tdpd/x.vm, as it is of version 2', text)
        self.assertEqual(status['kernel'], self.json('caps'))
        self.assertEqual(status['kernel']['abi_version'], 1)
        nodes = self.json('nodes')
        self.assertEqual(set(nodes[0]), NODE_KEYS)
        self.assertEqual(set(nodes[0]['pools'][0]), POOL_KEYS)

    def test_explain(self):
        plan = self.json('explain', '--memory=64M')
        self.assertEqual(set(plan), EXPLAIN_KEYS)
        self.assertEqual(set(plan['reasons'][0]), REASON_KEYS)
        self.assertEqual(plan['plan'], {'page_size': 2 << 20, 'nodes': '0'})

    def test_life_of_a_vm(self):
        self.assertEqual(self.json('vms'), [])
        vm = self.json('attach', 'db', os.getpid(), '--max-level=2M')
        self.assertEqual(set(vm), VM_KEYS)
        self.assertEqual((vm['name'], vm['state'], vm['pid']), ('db', 'built', os.getpid()))
        self.assertEqual(vm['table_pages'], {'0': 3})
        self.assertEqual(vm['reasons'], [{'reason': 'told', 'text': 'The name says so'}])
        self.assertEqual(vm, self.json('show', 'db'))
        self.assertEqual(vm, self.json('build', 'db'))
        self.assertEqual(set(vm['slots'][0]), {'gpa', 'size', 'flags'})
        self.assertEqual(vm['slots'][1]['flags'], ['read-only'])
        vms = self.json('vms')
        self.assertEqual([set(v) for v in vms], [VMS_KEYS])
        self.assertEqual(self.json('release', 'db'), [{'name': 'db', 'released': True}])
        self.assertEqual(self.json('vms'), [])

    def test_split_collapse_heal(self):
        self.json('attach', 'db', os.getpid())
        for verb in ('heal', 'split', 'collapse'):
            vm = self.json(verb, 'db')
            self.assertEqual(set(vm), VM_KEYS)
            self.assertEqual((vm['state'], vm['slots'][0]['size'], vm['leaves_2m']), ('built', 0, 0))
            vm = self.json(verb, 'db', '--range=0x100000000+512M')
            self.assertEqual((vm['slots'][0]['gpa'], vm['slots'][0]['size']), (4 << 30, 512 << 20))
            self.assertEqual(set(self.json(verb, 'db', '--no-wait')), {'name', 'job'})
            self.assertRegex(self.tdpctl(verb, 'db').stdout, r'^db: leaves 16384 of 4K; holes none$')
        self.assertEqual(self.json('split', 'db', '--max-level=2M', '--range=4G+0x1000')['leaves_2m'], 2)
        self.json('attach', 'older', os.getpid())
        self.assertIn('Unsupported', self.tdpctl('split', 'older', code=1).stderr)
        self.tdpctl('collapse', 'nosuch', code=1)

    def test_other_host(self):
        """Over SSH, of which a stand-in is enough: it runs the far end here."""
        bridge = shutil.which('systemd-stdio-bridge')
        if not bridge:
            self.skipTest('systemd-stdio-bridge is not installed')
        ssh = self.folder / 'ssh'
        ssh.write_text(f'#!/bin/sh\necho "$@" >>{self.folder}/ssh.log\nexec {bridge} --bus-path="$FAR_BUS"\n')
        ssh.chmod(0o755)
        self.environment.update(PATH=f'{self.folder}:{self.environment["PATH"]}',
                                FAR_BUS=self.environment['DBUS_SYSTEM_BUS_ADDRESS'],
                                DBUS_SYSTEM_BUS_ADDRESS='unix:path=/nonexistent')
        self.assertEqual(self.json('-H', 'me@far', 'vms'), [])
        self.assertIn('me@far', (self.folder / 'ssh.log').read_text())
        self.tdpctl('vms', code=3)

    def test_short_json_is_one_line(self):
        self.assertEqual(self.tdpctl('nodes', '--json=short').stdout.count('\n'), 1)

    def test_jobs(self):
        started = self.json('attach', 'slow', os.getpid(), '--no-wait')
        self.assertEqual(set(started), {'name', 'job'})
        jobs = self.json('jobs')
        self.assertEqual([set(j) for j in jobs], [JOB_KEYS])
        self.assertEqual((jobs[0]['id'], jobs[0]['vm'], jobs[0]['phase']), (started['job'], 'slow', 'build'))
        self.assertEqual(self.json('cancel', started['job']), [{'id': started['job'], 'canceled': True}])
        self.wait_until(lambda: self.json('jobs') == [], 'the end of the job')

    def test_people(self):
        """No contract, but no verb may be silent or show what it has not read."""
        self.tdpctl('attach', 'db', os.getpid())
        for words in (['status'], ['caps'], ['nodes'], ['vms'], ['show', 'db'], ['jobs'], ['explain', '--memory=1G']):
            text = self.tdpctl(*words).stdout
            self.assertNotEqual(text, '')
            self.assertNotIn('(null)', text)
        self.assertEqual(self.tdpctl('vms', '--no-legend').stdout.split(), ['db', 'built', str(os.getpid()), '64M'])

    def test_errors_have_names(self):
        for words in (['show', 'x'], ['build', 'x'], ['release', 'x']):
            self.assertIn('(org.tdpd1.Error.NoSuchVM)', self.tdpctl(*words, code=1).stderr)
        self.assertIn('(org.tdpd1.Error.NoSuchJob)', self.tdpctl('cancel', '99', code=1).stderr)
        self.assertIn('(org.tdpd1.Error.NotVMM)', self.tdpctl('attach', 'nothere', '1', code=1).stderr)
        failed = self.tdpctl('attach', 'failattach', os.getpid(), code=1)
        self.assertIn('256M asked, 128M there, take less (org.tdpd1.Error.NoPages)', failed.stderr)

    def test_release_goes_on_after_an_error(self):
        self.tdpctl('attach', 'db', os.getpid())
        self.tdpctl('release', 'x', 'db', code=1)
        self.assertEqual(self.json('vms'), [])


class Jobs(Lab):
    def setUp(self):
        super().setUp()
        self.daemon = self.start_fake()

    def test_progress_lines(self):
        lines = self.tdpctl('attach', 'slow', os.getpid()).stderr.splitlines()
        percents = [int(m.group(1)) for m in (re.match(r'build: (\d+)%', line) for line in lines) if m]
        self.assertEqual(percents, sorted(set(percents)))
        self.assertGreater(len(percents), 4)
        self.assertEqual(percents[-1], 100)
        self.assertEqual(self.tdpctl('build', 'slow', '--quiet').stderr, '')

    def test_interrupt_cancels(self):
        process = self.spawn(TDPCTL, 'attach', 'slow', os.getpid(), stderr=subprocess.PIPE, text=True)
        self.wait_until(lambda: self.json('jobs'), 'the job')
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 130)
        self.assertEqual(self.json('jobs'), [])

    def test_canceled_by_somebody_else(self):
        process = self.spawn(TDPCTL, 'attach', 'slow', os.getpid(), stderr=subprocess.PIPE, text=True)
        jobs = self.wait_until(lambda: self.json('jobs'), 'the job')
        self.tdpctl('cancel', jobs[0]['id'])
        self.assertEqual(process.wait(20), 1)
        self.assertIn('org.tdpd1.Error.Canceled', process.stderr.read())

    def test_daemon_dies(self):
        start = time.monotonic()
        result = self.tdpctl('attach', 'die', os.getpid(), code=3)
        self.assertLess(time.monotonic() - start, 10)
        self.assertIn('stopped or restarted', result.stderr)

    def test_daemon_hangs(self):
        process = self.spawn(TDPCTL, 'attach', 'hang', os.getpid(), stderr=subprocess.PIPE, text=True)
        stat = pathlib.Path(f'/proc/{self.daemon.pid}/stat')
        self.wait_until(lambda: stat.read_text().rsplit(')')[1].split()[0] == 'T', 'the daemon to hang')
        process.send_signal(signal.SIGINT)
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 130)


class Run(Lab):
    """"run" with a stand-in for QEMU, too: what a real one makes of its command line is in RunQemu."""

    def setUp(self):
        super().setUp()
        self.daemon = self.start_fake()
        self.record = self.folder / 'qemu.json'
        self.environment['FAKE_QEMU_RECORD'] = str(self.record)

    def run_qemu(self, name, *words, options=(), **more):
        return self.tdpctl('run', f'--name={name}', '--memory=64M', *options, '--', FAKE_QEMU, *words, **more)

    def seen(self):
        return json.loads(self.record.read_text())

    def test_guest_starts_when_built(self):
        self.run_qemu('db')
        seen = self.seen()
        self.assertIn('-S', seen['argv'])
        self.assertEqual(seen['state_at_cont'], 'built')
        self.assertEqual(seen['commands'], ['qmp_capabilities', 'cont'])
        self.assertEqual([b['size'] for b in seen['backends']], [64 << 20])
        self.assertEqual(self.json('vms'), [])

    def test_several_parts(self):
        self.run_qemu('two')
        seen = self.seen()
        self.assertEqual([b['size'] for b in seen['backends']], [32 << 20, 32 << 20])
        self.assertEqual(seen['argv'].count('-numa'), 2)

    def test_no_wait(self):
        self.run_qemu('db', options=['--no-wait'])
        self.assertNotIn('-S', self.seen()['argv'])
        self.assertEqual(self.seen()['commands'], ['qmp_capabilities'])
        self.assertEqual(self.seen()['state_at_end'], 'built')

    def test_qemu_ends_before_its_mapping_is_built(self):
        self.run_qemu('slow', '-fake-hurry', 'x', options=['--no-wait'])
        self.run_qemu('slow', '-fake-hurry', 'x', '-fake-exit', '4', options=['--no-wait'], code=4)
        self.assertEqual(self.json('vms'), [])

    def test_stopped_by_the_user(self):
        self.run_qemu('db', '-S')
        self.assertEqual(self.seen()['argv'].count('-S'), 1)
        self.assertEqual(self.seen()['commands'], ['qmp_capabilities'])
        self.assertEqual(self.seen()['state_at_end'], 'built')

    def test_exit_code(self):
        self.run_qemu('db', '-fake-exit', '7', code=7)
        self.run_qemu('db', '-fake-kill', '9', code=137)
        self.assertEqual(self.json('vms'), [])

    def test_signals_are_forwarded(self):
        process = self.spawn(TDPCTL, 'run', '--name=db', '--memory=64M', '-q', '--', FAKE_QEMU, '-fake-stay', 'x')
        self.wait_until(lambda: self.record.exists() and self.seen()['commands'][-1:] == ['cont'], 'the guest')
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 128 + signal.SIGTERM)
        self.assertEqual(self.json('vms'), [])

    def test_refused_reservation(self):
        self.assertIn('org.tdpd1.Error.NoPages', self.run_qemu('refuse', code=125).stderr)
        self.run_qemu('failreserve', code=125)
        self.assertFalse(self.record.exists())
        self.assertEqual(self.json('vms'), [])

    def test_interrupted_reservation(self):
        process = self.spawn(TDPCTL, 'run', '--name=slow', '--memory=64M', '-q', '--', FAKE_QEMU)
        self.wait_until(lambda: self.json('jobs'), 'the job')
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 130)
        self.assertFalse(self.record.exists())
        self.assertEqual(self.json('vms'), [])

    def test_interrupted_build(self):
        process = self.spawn(TDPCTL, 'run', '--name=slow', '--memory=64M', '-q', '--', FAKE_QEMU, '-fake-stay', 'x')
        self.wait_until(lambda: [j for j in self.json('jobs') if j['phase'] == 'build'], 'the build')
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 128 + signal.SIGTERM)
        self.assertEqual(self.json('vms'), [])
        self.assertEqual(self.seen()['ended_by'], signal.SIGTERM)

    def test_left_in_mid_build(self):
        """Nobody is there any more to start the guest."""
        process = self.spawn(TDPCTL, 'run', '--name=slow', '--memory=64M', '-q', '--', FAKE_QEMU, '-fake-stay', 'x')
        self.wait_until(lambda: [j for j in self.json('jobs') if j['phase'] == 'build'], 'the build')
        self.daemon.send_signal(signal.SIGSTOP)
        pid = self.seen()['pid']
        process.send_signal(signal.SIGTERM)
        time.sleep(3)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 128 + signal.SIGTERM)
        # A process that nobody waits for may stay as a zombie.
        state = pathlib.Path(f'/proc/{pid}/stat')
        self.wait_until(lambda: not state.exists() or ') Z ' in state.read_text(), "QEMU's end")

    def test_terminal_is_restored(self):
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        self.addCleanup(os.close, slave)
        before = termios.tcgetattr(slave)

        def take_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        process = self.spawn(TDPCTL, 'run', '--name=db', '--memory=64M', '-q', '--', FAKE_QEMU, '-fake-raw', 'x', '-fake-stay', 'x',
                             stdin=slave, preexec_fn=take_terminal)
        self.wait_until(lambda: self.record.exists() and self.seen()['commands'][-1:] == ['cont'], 'the guest')
        self.assertNotEqual(termios.tcgetattr(slave), before)
        self.assertFalse(os.get_blocking(slave))
        os.kill(self.seen()['pid'], signal.SIGKILL)
        self.assertEqual(process.wait(20), 128 + signal.SIGKILL)
        self.assertEqual(termios.tcgetattr(slave), before)
        self.assertTrue(os.get_blocking(slave))

    def test_refused_attachment(self):
        """auto and never go on without the mapping, always does not."""
        for name in ('nothere', 'failattach'):
            self.record.unlink(missing_ok=True)
            self.assertIn('on demand', self.run_qemu(name).stderr)
            self.assertEqual(self.seen()['commands'], ['qmp_capabilities', 'cont'])
            self.record.unlink()
            self.run_qemu(name, options=['--decision=always'], code=125)
            self.assertEqual(self.seen()['commands'], ['qmp_capabilities'])
            self.assertEqual(self.json('vms'), [])

    def test_qemu_fails_at_start(self):
        result = self.run_qemu('db', '-fake-fail', '3', code=3)
        self.assertIn('QEMU ended (exit status 3) while it was starting', result.stderr)
        self.assertEqual(self.json('vms'), [])

    def test_no_qemu(self):
        run = ['run', '--name=db', '--memory=64M', '--']
        self.assertIn('No such file', self.tdpctl(*run, '/nonexistent/qemu', code=127).stderr)
        self.assertIn('Permission denied', self.tdpctl(*run, '/etc/passwd', code=126).stderr)
        self.assertEqual(self.json('vms'), [])

    def test_daemon_dies_under_a_running_guest(self):
        process = self.spawn(TDPCTL, 'run', '--name=db', '--memory=64M', '--', FAKE_QEMU, '-fake-stay', 'x', stderr=subprocess.PIPE,
                             text=True)
        self.wait_until(lambda: self.record.exists() and self.seen()['commands'][-1:] == ['cont'], 'the guest')
        self.daemon.kill()
        self.daemon.wait()
        time.sleep(0.5)
        self.assertIsNone(process.poll())
        os.kill(self.seen()['pid'], signal.SIGTERM)
        self.assertEqual(process.wait(20), 128 + signal.SIGTERM)
        self.assertIn('may not be released', process.stderr.read())

    def test_interrupted_release(self):
        process = self.spawn(TDPCTL, 'run', '--name=db', '--memory=64M', '-q', '--', FAKE_QEMU, '-fake-stay', 'x')
        self.wait_until(lambda: self.record.exists() and self.seen()['commands'][-1:] == ['cont'], 'the guest')
        self.daemon.send_signal(signal.SIGSTOP)
        pid = self.seen()['pid']
        os.kill(pid, signal.SIGKILL)
        # It is waited for when its entry in /proc goes.
        self.wait_until(lambda: not os.path.exists(f'/proc/{pid}'), "QEMU's end")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), -signal.SIGINT)

    def test_guest_outlives_tdpctl(self):
        process = self.spawn(TDPCTL, 'run', '--name=db', '--memory=64M', '-q', '--', FAKE_QEMU, '-fake-stay', 'x')
        self.wait_until(lambda: self.record.exists() and self.seen()['commands'][-1:] == ['cont'], 'the guest')
        process.kill()
        process.wait()
        pid = self.seen()['pid']
        time.sleep(0.5)
        os.kill(pid, 0)
        os.kill(pid, signal.SIGKILL)

    def test_stats_file(self):
        stats = self.folder / 'stats.json'
        printed = self.run_qemu('db', '-fake-shutdown', '1', options=[f'--stats-file={stats}', '--json'])
        written = json.loads(stats.read_text())
        self.assertEqual(json.loads(printed.stdout), written)
        self.assertEqual(set(written), {'name', 'populate_ns', 'build_ns', 'guest_ns', 'pinned_bytes', 'mapped_bytes', 'faults',
                                        'faults_other', 'leaves', 'qemu', 'samples', 'sampled_at_shutdown', 'vm'})
        self.assertEqual(set(written['vm']), VM_KEYS)
        self.assertTrue(written['sampled_at_shutdown'])
        self.assertEqual(written['leaves'], {'4k': 16384, '2m': 0, '1g': 0})
        self.assertEqual((written['build_ns'], written['pinned_bytes']), (1500000, 64 << 20))

    def test_stats_file_that_cannot_be_written(self):
        result = self.run_qemu('db', options=['--stats-file=/nonexistent/stats'], code=125)
        self.assertIn('/nonexistent/stats', result.stderr)
        self.assertEqual(self.json('vms'), [])


if __name__ == '__main__':
    main()
