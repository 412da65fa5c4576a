#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""tdpctl migrate and tdpctl handoff: two QEMUs, two buses on one machine, and a stand-in for SSH that runs
the far end here. The daemons are stand-ins, too, which fail where they are told to, or real ones.

  test-migrate.py CLASS...
"""

import base64
import contextlib
import fcntl
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import time

from contract import MIGRATE_KEYS
from lab import FAKE_TDPD, TDPCTL, TDPD, main
from pair import Hosts

QEMU = ['qemu-system-x86_64', '-accel', 'tcg', '-nodefaults', '-display', 'none', '-machine', 'pc']
QEMU_KVM = ['kvm' if word == 'tcg' else word for word in QEMU]
# More than the guest touches by itself, at an address where its firmware has nothing.
PATTERN = random.Random(5).randbytes(4 << 20)
PATTERN_AT = 16 << 20


class Pair(Hosts):
    def setUp(self):
        super().setUp()
        self.words = self.folder / 'words'
        self.words.write_text('')
        for environment in (self.environment, self.far_environment):
            environment['FAKE_HANDOFF'] = str(self.words)

    def end_qemus(self):
        """The far QEMU is nobody's child, and the near one a grandchild."""
        for folder in (self.far_folder, self.folder):
            vm = self.vm_json(folder)
            if vm:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(vm['pid'], signal.SIGKILL)
                self.wait_until(lambda: not (folder / 'run/db').exists(), 'the end of "run"')

    def far_pid(self):
        vm = self.vm_json(self.far_folder)
        return vm and vm['pid']

    def qmp(self, folder, *commands):
        """Executes them; returns what the last one does."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(str(folder / 'run/db/qmp'))
            f = s.makefile('rw')
            f.readline()
            for command in ('qmp_capabilities', *commands):
                f.write(json.dumps({'execute': command}))
                f.flush()
                while 'event' in (answer := json.loads(f.readline())):
                    pass
        return answer['return']

    def status(self, folder):
        return self.qmp(folder, 'query-status')['status']

    def memory(self, folder, mode):
        pid = self.vm_json(folder)['pid']
        for fd in pathlib.Path(f'/proc/{pid}/fd').iterdir():
            with contextlib.suppress(FileNotFoundError):
                if 'memfd:' in os.readlink(fd) and os.stat(fd).st_size == 64 << 20:
                    return open(fd, mode)
        raise AssertionError('QEMU has no such memory')

    def start_run(self, *options, qemu=QEMU):
        self.run_process = self.spawn(TDPCTL, 'run', '--name=db', '--memory=64M', '-q', *options, '--', *qemu,
                                      stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(self.end_qemus)  # before the "run" that looks after it is killed
        self.wait_until(lambda: self.vm_json(self.folder) or self.run_process.poll() is not None, 'QEMU')
        self.wait_until(lambda: self.status(self.folder) == 'running', 'the guest')
        with self.memory(self.folder, 'r+b') as memory:
            memory.seek(PATTERN_AT)
            memory.write(PATTERN)

    def migrate(self, *options, code=0):
        result = subprocess.run([TDPCTL, 'migrate', 'db', '--to=127.0.0.1', '--json', *options], env=self.environment,
                                capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
        self.said = result.stderr
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        seen = json.loads(result.stdout)
        self.assertEqual(set(seen), MIGRATE_KEYS)
        return seen

    def start_migrate(self, *options):
        return self.spawn(TDPCTL, 'migrate', 'db', '--to=127.0.0.1', '--json', *options, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)

    def states(self):
        near = {h['role']: h['state'] for h in self.json('handoff', 'list')}
        with self.far():
            return near | {h['role']: h['state'] for h in self.json('handoff', 'list')}

    def check_there(self):
        self.assertEqual(self.status(self.far_folder), 'running')
        with self.memory(self.far_folder, 'rb') as memory:
            memory.seek(PATTERN_AT)
            self.assertEqual(memory.read(len(PATTERN)), PATTERN)
        self.assertEqual(self.run_process.wait(20), 0)
        self.assertFalse((self.folder / 'run/db').exists())

    def check_here(self, handoff=True):
        """The guest is where it was, and nothing is left of the attempt."""
        self.wait_until(lambda: not (self.far_folder / 'run/db').exists(), 'the end of the far QEMU')
        self.wait_until(lambda: self.status(self.folder) == 'running', 'the guest, which goes on')
        self.wait_until(lambda: not (self.folder / 'run/db/migration').exists(), 'the mark')
        with self.memory(self.folder, 'rb') as memory:
            memory.seek(PATTERN_AT)
            self.assertEqual(memory.read(len(PATTERN)), PATTERN)
        if handoff:
            self.wait_until(lambda: set(self.states().values()) <= {'kept', 'gone'}, 'the end of the handoff')
        with self.far():
            self.wait_until(lambda: self.json('vms') == [], 'that the destination has freed all')
        self.assertIsNone(self.run_process.poll())


class Migrate(Pair):
    def setUp(self):
        super().setUp()
        self.near_daemon = self.start_fake()
        with self.far():
            self.far_daemon = self.start_fake()
        self.start_run()

    def test_there(self):
        seen = self.migrate()
        self.assertEqual((seen['migrated'], seen['owner'], seen['how'], seen['failed_phase']), (True, 'destination', 'handoff', None))
        self.assertEqual(self.states(), {'source': 'released', 'destination': 'done'})
        self.assertGreater(seen['transferred_bytes'], len(PATTERN))
        self.assertEqual(seen['built_bytes'], 64 << 20)
        self.assertTrue(0 < seen['blackout_usec'] < seen['total_usec'])
        self.assertEqual(self.json('vms'), [])
        with self.far():
            self.assertEqual([vm['state'] for vm in self.json('vms')], ['built'])
        self.check_there()
        # What runs there is a run as any other one.
        self.assertEqual(self.vm_json(self.far_folder)['argv'], QEMU)
        self.assertEqual(self.qmp(self.far_folder, 'query-migrate')['status'], 'completed')

    def failed(self, word, phase, *options, **more):
        self.words.write_text(word)
        seen = self.migrate(*options, code=1)
        self.assertEqual((seen['migrated'], seen['owner'], seen['failed_phase']), (False, 'source', phase), self.said)
        self.check_here(**more)
        self.words.write_text('')

    def test_refused(self):
        """At one step after the other, of the same guest: each time it goes on as before. Then nothing is in the way."""
        for word, phase in (('refuse-offer', 'offer'), ('refuse-prepare', 'prepare'), ('cancel-prepare', 'prepare'),
                            ('refuse-start', 'split'), ('refuse-commit', 'commit'), ('abort-commit', 'commit')):
            with self.subTest(word):
                self.failed(word, phase)
        self.migrate()
        self.check_there()

    def test_qemu_fails(self):
        self.failed('', 'incoming', '--', 'false')
        self.failed('', 'incoming', '--', '/nonexistent/qemu')
        # Not the same machine: what comes cannot be loaded.
        self.failed('', 'copy', '--', *QEMU[:-1], 'q35')
        self.failed('', 'incoming', '--data-address=192.0.2.1')
        self.migrate()
        self.check_there()

    def test_attempt_before_still_ends(self):
        """Its far "run" is waited for: without its control socket nobody could let a guest run there, or end it."""
        folder = self.far_folder / 'run/db'
        folder.mkdir(parents=True)
        folder.chmod(0o700)
        folder.parent.chmod(0o700)
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            process = self.start_migrate()
            self.wait_until(lambda: self.states().get('destination') == 'ready', 'the answer')
            self.assertIsNone(self.vm_json(self.far_folder))
        finally:
            os.close(lock)
        self.assertTrue(json.loads(process.communicate(timeout=60)[0])['migrated'])
        self.check_there()

    def test_cannot_be_loaded(self):
        """The source's QEMU is done, and has said so, before that of the destination fails: then nobody takes it there."""
        seen = self.migrate('--', *QEMU[:-1], 'pc,hpet=off', code=1)
        self.assertEqual((seen['migrated'], seen['owner']), (False, 'source'), self.said)
        self.assertIn(seen['failed_phase'], ('copy', 'commit'))
        self.check_here()
        self.migrate()
        self.check_there()

    def test_far_run_does_not_answer(self):
        """It is stopped when it is to commit: the destination's tdpd is asked from here."""
        process = self.start_migrate('--bandwidth=2M')
        self.wait_until(lambda: process.poll() is not None or self.states().get('source') == 'started', 'the start')
        far_run = int(pathlib.Path(f'/proc/{self.far_pid()}/status').read_text().split('PPid:')[1].split()[0])
        os.kill(far_run, signal.SIGSTOP)
        self.addCleanup(os.kill, far_run, signal.SIGCONT)
        output = process.communicate(timeout=60)[0]
        self.assertEqual((process.returncode, json.loads(output)['owner']), (0, 'destination'))
        os.kill(far_run, signal.SIGCONT)
        self.check_there()

    def test_answers_are_lost_or_late(self):
        self.words.write_text('lose-complete slow-verify')
        self.assertTrue(self.migrate()['migrated'])
        self.assertEqual(self.states(), {'source': 'released', 'destination': 'done'})
        self.check_there()

    def test_doubt(self):
        """The destination has been asked to take it, and does not answer: the guest stands still until it does."""
        self.words.write_text('mute')
        seen = self.migrate('--deadline=3', code=4)
        self.assertEqual((seen['migrated'], seen['owner'], seen['failed_phase']), (False, 'unknown', 'commit'))
        self.assertIn('migrate db --to=127.0.0.1', self.said)
        self.assertEqual(self.states()['source'], 'committing')
        time.sleep(1)  # "run" looks twice a second: it must not let it go on
        self.assertEqual((self.status(self.folder), self.status(self.far_folder)), ('postmigrate', 'paused'))
        self.words.write_text('')
        self.assertTrue(self.migrate()['migrated'])
        self.assertIn('going on with it', self.said)
        self.check_there()

    def copying(self, *options):
        """One that takes long."""
        process = self.start_migrate('--bandwidth=256K', *options)
        self.wait_until(lambda: process.poll() is not None or self.states().get('source') == 'started', 'the start')
        self.wait_until(lambda: process.poll() is not None or self.far_pid(), 'the far QEMU')
        self.assertIsNone(process.poll())
        return process

    def test_canceled(self):
        process = self.copying()
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=30)[0]
        self.assertEqual(process.returncode, 130)
        self.assertEqual(json.loads(output)['owner'], 'source')
        self.check_here()

    def test_deadline(self):
        seen = self.migrate('--bandwidth=256K', '--deadline=2', code=1)
        self.assertEqual((seen['owner'], seen['failed_phase']), ('source', 'copy'))
        self.check_here()

    def test_killed(self):
        """Before commit: "run" of both sides see to it, and the next one has a free way."""
        process = self.copying()
        process.kill()
        process.wait()
        self.check_here()
        self.migrate()
        self.check_there()

    def test_killed_in_doubt(self):
        self.words.write_text('mute')
        process = self.start_migrate()
        self.wait_until(lambda: self.states().get('source') == 'committing', 'commit')
        process.kill()
        process.wait()
        time.sleep(1)
        self.assertEqual(self.status(self.folder), 'postmigrate')
        self.words.write_text('')
        self.migrate()
        self.check_there()

    def test_killed_before_it_runs_there(self):
        """The destination has taken it: its "run" lets it run, and the next one has this host free its memory."""
        self.words.write_text('hold-verify')
        process = self.start_migrate()
        self.wait_until(lambda: self.states().get('destination') == 'verifying', 'commit')
        process.kill()
        process.wait()
        self.words.write_text('')
        self.wait_until(lambda: self.status(self.far_folder) == 'running', 'the guest')
        self.assertEqual(self.status(self.folder), 'postmigrate')
        self.migrate()
        self.check_there()

    def test_far_qemu_dies(self):
        process = self.copying()
        os.kill(self.far_pid(), signal.SIGKILL)
        output = process.communicate(timeout=30)[0]
        self.assertEqual((process.returncode, json.loads(output)['owner']), (1, 'source'))
        self.check_here()

    def test_two_at_once(self):
        process = self.copying()
        self.assertEqual(self.migrate(code=1)['failed_phase'], 'connect')
        self.assertIn('another tdpctl', self.said)
        process.send_signal(signal.SIGINT)
        process.wait(30)
        self.check_here()

    def test_no_tdpd_there(self):
        self.far_daemon.kill()
        self.far_daemon.wait()
        self.assertEqual(self.migrate()['how'], 'plain')
        self.assertIn('on demand', self.said)
        self.check_there()

    def test_no_tdpd_here(self):
        self.near_daemon.kill()
        self.near_daemon.wait()
        seen = self.migrate()
        self.assertEqual((seen['how'], seen['built_bytes']), ('reserve', 64 << 20))
        self.assertEqual(self.status(self.far_folder), 'running')

    def test_post_copy(self):
        seen = self.migrate('--post-copy', '--bandwidth=2M')
        self.assertEqual((seen['migrated'], seen['how']), (True, 'handoff'))
        self.check_there()
        with self.far():
            self.assertEqual([vm['state'] for vm in self.json('vms')], ['built'])

    def test_wrong_use(self):
        for words, says, code in ((['migrate', 'db'], '--to', 2), (['migrate', 'db', '--to=-x'], 'not a host', 2),
                                  (['migrate', 'db', '--to=x', '--port=70000'], 'not a TCP port', 2),
                                  (['migrate', 'db', '--to=x', '-H', 'y'], '--host has no meaning', 2),
                                  (['migrate', 'no', '--to=127.0.0.1'], 'runs it now', 1),
                                  (['migrate', '../x', '--to=127.0.0.1'], 'not the name', 1)):
            self.assertIn(says, self.tdpctl(*words, code=code).stderr)


