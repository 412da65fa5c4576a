# SPDX-License-Identifier: LGPL-2.1-or-later
"""A QEMU on one of the hosts, by the same command line on both, and QEMU's own migration."""

import time

from hosts import A, WAIT, Failed, wait_for
from qmp import Qmp

ELF = '/root/dirty.elf'
QMP_PORT = 4445
MIGRATION_PORT = 4446
MIB = 1 << 20


def command(guest):
    """What both QEMUs have in common, but for the memory."""
    return ['qemu-system-x86_64', '-accel', 'kvm', '-cpu', 'host', '-smp', '1', '-nodefaults', '-no-user-config',
            '-display', 'none', '-vga', 'none', '-kernel', ELF, '-qmp', f'tcp::{QMP_PORT},server=on,wait=off',
            *guest.args()]


def stock_memory(size, megabytes, prealloc=True):
    huge = '' if size == '4K' else f',hugetlb=on,hugetlbsize={size}'
    prealloc = 'on' if prealloc else 'off'
    return ['-m', f'{megabytes}M', '-machine', 'pc,memory-backend=ram',
            '-object', f'memory-backend-memfd,id=ram,size={megabytes}M,share=on,prealloc={prealloc}{huge}']


class Machine:
    def __init__(self, host, pid, port=QMP_PORT):
        self.host, self.pid = host, pid
        self.qmp = Qmp(host.name, port)

    @classmethod
    def start(cls, host, *args):
        pidfile = f'/run/tdp-host/qemu-{time.monotonic_ns()}.pid'
        host.run(*args, '-daemonize', '-pidfile', pidfile)
        return cls(host, int(host.read(pidfile)))

    def faults(self):
        return self.host.kvm_stat(self.pid, 'pf_fixed')

    def leaves(self):
        return {size: self.host.kvm_stat(self.pid, f'pages_{size}') for size in ('4k', '2m', '1g')}

    def end(self):
        self.qmp.close()
        self.host.kill(self.pid)


def put_first(host, pid):
    """An emulated host does everything on one CPU of ours. On a real one, tools have others than the guest."""
    host.sh(f'renice -n -15 $(ls /proc/{pid}/task) >/dev/null')


def prepare(*machines, downtime_ms=2000):
    """Settings of a migration, the same for all."""
    for machine in machines:
        machine.qmp.command('migrate-set-capabilities', capabilities=[{'capability': 'events', 'state': True}])
        machine.qmp.command('migrate-set-parameters', **{'downtime-limit': downtime_ms, 'max-bandwidth': 1 << 34})


def migrate(source, to):
    """Until it is over."""
    source.qmp.command('migrate', uri=f'tcp:{to.name}:{MIGRATION_PORT}')

    def over():
        info = source.qmp.command('query-migrate')
        if info['status'] in ('failed', 'cancelled'):
            raise Failed(f"QEMU's migration has {info['status']}: {info.get('error-desc', '')}")
        return info if info['status'] == 'completed' else None
    return wait_for(over, "the end of QEMU's migration", 2 * WAIT)


def incoming():
    return ['-incoming', f'tcp:0:{MIGRATION_PORT}']


def kill_all(*hosts):
    for host in hosts or (A,):
        host.sh('for p in $(pidof qemu-system-x86_64); do kill -9 $p; done', check=False)
        wait_for(lambda host=host: not host.run('pidof', 'qemu-system-x86_64', check=False).stdout.strip(),
                 f'the end of QEMU on {host.name}')
