"""The careful mode: the first calls of each site are measured from rest to rest.

Before such a call the machine is brought to rest, and its idle power is taken from the window that was judged. The
energy of the call is what the meters saw above that, until the device rests again: a call that is shorter than the
period of a meter is seen in full.
"""

from __future__ import annotations

import threading

from joulediff.instrument.recorder import Alone, Node
from joulediff.instrument.tally import WorkSampler
from joulediff.measuring.energy_curve import STILL_PERIODS, Curve, curve_from_start
from joulediff.measuring.idle import wait_for_rest
from joulediff.measuring.meters.meter import Clock
from joulediff.model.energy import Energy, to_energy
from joulediff.model.errors import JoulediffError
from joulediff.model.measurement import Domain, Quiet
from joulediff.model.stats import CONFIDENCE_SIGMAS

# The power of an H200 is that of the resting device within this time after a kernel. A longer tail adds the noise of
# the idle power.
TAIL_S = 0.4


class Isolation(Alone):
    """Chooses the first `calls` of each site below the same calls."""

    def __init__(self, sampler: WorkSampler, *, clock: Clock, calls: int, wait_s: float) -> None:
        self._sampler = sampler
        self._clock = clock
        self._calls = calls
        self._wait_s = wait_s
        self._quiet: Quiet | None = None
        self._start_s = 0.0
        self._busy = threading.Lock()
        """Held from the choice of a call until the wait after it."""
        self.restless = 0
        """Calls before which the machine did not come to rest."""

    def is_chosen(self, node: Node) -> bool:
        """Return whether the next call of a node is measured alone: not inside of one that is, nor beside one."""
        return node.isolated < self._calls and self._busy.acquire(blocking=False)

    def wait_before(self) -> None:
        """Wait until the machine rests, no longer than was allowed."""
        try:
            self._sampler.kept_from_s = self._clock.now()
            self._quiet = wait_for_rest(self._sampler, clock=self._clock, wait_s=self._wait_s)
            self.restless += not self._quiet.quiet
            self._sampler.edge()
            self._start_s = self._clock.now()
        except BaseException:  # Ctrl-C: the call does not begin
            self._release()
            raise

    def wait_after(self, node: Node) -> None:
        """Wait while the power falls to that of the resting device, and note the energy of the call."""
        try:
            self._note(node)
        finally:
            self._release()

    def _release(self) -> None:
        self._sampler.kept_from_s = float("inf")
        self._busy.release()

    def _note(self, node: Node) -> None:
        self._sampler.edge()
        tail_s = max([TAIL_S, *(STILL_PERIODS * domain.period_s for domain in self._sampler.primary_domains())])
        self._clock.sleep(tail_s)
        self._sampler.edge()
        end_s = self._clock.now()
        self._sampler.catch_up(end_s)
        found = {}
        for domain in self._sampler.primary_domains():
            energy = self._energy(domain, end_s)
            if energy is not None:
                found[domain.name] = energy
        if found:
            node.alone_j.append(found)

    def _energy(self, domain: Domain, end_s: float) -> Energy | None:
        """Return the energy above idle since the begin of the call."""
        assert self._quiet is not None
        idle = self._quiet.idle.get(domain.name)
        try:
            curve: Curve = curve_from_start(domain, self._sampler.readings(domain))
            window = curve.between(self._start_s, min(end_s, float(curve.time_s[-1])))
        except (JoulediffError, IndexError):
            return None
        if idle is None:
            return None
        seconds = window.duration_s
        rest_j = idle.power_w * seconds
        error_j = (idle.high_w - idle.low_w) / 2 * seconds
        error_j += CONFIDENCE_SIGMAS * domain.repeat_share * abs(window.energy.joules - rest_j)
        if not self._quiet.quiet:  # it may still change
            error_j += CONFIDENCE_SIGMAS * idle.spread_share * rest_j
        low_j, high_j = window.energy.low - rest_j - error_j, window.energy.high - rest_j + error_j
        return to_energy(window.energy.joules - rest_j, low_j, high_j, domain.source)