class Handoff(Pair):
    """By hand: each message goes through a file or a pipe, in each encoding."""

    def setUp(self):
        super().setUp()
        self.start_fake()
        with self.far():
            self.start_fake()
        self.tdpctl('attach', 'db', os.getpid())

    def call(self, *words, data=b'', code=0):
        result = subprocess.run([TDPCTL, 'handoff', *words], env=self.environment, input=data, capture_output=True, timeout=30,
                                check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        self.said = result.stderr.decode()
        return result.stdout

    def test_all_the_way(self):
        offer = self.call('offer', 'db', '--deadline=60', '--page-sizes=2M,4K')
        self.assertTrue(offer.startswith(b'offer '))
        with self.far():
            answer = self.call('prepare', '-q', '--page-size=4K', data=offer)
            self.assertEqual(bytes.fromhex(self.call('prepare', '--encoding=hex', data=offer.hex().encode()).decode()), answer)
        self.assertEqual(self.call('deliver', data=answer), b'')
        self.assertEqual(self.json('handoff', 'show', 'db')['state'], 'granted')
        start = self.call('start', 'db', '--logging=bitmap', '--encoding=base64')
        with self.far():
            (self.folder / 'start').write_bytes(start)
            self.assertEqual(self.call('deliver', str(self.folder / 'start'), '--encoding=base64'), b'')
        commit = json.loads(self.call('commit', 'db', '--json'))
        self.assertEqual((commit['state'], commit['role']), ('committing', 'source'))
        self.assertIn('late', self.call('cancel', 'db', code=1).decode() + self.said)
        with self.far():
            self.call('deliver', '--output', str(self.folder / 'complete'), data=base64.b64decode(commit['message']))
            complete = self.folder / 'complete'
            self.assertEqual(complete.stat().st_mode & 0o777, 0o600)
        self.call('deliver', str(complete))
        released = self.wait_until(lambda: self.call('next', 'db'), 'that it is released')
        self.assertEqual(self.call('next', 'db'), b'')
        with self.far():
            self.call('deliver', '-', data=released)
        self.assertEqual(self.states(), {'source': 'released', 'destination': 'done'})
        self.assertEqual(set(self.json('handoff', 'forget', 'db')), {'id', 'role'})
        self.assertEqual(self.json('handoff'), [])

    def test_canceled(self):
        offer = self.call('offer', 'db')
        with self.far():
            answer = self.call('prepare', data=offer)
        self.call('deliver', data=answer)
        self.call('cancel', 'db')
        abort = self.call('next', 'db')
        with self.far():
            self.call('deliver', data=abort)
        self.wait_until(lambda: self.states() == {'source': 'kept', 'destination': 'gone'}, 'the end')

    def test_people(self):
        self.call('offer', 'db')
        self.assertIn('offered', self.tdpctl('handoff').stdout)
        text = self.tdpctl('handoff', 'show', 'db').stdout
        self.assertIn('source of VM "db"', text)
        self.assertNotIn('(null)', text)

    def test_wrong_use(self):
        for words, says, code in ((['fly'], 'cannot be done', 2), (['offer'], 'Which one', 2), (['list', 'x'], 'too many', 2),
                                  (['offer', 'db', '--encoding=rot13'], 'binary, base64 or hex', 2),
                                  (['offer', 'db', '--page-sizes=2M,x'], 'no list of page sizes', 2),
                                  (['offer', 'db', '--logging=ring'], 'no meaning', 2),
                                  (['show', 'db', '--role=both'], 'source or destination', 2),
                                  (['show', 'db'], 'There is no handoff', 1), (['offer', 'no'], 'NoSuchVM', 1),
                                  (['deliver', '/nonexistent'], 'cannot be opened', 1)):
            self.call(*words, code=code)
            self.assertIn(says, self.said)
        for encoding, data in (('binary', b''), ('base64', b'????'), ('base64', b'abc'), ('base64', b'ab=c'), ('base64', b'a==='),
                               ('hex', b'abc'), ('hex', b'xy'), ('hex', b' \n')):
            self.call('deliver', f'--encoding={encoding}', data=data, code=1)
            self.assertRegex(self.said, 'no message')
        self.call('deliver', data=b'x' * 70000, code=1)
        self.assertIn('What is in standard input is longer than', self.said)
        self.call('deliver', data=b'nonsense', code=1)
        self.assertIn('org.tdpd1.Error.BadMessage', self.said)


class RealMigrate(Pair):
    """With real daemons: what they agree on, and what "migrate" makes of it."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest('reserving memory needs root')
        if not os.access('/dev/kvm', os.R_OK | os.W_OK):
            self.skipTest('there is no KVM here, and without one there is no VM to attach to')
        lock = open('/tmp/tdpd-test-pool.lock', 'a')
        self.addCleanup(lock.close)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.start_real()
        with self.far():
            self.start_real()
        self.start_run('--page-size=4K', qemu=QEMU_KVM)

    def start_real(self):
        self.start_bus()
        return self.start_on_bus(TDPD, f'--bus={self.environment["DBUS_SYSTEM_BUS_ADDRESS"]}',
                                 f'--data-dir={self.folder / "data"}')

    def test_there(self):
        seen = self.migrate()
        self.assertEqual((seen['migrated'], seen['owner'], seen['how']), (True, 'destination', 'handoff'))
        self.assertEqual(self.states(), {'source': 'released', 'destination': 'done'})
        self.check_there()
        self.assertEqual(self.json('vms'), [])
        with self.far():
            vm = self.json('show', 'db')
        self.assertEqual((vm['bytes'], vm['page_size'], vm['generation']), (64 << 20, 4096, 2))

    def test_canceled(self):
        process = self.start_migrate('--bandwidth=256K')
        self.wait_until(lambda: process.poll() is not None or self.states().get('source') == 'started', 'the start')
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130)
        self.check_here()
        self.assertEqual([vm['name'] for vm in self.json('vms')], ['db'])
        self.assertTrue(self.migrate()['migrated'])
        self.check_there()

    def test_killed(self):
        process = self.start_migrate('--bandwidth=256K')
        self.wait_until(lambda: process.poll() is not None or self.states().get('source') == 'started', 'the start')
        process.kill()
        process.wait()
        self.check_here()

    def test_too_small(self):
        """The destination refuses before anything changes here."""
        seen = self.migrate('--nodes=0', '--page-size=2M', '--page-sizes=2M', code=1)
        self.assertEqual((seen['owner'], seen['failed_phase']), ('source', 'prepare'))
        self.assertIn('org.tdpd1.Error.NoPages', self.said)
        self.check_here()


if __name__ == '__main__':
    main()
