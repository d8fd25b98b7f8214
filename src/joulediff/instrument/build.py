"""Makes the record of a run from the sums of its calls: by API, by site, by gap, and the books of each domain.

Self energies of calls, gaps and the other parts of a domain add up to its joined energy; `unexplained` is the rest to
the meter's own reading of the program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from joulediff.instrument.recorder import BETWEEN, CALLS, FIRST_NODES, MEASURING, CallRecorder, Node
from joulediff.instrument.tally import CallTally, DomainTally
from joulediff.measuring.result import count_domains
from joulediff.model.apis.api_run import ApiAccount, ApiCalls, ApiDomain, CallNode, CallSite, DomainCost, Gap
from joulediff.model.energy import Energy, add_common, add_independent, scale, share_of, to_energy
from joulediff.model.measurement import DomainEnergy
from joulediff.model.stats import CONFIDENCE_SIGMAS

# A report shows a few; a program with more distinct gaps keeps those with the most time.
MOST_GAPS = 500
MOST_TREE = 5_000
# An API is marked if less than this share of its energy is from between readings that it had for itself.
CERTAIN_SHARE = 0.5
# And only if its interval is wider: a call that draws no more than idle power is known from that.
NARROW_SHARE = 0.1

_JOULES, _LOW, _HIGH, _VARIANCE, _CERTAIN = range(5)


@dataclass(slots=True)
class Built:
    """The parts of a record that come from the sums."""

    domains: dict[str, ApiDomain]
    ledger: dict[str, ApiAccount]
    apis: tuple[ApiCalls, ...]
    gaps: tuple[Gap, ...]
    tree: tuple[CallNode, ...]
    energy: Energy | None
    net_energy: Energy | None
    warnings: list[str] = field(default_factory=list)


def build(recorder: CallRecorder, tally: CallTally, *, net: bool, seconds: float) -> Built:
    """Return the record's parts. `net` says whether the idle power is known."""
    nodes = list(recorder.nodes)  # the program may add to them meanwhile
    joined = [each for each in tally.domains if each.failure is None and each.inside_s > 0]
    sums = {each.domain.name: _Sums(each, nodes, net=net) for each in joined}
    domains = _domains(sums, net=net, seconds=seconds)
    counted = [name for name, domain in domains.items() if domain.counted]
    costs = _Costs(sums, counted)
    energy = add_common(each.energy for name in counted if (each := domains[name]).energy is not None)
    nets = [domains[name].net_energy for name in counted]
    self_s = _sized(tally.self_s, len(nodes))
    apis = _apis(nodes, self_s, _sized(tally.self_cpu_s, len(nodes)), costs, energy)
    return Built(
        domains=domains,
        ledger={name: each.account(counted=name in counted) for name, each in sums.items()},
        apis=apis,
        gaps=_gaps(nodes, self_s, costs),
        tree=_tree(nodes, self_s, costs, apis),
        energy=energy,
        net_energy=add_common(each for each in nets if each is not None) if nets and all(nets) else None,
        warnings=[f"{each.domain.name}: {each.failure}" for each in tally.domains if each.failure is not None],
    )


