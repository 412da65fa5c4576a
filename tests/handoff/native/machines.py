# SPDX-License-Identifier: LGPL-2.1-or-later
"""Two hosts with tdpd, kept as systemd keeps it, and guests that move between them."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from hosts import Failed, wait_for
from lab import TDPCTL, TDPD
from pair import Hosts

KEEPER = os.environ['KEEPER']
STOP_AT = os.environ['STOP_AT']
MEGABYTES = 32
MIGRATE_SEC = 150
ENDED = {'released', 'kept', 'done', 'gone'}


class Machine:
    """One of the two hosts."""

    def __init__(self, pair, name, folder, environment):
        self.pair, self.name, self.folder, self.environment = pair, name, folder, environment
        self.keeper, self.started = None, 0

    def start(self):
        (self.folder / 'tdpd.conf').write_text('')
        (self.folder / 'handles').mkdir()
        self.log = open(self.folder / 'tdpd.log', 'ab')
        self.pids = open(self.folder / 'tdpd.pids', 'ab')
        # As on the system bus, who calls while it is being started anew waits.
        self.pair.start_bus('Exec=/bin/sleep 5')
        self.keeper = self.pair.spawn(
            KEEPER, TDPD, f'--bus={self.environment["DBUS_SYSTEM_BUS_ADDRESS"]}', f'--config={self.folder}/tdpd.conf',
            f'--state-dir={self.folder}/state', f'--data-dir={self.folder}/data', f'--device=standin:kept:{self.folder}/handles',
            stdout=self.pids, stderr=self.log)
        wait_for(self.answers, f'tdpd on {self.name}', 20, 0.02)
        self.started = len(self.starts())

    def starts(self):
        return [int(line.split()[0]) for line in (self.folder / 'tdpd.pids').read_text().splitlines()]

    def tdpd(self):
        return self.starts()[-1]

    def call(self, *words):
        done = subprocess.run([TDPCTL, *words, '--json=short'], env=self.environment, capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def answers(self):
        return self.call('status') is not None

    def vms(self):
        return {vm['name'] for vm in self.call('vms') or []}

    def handoffs(self):
        return self.call('handoff', 'list') or []

    def processes(self):
        """{pid: [words]} of all that belongs to this host, but for its bus and tdpd."""
        found = {}
        mark = f'TDPCTL_RUNTIME_DIR={self.folder}/run'.encode()
        for entry in pathlib.Path('/proc').glob('[0-9]*'):
            with contextlib.suppress(OSError):
                if mark in (entry / 'environ').read_bytes().split(b'\0'):
                    words = (entry / 'cmdline').read_bytes().split(b'\0')
                    if words[0] and not re.search(rb'(keeper|tdpd-emulated|dbus-daemon|sleep)$', words[0]):
                        found[int(entry.name)] = [w.decode(errors='replace') for w in words]
        return found

    def find_all(self, program, *wanted):
        """The pids of that program's processes that have those words."""
        return [pid for pid, words in sorted(self.processes().items())
                if os.path.basename(words[0]) == program and all(w in words for w in wanted)]

    def find(self, program, *wanted):
        return next(iter(self.find_all(program, *wanted)), None)

    def qemus(self, name='db'):
        return self.find_all('qemu-system-x86_64', f'guest={name}')

    def qemu(self, name='db'):
        return next(iter(self.qemus(name)), None)

    def held(self):
        """Descriptors of memory and of handles that tdpd, or who keeps it, still has."""
        left = []
        for pid in (self.keeper.pid, self.tdpd()):
            with contextlib.suppress(OSError):
                for fd in pathlib.Path(f'/proc/{pid}/fd').iterdir():
                    with contextlib.suppress(OSError):
                        target = os.readlink(fd)
                        if 'memfd:tdpd' in target or f'{self.folder}/handles' in target:
                            left.append(target)
        return left

    def left(self):
        """What should not be there when nothing runs, in words."""
        words = []
        status = self.call('status')
        if status is None:
            return ['tdpd does not answer']
        if status['quarantine']:
            words.append(f'quarantine {status["quarantine"]}')
        if vms := self.vms():
            words.append(f'VMs {vms}')
        if active := [h for h in self.handoffs() if h['state'] not in ENDED]:
            words.append(f'handoffs {[(h["role"], h["state"]) for h in active]}')
        if held := self.held():
            words.append(f'descriptors {held}')
        state = self.folder / 'state'
        # What is draining has a folder, too.
        if records := [p.name for p in (*state.glob('*'), *state.glob('draining/*')) if p.is_file()]:
            words.append(f'records {records}')
        if odd := [p.name for sub in ('state', 'data') for p in (self.folder / sub / 'handoff').glob('*') if p.suffix != '.handoff']:
            words.append(f'files {odd}')
        if processes := self.processes():
            words.append(f'processes {list(processes.values())}')
        if files := [str(p.relative_to(self.folder)) for p in (self.folder / 'run').glob('*') if p.suffix != '.log']:
            words.append(f'files {files}')
        if (now := len(self.starts())) != self.started:
            words.append(f'{now - self.started} tdpd more than were killed')
        return words


