# SPDX-License-Identifier: LGPL-2.1-or-later
"""What cannot work is refused before anything changes at the source."""

from guest import Guest
from hosts import A, B
from test_cancel import goes_on, leaves_of
from vm import Migration, Pages, Running, clean, show, vms

MEGABYTES = 720  # more than b has in pages of 2M


def run(checks, _results, _args):
    what = 'the destination is too small'
    pages = Pages()
    guest = Guest()
    try:
        with checks.check(f'{what}: refused, and the guest goes on'):
            Running(guest, '2M', MEGABYTES)
            line = guest.lines[0]
            guest.go()
            guest.ticks_after(line, 100)
            before = show(A)
            said = Migration('--page-sizes', '2M').end(want=None)
            after = show(A)
            goes_on(guest, line)
            checks.that(f'{what}: leaves are as they were', leaves_of(before) == leaves_of(after), (before, after))
            checks.that(f'{what}: so is the state', before['state'] == after['state'] == 'built', after['state'])
            checks.that(f'{what}: no fault', show(A)['faults_since_build'] == before['faults_since_build'], after)
            checks.that(f'{what}: it is said, with figures', 'MiB' in said or 'MB' in said or '720M' in said, said)
            checks.that(f'{what}: nothing is left there', not vms(B), vms(B))
            checks.that(f'{what}: nor taken', pages.now()['b'] == pages.before['b'], pages.now())
    finally:
        guest.close()
        with checks.check(f'{what}: no page is left behind'):
            clean()
            pages.check()
