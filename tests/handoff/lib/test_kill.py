# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Each process of a handoff is killed at each message. strace stops tdpctl when it has sent its n-th message to one of the
two tdpd; then the process is killed, and tdpctl goes on.
"""

import pathlib
import subprocess
import time

import modes
from guest import Guest
from hosts import A, B, Failed, wait_for
from vm import Migration, Pages, Running, clean, explain, qemus, vms

MEGABYTES = 64
TRACE = pathlib.Path('/run/tdp-host/messages')
# sd-bus sends by one of them, depending on what the other end is.
CALLS = 'sendmsg', 'writev'


def count_messages():
    """How many messages of each kind a migration that nobody disturbs takes."""
    with_strace = ['strace', '-qq', '-o', str(TRACE), '-e', 'trace=' + ','.join(CALLS)]
    guest = Guest()
    try:
        Running(guest, '2M', MEGABYTES, hot=1)
        guest.go()
        Migration(under=with_strace).end()
        guest.ticks_after(guest.connected(1), 20)
    finally:
        guest.close()
        clean()
    lines = TRACE.read_text(errors='replace').splitlines()
    return {call: sum(line.startswith(call + '(') for line in lines) for call in CALLS}


def stopped(strace):
    """The tdpctl under strace once it has been stopped; True if it ended before."""
    if strace.poll() is not None:
        return True
    if not TRACE.exists() or 'stopped by SIGSTOP' not in TRACE.read_text(errors='replace'):
        return None
    return int(A.run('pgrep', '-P', strace.pid, '-x', 'tdpctl').split()[0])


def victim(process, host, tdpctl):
    if process == 'tdpctl':
        return tdpctl
    if process == 'tdpd':
        return int(host.sh('systemctl show -P MainPID tdpd.service'))
    pids = qemus(host)
    return pids[0] if pids else None


def ticking(guest):
    """The lines on which the guest ticks now."""
    before = [len(line.ticks) for line in guest.lines]
    time.sleep(1)
    return [line for line, n in zip(guest.lines, before) if len(line.ticks) > n]


def settled(guest):
    """One that runs, or none that could."""
    lines = ticking(guest)
    if lines:
        return lines
    return [None] if not qemus(A) and not qemus(B) else None


def one_kill(call, n, process, host):
    """What became of it, in a word."""
    guest = Guest()
    try:
        Running(guest, '2M', MEGABYTES, hot=1)
        guest.go()
        guest.ticks_after(guest.lines[0], 20)
        TRACE.unlink(missing_ok=True)
        migration = Migration(under=['strace', '-o', str(TRACE), '-e', f'trace={call}',
                                     '-e', f'inject={call}:signal=SIGSTOP:when={n}'])
        tdpctl = wait_for(lambda: stopped(migration.process), f'{call} {n}')
        if tdpctl is True:
            raise Failed(f'it was over before {call} {n}: {explain(migration.process.stdout.read())}')
        pid = victim(process, host, tdpctl)
        if pid:
            host.run('kill', '-KILL', pid)
        if process != 'tdpctl':
            A.run('kill', '-CONT', tdpctl)
        said = migration.process.communicate()[0]
        if process == 'tdpd':
            wait_for(lambda: modes.tdpd_answers(host), f'tdpd on {host.name} to be back')
        if process == 'tdpctl' or migration.process.returncode != 0:
            # Whoever wants the guest moved tries again; what was left in the middle is carried on.
            if qemus(A):
                said += subprocess.run(['tdpctl', 'migrate', 'mover', '--to', 'root@b', '--downtime-limit', '2000'], check=False,
                                       capture_output=True, text=True, timeout=600).stderr
        return verdict(guest, said)
    finally:
        guest.close()
        A.sh('systemctl reset-failed tdpd.service')
        B.sh('systemctl reset-failed tdpd.service')
        clean()


def verdict(guest, said):
    lines = wait_for(lambda: settled(guest), 'the guest to run somewhere', 120)
    if len(lines) != 1:
        raise Failed(f'the guest runs {len(lines)} times: {explain(said)}')
    line = lines[0]
    if line is None:
        for host in (A, B):
            wait_for(lambda host=host: not vms(host), f'tdpd on {host.name} to see that its VM is gone')
        return 'gone with its QEMU'
    owner = A if line is guest.lines[0] else B
    other = B if owner is A else A
    guest.stop(line)
    guest.sum(line)
    wait_for(lambda: 'mover' in vms(owner) and 'mover' not in vms(other),
             f'{owner.name} to be the only owner: a has {list(vms(A))}, b has {list(vms(B))}; {explain(said)}', 120)
    wait_for(lambda: not qemus(other), f'QEMU to end on {other.name}', 60)
    return f'on {owner.name}'


VICTIMS = (('tdpctl', A), ('tdpd', A), ('tdpd', B), ('QEMU', A), ('QEMU', B))


def run(checks, results, args):
    outcomes = results['kill'] = {}
    messages = {}
    with checks.check('messages of a migration'):
        messages = count_messages()
        print(f'  {messages}')
    for call, count in messages.items():
        step = 1 if args.kills > 1 else max(1, count // 4)
        for n in range(args.first, count + 1, step):
            for process, host in VICTIMS:
                for turn in range(args.kills):
                    pages = Pages()
                    with checks.check(f'{process} on {host.name} killed at {call} {n} of {count}, time {turn + 1}'):
                        outcome = one_kill(call, n, process, host)
                        pages.check()
                        outcomes[f'{process} on {host.name}, {call} {n}, {turn}'] = outcome
                        print(f'  {outcome}')