class Machines(Hosts):
    """The pair. Not a test of its own: whoever makes it calls begin() and end()."""

    def begin(self, page_size='2M'):
        self.setUp()
        self.page_size = page_size
        self.a = Machine(self, 'a', self.folder, self.environment)
        self.b = Machine(self, 'b', self.far_folder, self.far_environment)
        try:
            self.a.start()
            with self.far():
                self.b.start()
        except BaseException:
            self.end()
            raise
        return self

    def end(self):
        self.kill_all()
        for machine in (self.a, self.b):
            if machine.keeper:
                machine.keeper.terminate()
                machine.keeper.wait(20)
        self.doCleanups()

    def kill_all(self):
        for machine in (self.a, self.b):
            for pid in machine.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def start_guest(self, guest, elf, machine=None, name='db', decision='always'):
        """tdpctl run, with a guest that ticks."""
        machine = machine or self.a
        n = len(guest.lines)
        self.run_log = open(machine.folder / f'run-{name}.log', 'ab')
        process = subprocess.Popen(
            [TDPCTL, 'run', f'--name={name}', f'--memory={MEGABYTES}M', f'--page-size={self.page_size}', f'--decision={decision}', '--',
             'qemu-system-x86_64', '-accel', 'tcg', '-nodefaults', '-no-user-config', '-display', 'none', '-machine', 'pc',
             '-name', f'guest={name}', '-kernel', str(elf), *guest.args()],
            env=machine.environment, stdin=subprocess.DEVNULL, stdout=self.run_log, stderr=self.run_log)
        wait_for(lambda: len(guest.lines) > n or process.poll() is not None, 'the guest to start', 60, 0.01)
        if len(guest.lines) <= n:
            raise Failed(f'tdpctl run ended with status {process.returncode}')
        guest.expect('ready', seconds=60)
        guest.tell('1')
        guest.expect('hot', seconds=60)
        # It never sleeps, and the others have work to do.
        for thread in os.listdir(f'/proc/{machine.qemu(name)}/task'):
            os.setpriority(os.PRIO_PROCESS, int(thread), 19)
        guest.go()
        guest.ticks_after(guest.lines[n], 5, 60)
        return process

    def migrate(self, machine=None, name='db', **more):
        return subprocess.Popen([TDPCTL, 'migrate', name, '--to=127.0.0.1', '--downtime-limit=2000'],
                                env={**(machine or self.a).environment, **more}, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace')

    def migrate_watched(self, log, message='', count=1):
        """Stops after its count-th such message, see stop-at.c."""
        asan = os.environ.get('ASAN_OPTIONS', '')
        return self.migrate(LD_PRELOAD=STOP_AT, STOP_AT_LOG=str(log), STOP_AT_MESSAGE=message, STOP_AT_COUNT=str(count),
                            ASAN_OPTIONS=f'{asan}:verify_asan_link_order=0')


def said_of(process, seconds=MIGRATE_SEC):
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failed(f'tdpctl migrate does not end within {seconds} s: {process.communicate()[0][-1500:]}') from None


def stopped(process, seconds=60):
    """Until it has stopped itself: True, or ended: False."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        info = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info:
            if info.si_code == os.CLD_STOPPED:
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG)
                return True
            return False
        time.sleep(0.002)
    process.kill()
    raise Failed(f'tdpctl migrate neither stops nor ends: {process.communicate()[0][-1500:]}')


def kill(pid):
    """Returns when the process has ended, reaped or not."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)

    def ended():
        try:
            return pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] in 'ZX'
        except OSError:
            return True
    wait_for(ended, f'the end of process {pid}', 20, 0.002)


def quit_qemu(machine, name='db'):
    pid = machine.qemu(name)
    if pid:
        os.kill(pid, signal.SIGTERM)
