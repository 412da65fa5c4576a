# SPDX-License-Identifier: LGPL-2.1-or-later
"""What one kill at one message does not have: both roles in one tdpd, a tdpd that dies again and again, and one host only."""

import contextlib
import os
import signal
import time

from guest import Guest
from hosts import Failed
from machines import kill, said_of, stopped
from one_kill import check_end, check_guest, migrate_again
from pair import SSH

KILLS = 3
EVERY = 7  # message, about


def kill_tdpd(machine):
    pid = machine.tdpd()
    if os.path.exists(f'/proc/{pid}/exe'):
        machine.started += 1
        kill(pid)


def ends(pair, guests):
    for guest in guests:
        guest.close()
    pair.kill_all()


def both_roles(pair, elf, victim, chance, said):
    """Two guests change places: each tdpd is the source of one, and the destination of the other. One tdpd is killed."""
    guests = [Guest(0, '127.0.0.1'), Guest(0, '127.0.0.1')]
    machine = pair.a if victim == 'tdpd-a' else pair.b
    moves = ((guests[0], pair.a, 'db', 'b'), (guests[1], pair.b, 'back', 'a'))
    try:
        for guest, source, name, _ in moves:
            pair.start_guest(guest, elf, source, name)
        processes = [pair.migrate(source, name) for _, source, name, _ in moves]
        for _ in range(KILLS):
            time.sleep(chance.random() * 0.8)
            kill_tdpd(machine)
        for process, (_, source, name, _) in zip(processes, moves):
            said.append(said_of(process))
            if process.returncode != 0:
                migrate_again(pair, said, source, name)
        for guest, _, name, there in moves:
            where = check_guest(pair, guest, name)
            if where != there:
                raise Failed(f'"{name}" should be on {there}, and is on {where}')
        check_end(pair, '')
        return 'on b'
    finally:
        ends(pair, guests)


def ended_on(pair, guest, wanted):
    where = check_guest(pair, guest)
    if where != wanted:
        raise Failed(f'it should be on {wanted}, and is on {where}')
    check_end(pair, '')
    return f'on {where}'


def again_and_again(pair, elf, victim, chance, said):
    """One tdpd is killed at some messages of a migration, and of those that follow while it does not get through."""
    guest = Guest(0, '127.0.0.1')
    machine = pair.a if victim == 'tdpd-a' else pair.b
    log = pair.folder / 'messages'
    try:
        pair.start_guest(guest, elf)
        log.unlink(missing_ok=True)
        process = pair.migrate_watched(log, 'every')
        while stopped(process):
            if chance.randrange(EVERY) == 0:
                kill_tdpd(machine)
            os.kill(process.pid, signal.SIGCONT)
        said.append(said_of(process))
        if process.returncode != 0:
            migrate_again(pair, said)
        return ended_on(pair, guest, 'b')
    finally:
        ends(pair, [guest])


def to_itself(pair, elf, victim, chance, said):
    """The destination is the source's own tdpd: refused, and nothing changes."""
    guest = Guest(0, '127.0.0.1')
    tools = pair.folder / 'itself'
    try:
        pair.start_guest(guest, elf)
        tools.mkdir(exist_ok=True)
        (tools / 'ssh').write_text(SSH.format(folder=pair.folder))
        (tools / 'ssh').chmod(0o755)
        process = pair.migrate(PATH=f'{tools}:{pair.environment["PATH"]}')
        said.append(said_of(process))
        if process.returncode == 0:
            raise Failed('a migration of a host to itself is not refused')
        guest.ticks_after(guest.lines[0], 10)
        return ended_on(pair, guest, 'a')
    finally:
        with contextlib.suppress(OSError):
            (tools / 'ssh').unlink()
        ends(pair, [guest])


# name: (what, of which victims)
ROLES = {
    'both roles': (both_roles, ('tdpd-a', 'tdpd-b')),
    'again and again': (again_and_again, ('tdpd-a', 'tdpd-b')),
    'to itself': (to_itself, ('none',)),
}
