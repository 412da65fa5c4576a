# SPDX-License-Identifier: LGPL-2.1-or-later
"""Cancelled half-way: the guest goes on at the source as if nothing had been."""

from guest import Guest
from hosts import A, B, wait_for
from machine import Machine, command, incoming, kill_all, prepare, stock_memory
from vm import Migration, Pages, Running, clean, qmp, show, until_copying, vms

SIZE, MEGABYTES = '2M', 256
SLOW = 16 << 20  # bytes in a second, so that there is a middle


def goes_on(guest, line):
    """All of its memory is looked at, and it is let run for some seconds."""
    guest.stop(line)
    guest.sum(line)
    guest.go(line)
    guest.ticks_after(line, 300)


def without_tdpd():
    """Faults that the guest takes after a canceled migration."""
    guest = Guest()
    try:
        args = [*command(guest), *stock_memory(SIZE, MEGABYTES)]
        source = Machine.start(A, *args)
        line = guest.connected(0)
        guest.expect('ready')
        guest.go()
        guest.ticks_after(line, 200)
        leaves = source.leaves()
        there = Machine.start(B, *args, *incoming())
        prepare(source, there)
        source.qmp.command('migrate-set-parameters', **{'max-bandwidth': SLOW})
        source.qmp.command('migrate', uri='tcp:b:4446')
        until_copying(source.qmp)
        # From here on: leaves that were split are dropped with the end of logging, and faulted in again at once.
        faults = source.faults()
        source.qmp.command('migrate_cancel')
        wait_for(lambda: source.qmp.command('query-migrate')['status'] == 'cancelled', 'the migration to be canceled')
        goes_on(guest, line)
        return source.faults() - faults, leaves, source.leaves()
    finally:
        guest.close()
        kill_all(A, B)


def leaves_of(shown):
    return {size: shown[f'leaves_{size}'] for size in ('4k', '2m', '1g')}


def run(checks, results, _args):
    what = 'canceled half-way'
    bare = None
    with checks.check(f'{what}, without tdpd: the guest goes on'):
        bare = without_tdpd()
        print(f'  {bare[0]} faults afterwards; leaves {bare[1]} before and {bare[2]} afterwards')

    pages = Pages()
    guest = Guest()
    try:
        with checks.check(f'{what}, tdpd on both: the guest goes on'):
            running = Running(guest, SIZE, MEGABYTES)
            line = guest.lines[0]
            guest.go()
            guest.ticks_after(line, 200)
            before = show(A)
            migration = Migration('--bandwidth', '16M')
            connection = qmp(A)
            until_copying(connection)
            split = leaves_of(show(A))
            migration.interrupt()
            said = migration.end(want=None)
            goes_on(guest, line)
            wait_for(lambda: leaves_of(show(A)) == leaves_of(before), f'leaves as before, {leaves_of(before)}')
            # Those of dirty logging, which wants to see each first write, are over.
            before_that, faults = show(A), running.faults()
            goes_on(guest, line)
            after, faults = show(A), running.faults() - faults
            print(f'  leaves {leaves_of(before)} before, {split} half-way, {leaves_of(after)} afterwards; {faults} faults')
            checks.that(f'{what}: leaves were split meanwhile', split['2m'] < before['leaves_2m'], split)
            checks.that(f'{what}: no fault in built memory', after['faults_since_build'] == before_that['faults_since_build'],
                        f"{before_that['faults_since_build']}, then {after['faults_since_build']}")
            checks.that(f'{what}: no fault afterwards', faults == 0, faults)
            checks.that(f'{what}: it is said', 'cancel' in said.lower(), said)
            checks.that(f'{what}: nothing is left on the destination', not vms(B), vms(B))
            results['cancel'] = {'without tdpd': {'faults': bare[0] if bare else None}, 'tdpd': {'faults': faults}}
    finally:
        guest.close()
        with checks.check(f'{what}: no page is left behind'):
            clean()
            pages.check()
