# SPDX-License-Identifier: LGPL-2.1-or-later
"""Any mode to any mode, and to and from hosts that have no tdpd, other pages, other nodes."""

import modes
from guest import Guest
from hosts import A, B, Failed
from vm import Migration, Running, clean, show, vms

MEGABYTES = 64


def move(size='2M', options=(), decision='auto', before=None, after=None):
    """Moves a small guest that is being written to. What the tool says, and what tdpd there does, if there is one."""
    guest = Guest()
    try:
        running = Running(guest, size, MEGABYTES, hot=1, decision=decision)
        guest.go()
        guest.ticks_after(guest.lines[0], 50)
        if before:
            before()
        said = Migration(*options).end()
        there = guest.connected(1)
        guest.ticks_after(there, 100)
        if after:
            after()
        guest.stop(there)
        guest.sum(there)
        running.ended()
        if vms(A):
            raise Failed(f'tdpd of the source still has {list(vms(A))}')
        return said, show(B) if vms(B) else None
    finally:
        guest.close()
        clean()


def nine_pairs(checks):
    for here in modes.MODULES:
        modes.set_mode(A, here)
        for there in modes.MODULES:
            with checks.check(f'{here} to {there}'):
                modes.set_mode(B, there)
                _, shown = move(decision='always' if here == 'global' else 'auto',
                                options=['--decision', 'always' if there == 'global' else 'auto'])
                if not shown:
                    raise Failed('tdpd on b does not have it')
                if there == 'global' and (shown['state'] != 'built' or shown['faults_since_build'] or shown['holes']):
                    raise Failed(f'it should be built, without a fault or hole, and is: {shown}')
                if there != 'global' and shown['state'] == 'built':
                    raise Failed(f'tdpd says that it is built: {shown}')
    for host in (A, B):
        modes.set_mode(host, 'global')


def without_tdpd(checks):
    with checks.check('no tdpd on the destination: falls back, and says so'):
        modes.stop_tdpd(B)
        try:
            said, _ = move(decision='always')
            if 'tdpd' not in said:
                raise Failed(f'nothing is said of it: {said}')
        finally:
            modes.start_tdpd(B)
    with checks.check('no tdpd on the source, any more: falls back, and says so'):
        try:
            said, _ = move(decision='always', before=lambda: modes.stop_tdpd(A), after=lambda: modes.start_tdpd(A))
            if 'tdpd' not in said:
                raise Failed(f'nothing is said of it: {said}')
        finally:
            modes.start_tdpd(A)


def pages_and_nodes(checks):
    for here, there in (('4K', '2M'), ('2M', '4K')):
        with checks.check(f'pages of {here} to pages of {there}'):
            _, shown = move(size=here, decision='always', options=['--page-size', there])
            if not shown or shown[f'leaves_{there.lower()}'] < 1 or (there == '2M' and shown['leaves_4k'] > 512):
                raise Failed(f'leaves: {shown}')
    with checks.check('to node 1 of a host that has two'):
        _, shown = move(decision='always', options=['--nodes', '1'])
        if not shown or shown['state'] != 'built':
            raise Failed(f'{shown}')


def to_stock(checks, _results, _args):
    """For a pair whose b has the distribution's KVM."""
    with checks.check('to a stock kernel: on demand'):
        _, shown = move(decision='always', options=['--decision', 'auto'])
        if not shown or shown['state'] == 'built':
            raise Failed(f'tdpd on b says {shown}')


def from_stock(checks, _results, _args):
    """For a pair whose a has the distribution's KVM."""
    with checks.check('from a stock kernel: built'):
        _, shown = move(options=['--decision', 'always'])
        if not shown or shown['state'] != 'built' or shown['faults_since_build']:
            raise Failed(f'tdpd on b says {shown}')


def post_copy(checks, _results, _args):
    with checks.check('post-copy: the guest runs there before its memory is, and is built when it is'):
        # It reads from pages that are not there yet.
        _, shown = move(decision='always', options=['--post-copy', '--bandwidth', '16M'])
        if not shown or shown['state'] != 'built' or shown['holes']:
            raise Failed(f'{shown}')


def run(checks, _results, _args):
    pages_and_nodes(checks)
    without_tdpd(checks)
    nine_pairs(checks)
