"""Invented runs of scripts with known energy of their calls: the parts sum to the program in each domain."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from joulediff.model.apis.api_run import ApiAccount, ApiCalls, ApiDomain, ApiRun, CallNode, CallSite, DomainCost, Gap
from joulediff.model.energy import Energy, Source, add_common, add_independent, around, share_of
from joulediff.model.measurement import IdlePower
from joulediff.model.run import SourceText

SOURCE = '''\
"""Train a small network."""

import sys

import torch


def main() -> None:
    model = torch.nn.Linear(64, 8)
    data = torch.rand(4096, 64)
    for batch in data.split(256):
        rows = [each * 2 for each in batch.tolist()]
        loss = model(torch.tensor(rows)).sum()
        loss.backward()
    torch.save(model.state_dict(), sys.argv[1])


main()
'''
NUMBER = re.compile(r"^[+-]?[\d,]+(\.\d+)?$")
FILE = "/home/ada/train.py"
IDLE_W = {"gpu0": 80.0, "cpu": 20.0, "dram": 3.0}
# Half widths of the intervals: of an energy, and of the idle power.
HALF = 0.02
IDLE_HALF = 0.01


@dataclass(frozen=True)
class Calls:
    """Calls of one API from one site: energy above idle in all calls, without that of the calls inside."""

    api: str
    line: int
    text: str
    calls: int
    seconds: float
    net_j: Mapping[str, float]
    inside: Sequence[Calls] = ()
    column: int = 4
    function: str = "main"
    file: str = FILE
    input_bytes: int | None = None
    too_short: bool = False

    @property
    def key(self) -> tuple[str, int, int, str]:
        """The call expression and the API."""
        return self.file, self.line, self.column, self.api


NET = "/home/ada/net.py"
RELU = Calls("torch.relu", 21, "torch.relu", 32, 0.5, {"gpu0": 60.0, "cpu": 4.0}, function="Net.run", file=NET)


@dataclass(frozen=True)
class Between:
    """Code between two calls: energy above idle."""

    after: int | None
    before: int | None
    count: int
    seconds: float
    net_j: Mapping[str, float]
    file: str = FILE


@dataclass(frozen=True)
class Program:
    """The calls and the code of a program."""

    calls: Sequence[Calls] = field(
        default_factory=lambda: (
            Calls("torch.nn.Linear", 9, "torch.nn.Linear", 1, 0.004, {"gpu0": 0.05, "cpu": 0.2}, function="main"),
            Calls("torch.rand", 10, "torch.rand", 1, 0.00031, {"gpu0": 0.0, "cpu": 0.01}, too_short=True),
            Calls(
                "torch.nn.Module.__call__",
                13,
                "model",
                16,
                1.25,
                {"gpu0": 310.0, "cpu": 41.5},
                inside=(RELU,),
                input_bytes=16 * 256 * 64 * 4,
            ),
            Calls("torch.tensor", 13, "torch.tensor", 16, 0.75, {"gpu0": 3.0, "cpu": 30.0}, column=21),
            Calls("torch.Tensor.backward", 14, "loss.backward", 16, 2.5, {"gpu0": 640.0, "cpu": 52.0}),
            Calls("torch.save", 15, "torch.save", 1, 0.05, {"gpu0": 0.0, "cpu": 1.5}),
        )
    )
    between: Sequence[Between] = field(
        default_factory=lambda: (
            Between(14, 13, 15, 0.9, {"gpu0": 2.0, "cpu": 61.0}),
            Between(10, 13, 1, 0.06, {"gpu0": 0.0, "cpu": 4.0}),
            Between(None, 9, 1, 0.02, {"gpu0": 0.0, "cpu": 0.8}),
        )
    )
    source: str = SOURCE
    unexplained_j: Mapping[str, float] = field(default_factory=lambda: {"gpu0": 1.25})
    children_j: Mapping[str, float] = field(default_factory=dict)
    measuring_j: Mapping[str, float] = field(default_factory=dict)


def many_apis(count: int, seed: int = 0) -> Program:
    """Return a program with random calls, some of them inside of others, and code between them."""
    rng = random.Random(seed)

    def cost() -> dict[str, float]:
        return {"gpu0": rng.choice([0.0, 10 ** rng.uniform(-3, 2)]), "cpu": 10 ** rng.uniform(-3, 1)}

    def call(at: int, *inside: Calls) -> Calls:
        name = f"lib.api{at % (count // 2 + 1)}"
        return Calls(name, at + 1, name, rng.randrange(1, 9), rng.uniform(1e-6, 0.4), cost(), inside=inside)

    calls = [call(2 * at, *([call(2 * at + 1)] if rng.random() < 0.5 else [])) for at in range(count)]
    between = [Between(at, at + 1, 3, rng.uniform(0, 0.1), cost()) for at in range(rng.randrange(1, 9))]
    unexplained = {"gpu0": rng.uniform(-3, 3), "cpu": rng.choice([0.0, 0.2])}
    others = {"cpu": 4.5} if rng.random() < 0.5 else {}
    return Program(calls, between, "x\n" * 40, unexplained, others, others)


def read_number(cell: str) -> float | None:
    """Return the number in a cell; None for a blank one, 0 for one that is less than half of its last place."""
    if cell in ("", "-") or cell.startswith("<"):
        return 0.0
    assert NUMBER.match(cell), cell
    return float(cell.replace(",", ""))


def make_api_run(
    program: Program | None = None,
    *,
    domains: Sequence[str] = ("gpu0", "cpu"),
    not_counted: Sequence[str] = (),
    source: Source = "metered",
    idle: bool = True,
    scale: float = 1.0,
    half: float = HALF,
) -> ApiRun:
    """Return the run of a program. `scale` multiplies all energy above idle."""
    program = program or Program()
    seconds = math.fsum([*(_seconds(each) for each in program.calls), *(each.seconds for each in program.between)])
    made = _Made(program, tuple(domains), tuple(not_counted), source, idle, scale, half)
    apis = made.apis()
    ledger = {name: made.account(name, seconds) for name in domains}
    counted = [account.metered for account in ledger.values() if account.counted]
    energy = add_independent(each for each in counted if each is not None)
    idle_j = math.fsum(IDLE_W[name] * seconds for name in domains if name not in not_counted) if idle else 0.0
    assert energy is not None
    shared = [
        replace(api, share=None if api.self_energy is None else share_of(api.self_energy.joules, energy))
        for api in apis
    ]
    order = sorted(range(len(shared)), key=lambda at: -_joules(shared[at].self_energy))
    nodes = made.nodes(apis)
    return ApiRun(
        label="train.py",
        program=FILE,
        arguments=("model.pt",),
        created="2026-11-20T10:31:00+00:00",
        tool="0.3.0",
        python="3.12.4",
        machine="Linux 6.8",
        libraries=("torch",),
        versions={"torch": "2.11.0"},
        seconds=seconds,
        cpu_s=1.25 * seconds,
        energy=energy,
        net_energy=around(energy.joules - idle_j, energy.half_j, source) if idle else None,
        domains={name: made.domain(name, ledger[name], seconds) for name in domains},
        ledger=ledger,
        apis=tuple(shared[at] for at in order),
        gaps=tuple(sorted((made.gap(each) for each in program.between), key=lambda gap: -_joules(gap.energy))),
        tree=tuple(replace(node, api=order.index(node.api)) for node in nodes),
        sources=(SourceText(FILE, 1, program.source),),
    )


def _joules(energy: Energy | None) -> float:
    return 0.0 if energy is None else energy.joules


def _seconds(calls: Calls) -> float:
    return calls.seconds + math.fsum(map(_seconds, calls.inside))


def _flat(calls: Sequence[Calls], parent: int | None = None, at: int = 0) -> list[tuple[Calls, int | None]]:
    found: list[tuple[Calls, int | None]] = []
    for each in calls:
        found.append((each, parent))
        found += _flat(each.inside, at + len(found) - 1, at + len(found))
    return found


@dataclass(frozen=True)
class _Made:
    program: Program
    domains: tuple[str, ...]
    not_counted: tuple[str, ...]
    source: Source
    idle: bool
    scale: float
    half: float

    def energy(self, joules: float) -> Energy | None:
        return around(joules, self.half * abs(joules), self.source)

    def net_j(self, net_j: Mapping[str, float], domain: str) -> float:
        return self.scale * net_j.get(domain, 0.0)

    def gross_j(self, each: Calls | Between, domain: str) -> float:
        idle_j = IDLE_W[domain] * each.seconds if self.idle else 0.0
        return self.net_j(each.net_j, domain) + idle_j

    def total(self, each: Calls | Between, *, net: bool, inside: bool = False) -> float:
        cost = (lambda domain: self.net_j(each.net_j, domain)) if net else (lambda domain: self.gross_j(each, domain))
        own = math.fsum(cost(domain) for domain in self.domains if domain not in self.not_counted)
        if inside and isinstance(each, Calls):
            own += math.fsum(self.total(call, net=net, inside=True) for call in each.inside)
        return own

    def domain_total(self, each: Calls, domain: str, *, net: bool, inside: bool = False) -> float:
        own = self.net_j(each.net_j, domain) if net else self.gross_j(each, domain)
        if inside:
            own += math.fsum(self.domain_total(call, domain, net=net, inside=True) for call in each.inside)
        return own

    def site(self, each: Calls) -> CallSite:
        return CallSite(
            file=each.file,
            line=each.line,
            column=each.column,
            text=each.text,
            function=each.function,
            calls=each.calls,
            energy=self.energy(self.total(each, net=False, inside=True)),
            self_energy=self.energy(self.total(each, net=False)),
            net_energy=self.energy(self.total(each, net=True, inside=True)) if self.idle else None,
            self_net_energy=self.energy(self.total(each, net=True)) if self.idle else None,
            seconds=_seconds(each),
            self_seconds=each.seconds,
            input_bytes=each.input_bytes,
        )

    def domain_cost(self, calls: Sequence[Calls], domain: str) -> DomainCost:
        def of(*, net: bool, inside: bool) -> Energy | None:
            if net and not self.idle:
                return None
            return self.energy(math.fsum(self.domain_total(each, domain, net=net, inside=inside) for each in calls))

        return DomainCost(
            energy=of(net=False, inside=True),
            self_energy=of(net=False, inside=False),
            net_energy=of(net=True, inside=True),
            self_net_energy=of(net=True, inside=False),
        )

    def apis(self) -> list[ApiCalls]:
        flat = [each for each, _ in _flat(self.program.calls)]
        found = []
        for name in dict.fromkeys(each.api for each in flat):
            calls = [each for each in flat if each.api == name]
            sites = tuple(self.site(each) for each in {each.key: each for each in calls}.values())
            sizes = [each.input_bytes for each in calls if each.input_bytes is not None]
            found.append(
                ApiCalls(
                    api=name,
                    library=name.partition(".")[0],
                    calls=sum(each.calls for each in calls),
                    energy=add_common(site.energy for site in sites if site.energy is not None),
                    self_energy=add_common(site.self_energy for site in sites if site.self_energy is not None),
                    net_energy=add_common(site.net_energy for site in sites if site.net_energy is not None),
                    self_net_energy=add_common(
                        site.self_net_energy for site in sites if site.self_net_energy is not None
                    ),
                    domains={domain: self.domain_cost(calls, domain) for domain in self.domains},
                    share=None,
                    seconds=math.fsum(site.seconds for site in sites),
                    self_seconds=math.fsum(site.self_seconds for site in sites),
                    cpu_s=math.fsum(site.seconds for site in sites),
                    shortest_s=min(site.seconds / max(site.calls, 1) for site in sites),
                    longest_s=max(site.seconds / max(site.calls, 1) for site in sites),
                    input_bytes=sum(sizes) if sizes else None,
                    sites=sites,
                    too_short=any(each.too_short for each in calls),
                )
            )
        return found

    def nodes(self, apis: Sequence[ApiCalls]) -> list[CallNode]:
        names = [api.api for api in apis]
        found = []
        for each, parent in _flat(self.program.calls):
            api = names.index(each.api)
            places = [(site.file, site.line, site.column) for site in apis[api].sites]
            site = places.index((each.file, each.line, each.column))
            self_energy = self.energy(self.total(each, net=False))
            found.append(CallNode(parent, api, site, each.calls, each.seconds, self_energy))
        return found

    def gap(self, each: Between) -> Gap:
        net = self.energy(self.total(each, net=True)) if self.idle else None
        gross = self.energy(self.total(each, net=False))
        return Gap(each.file, each.after, each.before, each.count, each.seconds, gross, net)

    def account(self, name: str, seconds: float) -> ApiAccount:
        program = self.program
        calls_j = math.fsum(self.net_j(each.net_j, name) for each, _ in _flat(program.calls))
        between_j = math.fsum(self.net_j(each.net_j, name) for each in program.between)
        others = {
            "children": program.children_j.get(name),
            "measuring": program.measuring_j.get(name),
            "unexplained": program.unexplained_j.get(name, 0.0),
        }
        idle_j = IDLE_W[name] * seconds if self.idle else 0.0
        metered_j = math.fsum([calls_j, between_j, idle_j, *(each for each in others.values() if each is not None)])
        return ApiAccount(
            metered=self.energy(metered_j),
            calls=self.energy(calls_j),
            between=self.energy(between_j),
            idle=around(idle_j, IDLE_HALF * idle_j, self.source) if self.idle else None,
            counted=name not in self.not_counted,
            **{key: None if each is None else self.energy(each) for key, each in others.items()},
        )

    def domain(self, name: str, account: ApiAccount, seconds: float) -> ApiDomain:
        power_w = IDLE_W[name]
        metered_j = _joules(account.metered)
        idle = IdlePower(power_w, 0.99 * power_w, 1.01 * power_w, 0.004, 1.0) if self.idle else None
        return ApiDomain(
            device="NVIDIA H200" if name == "gpu0" else "Intel Xeon",
            kind="power" if name == "gpu0" else "counter",
            source=self.source if account.counted else "estimated",
            period_s=0.02 if name == "gpu0" else 0.001,
            counted=account.counted,
            energy=account.metered,
            net_energy=self.energy(metered_j - _joules(account.idle)) if self.idle else None,
            power_w=metered_j / seconds,
            idle=idle,
        )