class _Sums:
    """The sums of one domain as energies."""

    def __init__(self, tally: DomainTally, nodes: Sequence[Node], *, net: bool) -> None:
        self._tally = tally
        self._has_net = net and tally.idle is not None
        count = len(nodes)
        self._own, self._total = _sized(tally.own, count), _sized(tally.total, count)
        self._floor_s = _sized(tally.floor_s, count)
        self._total_floor_s = self._floor_s.copy()
        for node in reversed(nodes[FIRST_NODES:]):
            if node.parent >= 0:
                self._total_floor_s[node.parent] += self._total_floor_s[node.id]

    def own(self, ids: Iterable[int]) -> tuple[Energy | None, Energy | None]:
        """Return the gross and the net energy of nodes, without that of the calls inside."""
        return self._energies(self._own, self._floor_s, list(ids))

    def total(self, ids: Iterable[int]) -> tuple[Energy | None, Energy | None]:
        """Return the gross and the net energy of nodes, none of which is inside of another."""
        return self._energies(self._total, self._total_floor_s, list(ids))

    def certain_j(self, ids: Sequence[int]) -> float:
        """Return the energy above idle that the nodes had for themselves between readings."""
        return float(self._own[ids, _CERTAIN].sum())

    @property
    def domain(self) -> DomainTally:
        """The sums themselves."""
        return self._tally

    def whole(self) -> tuple[Energy | None, Energy | None]:
        """Return the metered energy of the program, gross and net."""
        tally = self._tally
        error_j = CONFIDENCE_SIGMAS * (
            float(np.sqrt(tally.metered_variance_j2)) + tally.domain.repeat_share * tally.metered_j
        )
        error_j += tally.domain.resolution_j
        gross = to_energy(
            tally.metered_j, max(0.0, tally.metered_j - error_j), tally.metered_j + error_j, tally.domain.source
        )
        return gross, self._minus_idle(gross, tally.inside_s)

    def account(self, *, counted: bool) -> ApiAccount:
        """Return the books of the domain."""
        tally = self._tally
        gross, _ = self.whole()
        calls, calls_net = self.total([CALLS])
        between, between_net = self.total([BETWEEN])
        measuring, _ = self.total([MEASURING])
        idle = None
        if self._has_net and tally.idle is not None:
            idle = tally.idle.over(tally.inside_s - float(self._floor_s[MEASURING]), tally.domain.source)
            calls, between = calls_net, between_net
        children = self._energy(tally.children[0], 0.0) if tally.children[0, _JOULES] else None
        known_j = sum(each.joules for each in (calls, between, idle, measuring, children) if each is not None)
        rest = None
        if gross is not None:
            rest = to_energy(gross.joules - known_j, gross.low - known_j, gross.high - known_j, tally.domain.source)
        has_measuring = measuring is not None and not measuring.is_zero
        return ApiAccount(gross, calls, between, idle, children, measuring if has_measuring else None, rest, counted)

    def _energies(self, sums: np.ndarray, floor_s: np.ndarray, ids: list[int]) -> tuple[Energy | None, Energy | None]:
        found, time_s = sums[ids].sum(axis=0), float(floor_s[ids].sum())
        gross = self._energy(found, time_s)
        return gross, self._net(found, time_s)

    def _energy(self, found: np.ndarray, time_s: float) -> Energy | None:
        floor_j = self._tally.floor_w * time_s
        return self._to_energy(found, floor_j)

    def _net(self, found: np.ndarray, time_s: float) -> Energy | None:
        idle = self._tally.idle
        if not self._has_net or idle is None:
            return None
        net = self._to_energy(found, 0.0)
        error_j = (idle.high_w - idle.low_w) / 2 * time_s
        return None if net is None else to_energy(net.joules, net.low - error_j, net.high + error_j, net.source)

    def _to_energy(self, found: np.ndarray, floor_j: float) -> Energy | None:
        domain = self._tally.domain
        joules = float(found[_JOULES]) + floor_j
        error_j = CONFIDENCE_SIGMAS * (float(np.sqrt(found[_VARIANCE])) + domain.repeat_share * abs(joules))
        low_j, high_j = float(found[_LOW]) + floor_j - error_j, float(found[_HIGH]) + floor_j + error_j
        least_j = min(0.0, joules)
        return to_energy(joules, max(least_j, low_j), high_j, domain.source)

    def _minus_idle(self, gross: Energy | None, seconds: float) -> Energy | None:
        idle = self._tally.idle
        if gross is None or idle is None or not self._has_net:
            return None
        rest_j = idle.power_w * seconds
        error_j = (idle.high_w - idle.low_w) / 2 * seconds
        return to_energy(
            gross.joules - rest_j, gross.low - rest_j - error_j, gross.high - rest_j + error_j, gross.source
        )


