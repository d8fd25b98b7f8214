"""A finding in the making: one difference, the leads on it, and the result of its trials.

Trials take a draft and return a new one; `build` makes a finding of a draft when all passes are done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from joulediff.diagnosis.comparison import Comparison
from joulediff.diagnosis.evidence.host.busy_wait import BusyWait
from joulediff.diagnosis.evidence.host.host_lines import HostLine
from joulediff.diagnosis.evidence.only_difference import OnlyDifference
from joulediff.diagnosis.lead import Lead, Subject
from joulediff.diagnosis.significance import RowComparison
from joulediff.diagnosis.trials.region_trials import RegionTrials
from joulediff.diagnosis.whole_steps.function_rows import FunctionRow
from joulediff.frameworks.jobs import LiveProgram
from joulediff.model.diff import OtherDifference, RowVerdict, Thresholds
from joulediff.model.finding import Cost, Price, Proof, Trial, Verdict, Work
from joulediff.model.pair import SideName
from joulediff.model.progress import ProgressListener

NOT_PROVEN = Proof("observed", None)
CAUSE_CONFIRMED = Proof("cause confirmed", None)
REPLACEMENT_CONFIRMED = Proof("replacement confirmed", None)
"""The states after a successful trial of a region, before its saving is known."""
NO_WORK = Work((), (), (), (), (), ())


@dataclass(frozen=True, slots=True)
class Draft:
    """One difference. `lead` is its cause so far; the other fields hold its rows and trials."""

    comparison: Comparison
    limits: Thresholds
    expensive: SideName
    name: str
    cost: Cost
    lead: Lead
    where: str = ""
    verdict: Verdict = "waste"
    work: Work = NO_WORK
    proof: Proof = NOT_PROVEN
    leads: tuple[Lead, ...] = ()
    """All leads, the strongest first."""
    regions: tuple[int, ...] = ()
    """Numbers of all its regions."""
    count: int | None = None
    """Number of similar regions in the row that names the draft."""
    rows: tuple[int, ...] = ()
    """Rows of the comparison that it covers, that of the draft itself first."""
    holds_around: bool = False
    """The energy around operators is part of its cost."""
    tried_regions: frozenset[int] = frozenset()
    """Regions that were tried together as one, with success."""
    live: Mapping[SideName, LiveProgram] = field(default_factory=dict)
    """Programs that trials may run."""
    subject: Subject | None = None
    trials: RegionTrials | None = None
    """The trials of its region; None if it has no region, or the region cannot be run."""
    only_difference: OnlyDifference | None = None
    """Set if nothing else differs between the programs."""
    failed: tuple[Trial, ...] = ()
    """Trials of larger regions that explained nothing."""
    busy_wait: BusyWait | None = None
    """Set if the cause is a host that spins while it waits."""
    is_whole_cause: bool = False
    """The cause was changed in the program itself, and the draft holds all rows that follow from it."""
    host_line: HostLine | None = None
    """Set if the cause is a line in which the host works or waits."""
    call_key: object = None
    """Rows with the same key do more of the same work in one pair of calls, for one reason; None for other rows."""
    prices: tuple[Price, ...] = ()
    """Extra work of the cheap side for the same cause; `cost` and the saving are net of it."""
    set_aside: tuple[str, ...] = ()
    """Settings that differ where its operators run, and that no trial confirmed."""
    proof_key: object = None
    """Rows with the same key have the same cause once it is proven; None if no other row can."""

    @property
    def confirmed(self) -> bool:
        """Whether a trial has confirmed `lead`."""
        return self.proof.confirmed


@dataclass(slots=True)
class Investigation:
    """State shared by the passes of a diagnosis: the comparison, the runnable programs, and the drafts so far."""

    comparison: Comparison
    rows: Sequence[RowComparison]
    limits: Thresholds
    live: Mapping[SideName, LiveProgram]
    listener: ProgressListener
    only_difference: OnlyDifference | None = None
    drafts: list[Draft] = field(default_factory=list)
    settled: dict[int, RowVerdict] = field(default_factory=dict)
    """Verdicts on rows without a finding, by the number of the row."""
    also_differs: list[OtherDifference] = field(default_factory=list)
    """Settings that differ where operators run; those that a finding names as its cause are left out at the end."""
    notes: list[str] = field(default_factory=list)
    functions: Sequence[FunctionRow] = ()
    """The rows of steps that are compared as a whole."""
    tried: int = 0
    """Number of rows that were tried by running a program."""
