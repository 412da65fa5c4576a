# SPDX-License-Identifier: LGPL-2.1-or-later
"""The two hosts of a pair, seen from a: commands, files, KVM's counters."""

import pathlib
import shlex
import subprocess
import time

# How long anything may take. Emulation on a busy machine is slow.
WAIT = 300


class Failed(Exception):
    """What was expected did not happen."""


class Host:
    def __init__(self, name):
        self.name = name

    def argv(self, *args):
        """One connection serves all commands: making one costs seconds of an emulated CPU."""
        if self.name == 'a':
            return [str(a) for a in args]
        return ['ssh', '-o', 'ControlMaster=auto', '-o', 'ControlPath=/run/tdp-host/ssh-%h', '-o', 'ControlPersist=yes',
                self.name, shlex.join(str(a) for a in args)]

    def popen(self, *args, **more):
        return subprocess.Popen(self.argv(*args), stdin=subprocess.DEVNULL, **more)

    def run(self, *args, check=True, timeout=WAIT):
        """What the command writes to stdout, or Failed."""
        try:
            done = subprocess.run(self.argv(*args), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
                                  errors='replace')
        except subprocess.TimeoutExpired:
            raise Failed(f'{self.name}: {shlex.join(map(str, args))}: no end within {timeout} s') from None
        if check and done.returncode != 0:
            raise Failed(f'{self.name}: {shlex.join(map(str, args))}: status {done.returncode}: {done.stdout}{done.stderr}')
        return done.stdout if check else done

    def sh(self, script, **more):
        return self.run('sh', '-c', script, **more)

    def read(self, path):
        return self.run('cat', path).strip() if self.name != 'a' else pathlib.Path(path).read_text().strip()

    def alive(self, pid):
        return self.run('test', '-e', f'/proc/{pid}', check=False).returncode == 0

    def kill(self, pid, signal='TERM'):
        self.run('kill', f'-{signal}', pid, check=False)
        wait_for(lambda: not self.alive(pid), f'the end of process {pid} on {self.name}')

    def kvm_stat(self, pid, name):
        """A counter of the VM of a QEMU, its vCPUs added."""
        return int(self.sh(f'cat /sys/kernel/debug/kvm/{pid}-*/{name}'))

    def free_pages(self, size):
        kb = {'2M': 2048, '1G': 1048576}[size]
        return int(self.read(f'/sys/kernel/mm/hugepages/hugepages-{kb}kB/free_hugepages'))


def wait_for(condition, what, seconds=WAIT, step=0.1):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f'{what}: not within {seconds} s')
        time.sleep(step)


A = Host('a')
B = Host('b')
