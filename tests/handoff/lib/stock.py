# SPDX-License-Identifier: LGPL-2.1-or-later
"""The guest moved by QEMU alone, with memory that was allocated when QEMU started, as everybody does it."""

from guest import Guest
from hosts import A, B
from machine import Machine, command, incoming, kill_all, migrate, prepare, put_first, stock_memory
from measure import Watch


def measure(size, megabytes, hot, limit_ms=2000):
    guest = Guest()
    try:
        args = [*command(guest), *stock_memory(size, megabytes)]
        source = Machine.start(A, *args)
        guest.connected(0)
        guest.expect('ready')
        guest.tell(str(hot))
        guest.expect('hot')

        watch = Watch(guest)
        # It lets the guest run by itself when all is there.
        there = Machine.start(B, *args, *incoming())
        prepare(source, there, downtime_ms=limit_ms)
        for machine in (source, there):
            put_first(machine.host, machine.pid)
        before = there.faults()
        info = migrate(source, B)
        watch.resumed(before)
        measured = watch.end(there.faults)
        measured.qemu = {key: info[key] for key in ('total-time', 'downtime', 'setup-time')} | {'ram': info['ram']}
        source.end()
        there.end()
        return measured
    finally:
        guest.close()
        kill_all(A, B)
