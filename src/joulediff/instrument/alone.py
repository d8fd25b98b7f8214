"""The careful mode: the first calls of each site are measured from rest to rest.

Before such a call the machine is brought to rest and judged by the same window as before the program. What the device
uses after the call, until it rests again, is counted as part of the call.
"""

from __future__ import annotations

from joulediff.instrument.recorder import Alone, Node
from joulediff.measuring.idle import wait_until_quiet
from joulediff.measuring.meters.meter import Clock
from joulediff.measuring.sampler import Sampler

# The power of a device falls to its idle power within this time; an H200 takes under a second.
TAIL_S = 1.0


class Isolation(Alone):
    """Chooses the first `calls` of each site."""

    def __init__(self, sampler: Sampler, *, clock: Clock, calls: int, wait_s: float) -> None:
        self._sampler = sampler
        self._clock = clock
        self._calls = calls
        self._wait_s = wait_s
        self.restless = 0
        """Calls before which the machine did not come to rest."""

    def is_chosen(self, node: Node) -> bool:
        """Return whether the next call of a node is measured alone."""
        return node.isolated < self._calls

    def wait_before(self) -> None:
        """Wait until the machine rests, no longer than was allowed."""
        domains = self._sampler.primary_domains()
        sees_cpu = any(d.source == "metered" and not d.name.startswith("gpu") for d in domains)
        quiet = wait_until_quiet(self._sampler, clock=self._clock, wait_s=self._wait_s, look_at_cpu=sees_cpu)
        self.restless += not quiet.quiet
        self._sampler.edge()

    def wait_after(self) -> None:
        """Wait while the power falls to that of the resting device."""
        self._sampler.edge()
        tail_s = max([TAIL_S, *(4 * domain.period_s for domain in self._sampler.primary_domains())])
        self._clock.sleep(tail_s)
        self._sampler.edge()
