# SPDX-License-Identifier: LGPL-2.1-or-later
"""One migration with one kill in it, and what must be true afterwards."""

import contextlib
import os
import signal
import subprocess
import time

from guest import Guest
from hosts import Failed, wait_for
from machines import kill, quit_qemu, said_of, stopped

TRIES = 8
PAUSE_SEC = 0.5
SETTLE_SEC = 90
OWNS = {'taken', 'owner', 'done'}

# who: (host, words of its command line); None: by other means
VICTIMS = {
    'tdpctl': None,
    'tdpd-a': None,
    'tdpd-b': None,
    'qemu-a': ('a', 'qemu-system-x86_64'),
    'qemu-b': ('b', 'qemu-system-x86_64'),
    'run-a': ('a', 'tdpctl', 'run'),
    'run-b': ('b', 'tdpctl', 'run'),
    'incoming-b': ('b', 'tdpctl', 'incoming'),
}


def find_victim(pair, victim, tdpctl):
    if victim == 'tdpctl':
        return tdpctl
    if victim.startswith('tdpd'):
        return getattr(pair, victim[-1]).tdpd()
    host, *words = VICTIMS[victim]
    return getattr(pair, host).find(*words)


def kill_victim(pair, victim, pid):
    kill(pid)
    if victim.startswith('tdpd'):
        getattr(pair, victim[-1]).started += 1


def is_owned_there(pair, before):
    """By b, in a handoff that was not there before."""
    return any(h['state'] in OWNS for h in pair.b.handoffs() if h['id'] not in before)


def migrate_again(pair, said, machine=None, name='db'):
    """Whoever wants the guest moved tries again, as long as it is there to be moved."""
    machine = machine or pair.a
    for _ in range(TRIES):
        if not machine.qemu(name):
            return
        process = pair.migrate(machine, name)
        said.append(said_of(process))
        if process.returncode == 0:
            return
        # A destination that nobody has told frees what it has as soon as its "run" looks.
        time.sleep(PAUSE_SEC)
        wait_for(pair.a.answers, 'tdpd on a', 20, 0.05)
        wait_for(pair.b.answers, 'tdpd on b', 20, 0.05)
    if machine.qemu(name):
        raise Failed(f'it cannot be moved in {TRIES} tries')


def owner_of(pair, guest, name='db'):
    """The host on which the guest runs, and its line; None if it has gone. It runs once only."""
    def runs():
        if not pair.a.qemu(name) and not pair.b.qemu(name):
            return 'gone'
        before = [len(line.ticks) for line in guest.lines]
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            time.sleep(0.02)
            now = [i for i, line in enumerate(guest.lines) if len(line.ticks) >= (before[i] if i < len(before) else 0) + 10]
            if now:
                break
        return [i for i, line in enumerate(guest.lines) if len(line.ticks) > (before[i] if i < len(before) else 0)]
    try:
        found = wait_for(runs, 'the guest to run somewhere', SETTLE_SEC, 0.05)
    except Failed as e:
        said = [(len(line.ticks), 'closed' if line.closed else 'open', line.lines[-3:]) for line in guest.lines]
        raise Failed(f'{e}; its lines: {said}') from None
    if found == 'gone':
        return None, None
    if len(found) != 1:
        raise Failed(f'the guest runs {len(found)} times')
    return found[0], guest.lines[found[0]]


def check_guest(pair, guest, name='db'):
    """Where it is; its memory is what it was, and one tdpd only has it."""
    _, line = owner_of(pair, guest, name)
    if line is None:
        return 'gone'
    guest.stop(line)
    guest.sum(line)

    def one_owner():
        here, there = name in pair.a.vms(), name in pair.b.vms()
        # One that lost is ended as soon as somebody looks.
        if here != there and (len(pair.a.qemus(name)), len(pair.b.qemus(name))) == (here, there):
            return pair.a if here else pair.b
        return None
    owner = wait_for(one_owner, 'one tdpd, and the same host\'s QEMU, to have the guest', SETTLE_SEC, 0.05)
    owner_line = find_line(owner, guest, name)
    if owner_line is not line:
        raise Failed(f'{owner.name} has the guest, and it ran elsewhere')
    return owner.name


def find_line(machine, guest, name):
    """Which of the lines is that host's QEMU's, by the port that it connects from."""
    pid = machine.qemu(name)
    inodes = set()
    for fd in os.listdir(f'/proc/{pid}/fd'):
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(f'/proc/{pid}/fd/{fd}'))
    ports = set()
    with open('/proc/net/tcp', encoding='ascii') as f:
        for words in (row.split() for row in f.readlines()[1:]):
            if f'socket:[{words[9]}]' in inodes:
                ports.add(int(words[1].split(':')[1], 16))
    for line in guest.lines:
        with contextlib.suppress(OSError):
            if line.sock.getpeername()[1] in ports:
                return line
    return None


def check_end(pair, run_killed):
    """Nothing is left of anything."""
    for machine in (pair.a, pair.b):
        quit_qemu(machine)
        quit_qemu(machine, 'back')
        if machine.name in run_killed:
            # Nobody was left to remove it; the next run of that name does.
            wait_for(lambda m=machine: not m.qemu(), f'the end of QEMU on {machine.name}', 30, 0.02)
            subprocess.run(['rm', '-rf', str(machine.folder / 'run/db')], check=True)
    left = {}

    def nothing_left():
        left.clear()
        left.update((m.name, words) for m in (pair.a, pair.b) if (words := m.left()))
        return not left
    try:
        wait_for(nothing_left, 'all to be free again', SETTLE_SEC, 0.05)
    except Failed:
        raise Failed(f'left behind: {left}') from None


def check_outcome(outcome, victim, there_owned):
    if outcome != 'gone':
        if victim == 'qemu-b' and there_owned:
            raise Failed(f"the owner's QEMU was killed, and the guest is on {outcome}")
        return
    if victim not in ('qemu-a', 'qemu-b'):
        raise Failed('the guest is gone, and nobody has killed its QEMU')
    if (victim == 'qemu-b') != there_owned:
        raise Failed(f'the guest is gone, and b {"has" if there_owned else "had"} it')


def one_kill(pair, elf, message, count, victim, delay, said):
    """The outcome: "on a", "on b", "gone"; or "no victim", "not reached". Failed if anything is not as it must be."""
    guest = Guest(0, '127.0.0.1')
    run = None
    try:
        run = pair.start_guest(guest, elf)
        before = {h['id'] for h in pair.b.handoffs()}
        log = pair.folder / 'messages'
        log.unlink(missing_ok=True)
        process = pair.migrate_watched(log, message, count)
        reached = stopped(process)
        pid = find_victim(pair, victim, process.pid) if reached else None
        there_owned = False
        if pid:
            time.sleep(delay)
            kill_victim(pair, victim, pid)
            if victim in ('qemu-a', 'qemu-b'):
                there_owned = is_owned_there(pair, before)
        if reached and victim != 'tdpctl':
            os.kill(process.pid, signal.SIGCONT)
        said.append(said_of(process))
        if process.returncode != 0:
            migrate_again(pair, said)
        outcome = check_guest(pair, guest)
        if pid:
            check_outcome(outcome, victim, there_owned)
        check_end(pair, victim[-1] if victim.startswith('run') and pid else '')
        if not pid and outcome != 'b':
            raise Failed(f'nothing was killed, and the guest is on {outcome}')
        if pid:
            return 'gone' if outcome == 'gone' else f'on {outcome}'
        return 'no victim' if reached else 'not reached'
    finally:
        guest.close()
        if run and run.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(0.5)
            if run.poll() is None:
                run.kill()
                run.wait()
