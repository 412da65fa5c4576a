# SPDX-License-Identifier: LGPL-2.1-or-later
"""The guest as a VM of tdpd's: tdpctl run, tdpctl migrate, and what tdpd says of it."""

import json
import signal
import subprocess

import machine
from hosts import A, B, WAIT, Failed, wait_for
from qmp import Qmp

NAME = 'mover'
MIGRATE = ['tdpctl', 'migrate', NAME, '--to', 'root@b']


def vms(host):
    """What tdpd has, by name; empty if there is none."""
    done = host.run('tdpctl', 'vms', '--json=short', check=False)
    return {vm['name']: vm for vm in json.loads(done.stdout)} if done.returncode == 0 else {}


def show(host, name=NAME):
    return json.loads(host.run('tdpctl', 'show', name, '--json=short'))


def qemus(host):
    return [int(pid) for pid in host.run('pidof', 'qemu-system-x86_64', check=False).stdout.split()]


def explain(text):
    """The end of what a tool said, for messages."""
    return text.strip()[-1500:]


class Running:
    """tdpctl run on host a, with a guest that is ready."""

    def __init__(self, guest, size, megabytes, *options, hot=4, decision='always'):
        self.guest = guest
        n = len(guest.lines)
        self.log = open(f'/run/tdp-host/run-{n}.log', 'w+', encoding='utf-8', errors='replace')
        self.process = subprocess.Popen(
            ['tdpctl', 'run', '--name', NAME, '--memory', f'{megabytes}M', '--page-size', size, '--decision', decision, *options,
             '--', *machine.command(guest), '-machine', 'pc'],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        wait_for(lambda: len(guest.lines) > n or self.process.poll() is not None, 'the guest to start')
        if len(guest.lines) <= n:
            raise Failed(f'tdpctl run ended with status {self.process.returncode}: {self.said()}')
        guest.expect('ready')
        guest.tell(str(hot))
        guest.expect('hot')
        self.pid = qemus(A)[0]

    def said(self):
        self.log.seek(0)
        return explain(self.log.read())

    def ended(self, seconds=WAIT):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f'tdpctl run does not end: {self.said()}') from None

    def faults(self):
        return A.kvm_stat(self.pid, 'pf_fixed')


class Migration:
    """tdpctl migrate, on host a."""

    def __init__(self, *options, under=(), limit_ms=2000):
        """limit_ms: how long the last round of copying may take. Long, so that it comes soon."""
        self.process = subprocess.Popen([*under, *MIGRATE, '--downtime-limit', str(limit_ms), *options],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        errors='replace')

    def end(self, want=0, seconds=2 * WAIT):
        """Its output; Failed if it ends in another way than that. None: in any way but well."""
        try:
            said, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failed(f'tdpctl migrate does not end: {explain(self.process.communicate()[0])}') from None
        status = self.process.returncode
        if status != want and (want is not None or status == 0):
            raise Failed(f'tdpctl migrate ended with status {status}: {explain(said)}')
        return said

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)


def qmp(host):
    return Qmp(host.name, machine.QMP_PORT)


def until_copying(connection, share=0.3):
    """Until QEMU has sent so much of the memory."""
    def copying():
        info = connection.command('query-migrate')
        ram = info.get('ram', {})
        return info.get('status') == 'active' and ram.get('transferred', 0) > share * ram.get('total', 1)
    wait_for(copying, 'the middle of the copying', step=0.02)


class Pages:
    """Free huge pages of both hosts, before and after."""

    def __init__(self, size='2M'):
        self.size = size
        self.before = self.now()

    def now(self):
        return {host.name: host.free_pages(self.size) for host in (A, B)}

    def check(self):
        wait_for(lambda: self.now() == self.before, f'all huge pages to be free again: {self.before}, now {self.now()}', 60)


def clean():
    """Nothing of a VM is left on either host, whatever was there."""
    machine.kill_all(A, B)
    for host in (A, B):
        wait_for(lambda host=host: not vms(host), f'tdpd on {host.name} to have no VM: {list(vms(host))}', 60)