@dataclass(frozen=True, slots=True)
class _Costs:
    """The energy of nodes in all domains."""

    sums: Mapping[str, _Sums]
    counted: Sequence[str]

    def own(self, ids: Sequence[int]) -> tuple[Energy | None, Energy | None]:
        """Return gross and net in the counted domains, without the calls inside."""
        return self._add([self.sums[name].own(ids) for name in self.counted])

    def total(self, ids: Sequence[int]) -> tuple[Energy | None, Energy | None]:
        """Return gross and net in the counted domains, with the calls inside."""
        return self._add([self.sums[name].total(ids) for name in self.counted])

    def domains(self, ids: Sequence[int], outermost: Sequence[int]) -> dict[str, DomainCost]:
        """Return the energies in each domain."""
        found = {}
        for name, sums in self.sums.items():
            own, own_net = sums.own(ids)
            total, total_net = sums.total(outermost)
            found[name] = DomainCost(total, own, total_net, own_net)
        return found

    def is_too_short(self, ids: Sequence[int]) -> bool:
        """Return whether most of the energy above idle is a share of what the meters saw of several calls."""
        certain_j = own_j = 0.0
        for name in self.counted:
            if self.sums[name].domain.domain.source != "estimated":
                certain_j += self.sums[name].certain_j(ids)
                net = self.sums[name].own(ids)[1] or self.sums[name].own(ids)[0]
                own_j += 0.0 if net is None else abs(net.joules)
        return own_j > 0 and certain_j < CERTAIN_SHARE * own_j

    @staticmethod
    def _add(pairs: Sequence[tuple[Energy | None, Energy | None]]) -> tuple[Energy | None, Energy | None]:
        gross = [each for each, _ in pairs if each is not None]
        net = [each for _, each in pairs]
        return add_common(gross), add_common(each for each in net if each is not None) if all(net) else None


def _domains(sums: Mapping[str, _Sums], *, net: bool, seconds: float) -> dict[str, ApiDomain]:
    as_measured = {}
    for name, each in sums.items():
        gross, above = each.whole()
        if gross is None:
            continue
        domain = each.domain.domain
        as_measured[name] = DomainEnergy(
            energy=gross,
            net_energy=above,
            power_w=gross.joules / seconds if seconds > 0 else 0.0,
            idle=each.domain.idle if net else None,
            kind=domain.kind,
            device=domain.device,
            counted=True,
            note=domain.note,
        )
    counted = count_domains(as_measured, [each.domain.domain for each in sums.values()])
    return {
        name: ApiDomain(
            device=each.device,
            kind=each.kind,
            source=each.energy.source,
            period_s=sums[name].domain.domain.period_s,
            counted=each.counted,
            energy=each.energy,
            net_energy=each.net_energy,
            power_w=each.power_w,
            idle=each.idle,
            note=each.note,
        )
        for name, each in counted.items()
    }


def _apis(
    tree: Sequence[Node], self_s: np.ndarray, self_cpu_s: np.ndarray, costs: _Costs, whole: Energy | None
) -> tuple[ApiCalls, ...]:
    by_api: defaultdict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in tree:
        if node.api is not None and node.calls:
            by_api[node.api.name, node.api.library].append(node)
    found = []
    for (name, library), nodes in by_api.items():
        ids = [node.id for node in nodes]
        outermost = _outermost(nodes, tree, _is_same_api)
        own, own_net = costs.own(ids)
        total, total_net = costs.total(outermost)
        found.append(
            ApiCalls(
                api=name,
                library=library,
                calls=sum(node.calls for node in nodes),
                energy=total,
                self_energy=own,
                net_energy=total_net,
                self_net_energy=own_net,
                domains=costs.domains(ids, outermost),
                share=None if own is None else share_of(own.joules, whole),
                seconds=sum(tree[at].total_s for at in outermost),
                self_seconds=float(self_s[ids].sum()),
                cpu_s=float(self_cpu_s[ids].sum()),
                shortest_s=min(min(node.shortest_s, node.longest_s) for node in nodes),
                longest_s=max(node.longest_s for node in nodes),
                input_bytes=_add_bytes(nodes),
                sites=_sites(nodes, tree, self_s, costs),
                too_short=own is not None and own.half_width_share > NARROW_SHARE and costs.is_too_short(ids),
                isolated_calls=sum(node.isolated for node in nodes),
                isolated_energy=_mean_alone(nodes, costs.counted),
            )
        )
    return tuple(sorted(found, key=lambda each: _rank(each.self_energy, each.self_seconds), reverse=True))


def _mean_alone(nodes: Sequence[Node], counted: Sequence[str]) -> Energy | None:
    """Return the mean energy of the calls that were measured alone, in the counted domains."""
    calls = [each for node in nodes for each in node.alone_j]
    sums = [add_common(each[name] for name in counted if name in each) for each in calls]
    known = [each for each in sums if each is not None]
    return scale(add_independent(known), 1 / len(known)) if known else None


