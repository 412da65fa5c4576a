# SPDX-License-Identifier: LGPL-2.1-or-later
"""The same guest moved without tdpd and with it, in one run."""

import dataclasses
import json

import stock
from guest import Guest
from hosts import A, B, Failed, wait_for
from machine import put_first
from measure import Watch, best, table
from vm import Migration, Pages, Running, clean, qemus, show, vms

SIZES = {'2M': 256, '4K': 128}
HOT = 1         # times 8 MiB that the guest writes to without end
LIMIT_MS = 300  # for the last round of copying: QEMU's default
TICKS_S = 0.02  # how exactly a blackout is known: a tick on each side


def with_tdpd(size, megabytes):
    """Measured, and what tdpd on the destination says of the VM afterwards."""
    guest = Guest()
    try:
        running = Running(guest, size, megabytes, hot=HOT)
        watch = Watch(guest)
        migration = Migration('--json=short', limit_ms=LIMIT_MS)
        put_first(A, running.pid)
        wait_for(lambda: len(guest.lines) > 1 or migration.process.poll() is not None, "the destination's QEMU")
        if qemus(B):
            put_first(B, qemus(B)[0])
        said = json.loads(next(line for line in migration.end().splitlines() if line.startswith('{')))
        # All that KVM has counted since the destination's QEMU was there, firmware and devices included.
        watch.resumed(0)
        pid = qemus(B)[0]
        measured = watch.end(lambda: B.kvm_stat(pid, 'pf_fixed'))
        running.ended()
        shown = show(B)
        measured.tdpd = {key: shown[key] for key in ('state', 'faults_since_build', 'faults_other', 'holes', 'leaves_4k',
                                                     'leaves_2m', 'pinned_bytes')}
        measured.qemu = {'downtime': said['blackout_usec'] / 1000, 'ram': {'transferred': said['transferred_bytes']}}
        measured.phases = {phase['phase']: phase['usec'] for phase in said['phases']}
        print(f'  milliseconds: {({name: usec // 1000 for name, usec in measured.phases.items()})}', flush=True)
        if vms(A):
            raise Failed(f'tdpd of the source still has {list(vms(A))}')
        return measured
    finally:
        guest.close()
        clean()


def run(checks, results, args):
    # A guest on two nodes loses its mapping again and again to the kernel's balancing, unless it is pinned.
    for host in (A, B):
        host.sh('echo 0 >/proc/sys/kernel/numa_balancing', check=False)
    for size, megabytes in SIZES.items():
        runs = {'without tdpd': [], 'tdpd on both': []}
        pages = Pages()
        what = f'{megabytes} MiB in pages of {size}'
        for turn in range(args.turns):
            with checks.check(f'{what}, without tdpd, {turn + 1}: moved, and its memory is what it was'):
                runs['without tdpd'].append(stock.measure(size, megabytes, HOT, LIMIT_MS))
            with checks.check(f'{what}, tdpd on both, {turn + 1}: moved, and its memory is what it was'):
                runs['tdpd on both'].append(with_tdpd(size, megabytes))
                no_faults(checks, f'{what}, {turn + 1}', runs['tdpd on both'][-1])
        with checks.check(f'{what}: no page is left behind'):
            pages.check()
        results[f'compare-{size}'] = {name: [dataclasses.asdict(m) for m in turns] for name, turns in runs.items()}
        if all(runs.values()):
            runs = {name: best(turns) for name, turns in runs.items()}
            table(runs)
            compare(checks, what, *runs.values())


def no_faults(checks, what, tdpd):
    checks.that(f'{what}: no fault in built memory after the resume', tdpd.tdpd['faults_since_build'] == 0, tdpd.tdpd)
    checks.that(f'{what}: what KVM counts besides is firmware and devices', tdpd.faults <= tdpd.tdpd['faults_other'] + 2,
                f"pf_fixed {tdpd.faults}, of which tdpd knows {tdpd.tdpd['faults_other']}")
    checks.that(f'{what}: no hole', tdpd.tdpd['holes'] == 0, tdpd.tdpd)


def compare(checks, what, bare, tdpd):
    checks.that(f'{what}: without tdpd there are faults', bare.faults > 0, bare.faults)
    checks.that(f'{what}: the blackout is not longer', tdpd.blackout_s <= bare.blackout_s + TICKS_S,
                f'{tdpd.blackout_s:.3f} s, without tdpd {bare.blackout_s:.3f} s')
    checks.that(f'{what}: sooner back at full speed', tdpd.until_full_s < bare.until_full_s,
                f'{tdpd.until_full_s:.3f} s, without tdpd {bare.until_full_s:.3f} s')
