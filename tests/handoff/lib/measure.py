# SPDX-License-Identifier: LGPL-2.1-or-later
"""One migration of the guest, watched: what "tdpd on both sides" and "stock" are compared by."""

import dataclasses
import time

from guest import back_at_full_speed, rate
from hosts import Failed


@dataclasses.dataclass
class Measured:
    total_s: float = 0           # from the first step to the resume
    blackout_s: float = 0        # between the last tick here and the first tick there, by one clock
    faults: int = 0              # second-level faults in the first seconds after the resume (KVM's pf_fixed)
    until_full_s: float = 0      # until it wrote as fast as later, by its own clock
    lost_s: float = 0            # work that it did not do meanwhile, in seconds of full speed
    full_rate: float = 0         # writes in a second
    rate_before: float = 0
    rate_during: float = 0
    sum_before: int = 0
    sum_after: int = 0
    qemu: dict = dataclasses.field(default_factory=dict)  # what QEMU says of it
    phases: dict = dataclasses.field(default_factory=dict)  # microseconds, by tdpctl
    tdpd: dict = dataclasses.field(default_factory=dict)  # what the destination's tdpd does


class Watch:
    """begin(), then the migration by whatever means, then end()."""

    def __init__(self, guest, warm_ticks=300):
        self.guest = guest
        self.n = len(guest.lines) - 1
        self.line = guest.lines[self.n]
        self.measured = Measured()
        guest.go(self.line)
        guest.ticks_after(self.line, warm_ticks)
        guest.stop(self.line)
        self.measured.sum_before = guest.sum(self.line)
        guest.go(self.line)
        guest.ticks_after(self.line, warm_ticks)
        self.started_at = self.line.ticks[-1][1]
        self.started = time.monotonic()

    def resumed(self, faults_before):
        """Call it as soon as the guest runs there."""
        self.faults_before = faults_before
        there = self.guest.connected(self.n + 1)
        self.guest.ticks_after(there, 1)
        first = there.ticks[0]
        self.measured.total_s = first[0] - self.started
        self.measured.blackout_s = first[0] - self.line.ticks[-1][0]
        self.resumed_at = first[1]

    def end(self, faults, ticks=800):
        """faults: a function that tells them. Stops the guest and looks at all of its memory."""
        there = self.guest.lines[self.n + 1]
        if len(there.ticks) < ticks:
            self.guest.ticks_after(there, ticks - len(there.ticks))
        self.measured.faults = faults() - self.faults_before
        self.guest.stop(there)
        self.measured.sum_after = self.guest.sum(there)
        log = self.guest.log(there)
        if len(log) < self.resumed_at:
            raise Failed('the log of the guest has been overwritten')
        m = self.measured
        m.rate_before = rate(log[max(0, self.started_at - 200):self.started_at])
        m.rate_during = rate(log[self.started_at:self.resumed_at])
        m.until_full_s, m.lost_s, m.full_rate = back_at_full_speed(log[self.resumed_at:])
        return m


TIMES = 'total_s', 'blackout_s', 'until_full_s', 'lost_s'


def best(runs):
    """Of several, the best times: what a busy machine adds is not of interest. Of faults the least, too."""
    chosen = dataclasses.replace(min(runs, key=lambda run: run.blackout_s))
    for name in (*TIMES, 'faults'):
        setattr(chosen, name, min(getattr(run, name) for run in runs))
    chosen.full_rate = max(run.full_rate for run in runs)
    return chosen


ROWS = (
    ('total', 's', lambda m: f'{m.total_s:.2f}'),
    ("blackout, by the guest's ticks", 's', lambda m: f'{m.blackout_s:.3f}'),
    ("the same by who migrates", 's', lambda m: f"{m.qemu.get('downtime', 0) / 1000:.3f}"),
    ('bytes sent', 'MiB', lambda m: f"{m.qemu.get('ram', {}).get('transferred', 0) / (1 << 20):.0f}"),
    ('of the blackout: commit and resume', 's', lambda m: f"{(m.phases.get('commit', 0) + m.phases.get('resume', 0)) / 1e6:.3f}"),
    ('second-level faults after resume', '', lambda m: str(m.faults)),
    ('until full speed', 's', lambda m: f'{m.until_full_s:.3f}'),
    ('work lost in the first seconds', 's', lambda m: f'{m.lost_s:.3f}'),
    ('full speed', 'M writes/s', lambda m: f'{m.full_rate / 1e6:.2f}'),
    ('speed before', 'M writes/s', lambda m: f'{m.rate_before / 1e6:.2f}'),
    ('speed meanwhile', 'M writes/s', lambda m: f'{m.rate_during / 1e6:.2f}'),
    ('checksums', '', lambda m: f'{m.sum_before:08x} {m.sum_after:08x}'),
)


def table(runs):
    """runs: name -> Measured, side by side."""
    print(f"\n  {'':34} {'':11}" + ''.join(f'{name:>24}' for name in runs))
    for name, unit, value in ROWS:
        print(f'  {name:34} {unit:11}' + ''.join(f'{value(m):>24}' for m in runs.values()))
    print(flush=True)