def _sites(nodes: Sequence[Node], tree: Sequence[Node], self_s: np.ndarray, costs: _Costs) -> tuple[CallSite, ...]:
    by_place: defaultdict[tuple[str, int, int], list[Node]] = defaultdict(list)
    for node in nodes:
        assert node.site is not None
        by_place[node.site.file, node.site.line, node.site.column].append(node)
    found = []
    for (file, line, column), here in by_place.items():
        ids = [node.id for node in here]
        outermost = _outermost(here, tree, lambda a, b: a.site is b.site and _is_same_api(a, b))
        own, own_net = costs.own(ids)
        total, total_net = costs.total(outermost)
        site = here[0].site
        assert site is not None
        found.append(
            CallSite(
                file=file,
                line=line,
                column=column,
                text=site.text,
                function=site.function,
                calls=sum(node.calls for node in here),
                energy=total,
                self_energy=own,
                net_energy=total_net,
                self_net_energy=own_net,
                seconds=sum(tree[at].total_s for at in outermost),
                self_seconds=float(self_s[ids].sum()),
                input_bytes=_add_bytes(here),
            )
        )
    return tuple(sorted(found, key=lambda each: _rank(each.self_energy, each.self_seconds), reverse=True))


def _gaps(tree: Sequence[Node], self_s: np.ndarray, costs: _Costs) -> tuple[Gap, ...]:
    by_place: defaultdict[tuple[str, int | None, int | None], list[Node]] = defaultdict(list)
    for node in tree[FIRST_NODES:]:
        if node.is_gap:
            near = node.after or node.site
            file = "" if near is None else near.file
            after = None if node.after is None else node.after.line
            is_same = node.site is not None and node.site.file == file
            before = node.site.line if is_same and node.site is not None else None
            by_place[file, after, before].append(node)
    found = []
    for (file, after, before), nodes in by_place.items():
        ids = [node.id for node in nodes]
        gross, net = costs.own(ids)
        count, seconds = sum(node.calls for node in nodes), float(self_s[ids].sum())
        found.append(Gap(file, after, before, count, seconds, gross, net))
    found.sort(key=lambda each: _rank(each.energy, each.seconds), reverse=True)
    return tuple(found[:MOST_GAPS])


def _tree(nodes: Sequence[Node], self_s: np.ndarray, costs: _Costs, apis: Sequence[ApiCalls]) -> tuple[CallNode, ...]:
    """Return the tree of calls of all threads, those with the most time if there are too many."""
    api_at = {(each.api, each.library): at for at, each in enumerate(apis)}
    site_at = [{(site.file, site.line, site.column): at for at, site in enumerate(each.sites)} for each in apis]
    merged: dict[tuple[int | None, int, int], int] = {}
    ids: list[list[int]] = []
    place: dict[int, int] = {}
    for node in nodes:
        if node.api is None or node.site is None or (node.api.name, node.api.library) not in api_at:
            continue
        api = api_at[node.api.name, node.api.library]
        site = site_at[api].get((node.site.file, node.site.line, node.site.column))
        parent = place.get(node.parent)
        if site is None or (parent is None and node.parent >= FIRST_NODES):
            continue
        key = (parent, api, site)
        if key not in merged:
            if len(merged) >= MOST_TREE:
                continue
            merged[key] = len(ids)
            ids.append([])
        place[node.id] = merged[key]
        ids[merged[key]].append(node.id)
    return tuple(
        CallNode(
            parent=parent,
            api=api,
            site=site,
            calls=sum(nodes[each].calls for each in ids[at]),
            self_seconds=float(self_s[ids[at]].sum()),
            self_energy=costs.own(ids[at])[0],
        )
        for (parent, api, site), at in merged.items()
    )


def _is_same_api(a: Node, b: Node) -> bool:
    return a.api is not None and b.api is not None and a.api.name == b.api.name


def _outermost(nodes: Sequence[Node], tree: Sequence[Node], is_same: Callable[[Node, Node], bool]) -> list[int]:
    """Return the nodes that are inside of no other one for which `is_same` holds."""
    found = []
    for node in nodes:
        at = node.parent
        while at >= FIRST_NODES and not is_same(tree[at], node):
            at = tree[at].parent
        if at < FIRST_NODES:
            found.append(node.id)
    return found


def _add_bytes(nodes: Sequence[Node]) -> int | None:
    known = [node.input_bytes for node in nodes if node.input_bytes is not None]
    return sum(known) if known else None


def _rank(energy: Energy | None, seconds: float) -> tuple[float, float]:
    return (0.0 if energy is None else energy.joules, seconds)


def _sized(array: np.ndarray, count: int) -> np.ndarray:
    found = np.zeros((count, *array.shape[1:]))
    found[: len(array)] = array
    return found
