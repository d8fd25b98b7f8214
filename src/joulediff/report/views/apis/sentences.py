"""The run of a script in sentences: its energy, its meters, the parts of its energy, warnings, and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePath

from joulediff.model.apis.api_run import ApiDomain, ApiRun
from joulediff.model.apis.parts import UNEXPLAINED
from joulediff.model.energy import joules_of, mean_power_w, share_of
from joulediff.model.units import format_power, format_share, format_si, format_time
from joulediff.report.views.apis.costs import part_energies, share_text, total_account
from joulediff.report.views.run.sentences import created_text
from joulediff.report.views.short_texts import count_text, format_interval, round_to_sum

# A larger share of the energy that is only a share by time is worth measuring again, call by call.
SHORT_SHARE = 0.1
# Calls, code between calls and idle hold the energy of the program within this share; else the books do not close.
CLOSES_WITHIN = 0.02


def energy_text(run: ApiRun) -> str:
    """Return the energy of the whole program with its interval."""
    return "energy not measured" if run.energy is None else format_interval(run.energy)


def size_text(run: ApiRun) -> str:
    """Return time, power, and the number of calls."""
    power_w = mean_power_w(run.energy, run.seconds)
    calls = f"{count_text(run.calls, 'call')} of {count_text(len(run.apis), 'API')}"
    power = "" if power_w is None else format_power(power_w)
    return "   ".join(filter(None, (format_time(run.seconds), power, calls)))


def about_text(run: ApiRun) -> str:
    """Return the command, when it ran, and the versions."""
    program = shlex.join([PurePath(run.program).name or run.program, *run.arguments])
    versions = [f"{name} {version}" for name, version in run.versions.items()]
    python = f"Python {run.python}" if run.python else ""
    parts = [program, f"recorded {created_text(run.created)}", f"joulediff {run.tool}", python, *versions]
    return ", ".join(filter(None, parts))


def meter_texts(run: ApiRun) -> Iterator[str]:
    """Yield a sentence for each domain: its device, its meter, its power at work and at rest."""
    for name, domain in run.domains.items():
        yield f"{name}: {domain.device}, {', '.join(_meter_facts(domain))}"


def parts_text(run: ApiRun) -> str | None:
    """Return the parts of the whole program: `calls 70.1% + code between calls 12.4% + idle 17.2% = 99.7% of ...`."""
    account = total_account(run)
    if account.metered is None or account.calls is None:
        return None
    parts = {"calls": account.calls, **part_energies(account)}
    shares = [None if part is None else share_of(part.joules, account.metered) for part in parts.values()]
    known = [None if share is None else 1000 * share for share in shares]
    whole = sum(each for each in known if each is not None)
    tenths = round_to_sum(known, total=round(whole))
    shown = [f"{name} {share_text(each)}" for name, each in zip(parts, tenths, strict=True)]
    above = "" if account.idle is None else "; calls and code are above idle"
    return f"{' + '.join(shown)} = {share_text(round(whole))} of the whole program{above}"


def titles(run: ApiRun) -> tuple[str, str]:
    """Return the titles of the tables of APIs and of lines."""
    lines = "by line: calls, and the code between them"
    if run.energy is None:
        return "time by API, without the calls inside: the energy is not known", f"time {lines}"
    net = "" if run.net_energy is None else "; net is above idle"
    return f"energy by API without the calls inside, idle power included{net}", f"energy {lines}"


def warning_texts(run: ApiRun) -> list[str]:
    """Return a sentence for each reason to doubt the numbers: those of the recording, then how it ended."""
    found = list(run.warnings)
    ending = ending_text(run)
    if ending is not None:
        found.insert(0, ending)
    unclosed = unclosed_text(run)
    return found if unclosed is None else [*found, unclosed]


def ending_text(run: ApiRun) -> str | None:
    """Return how the program ended, unless it ran to its end."""
    if run.ending == "exception":
        return f"the program raised {run.error or 'an exception'}: what ran before it is measured"
    if run.ending == "stopped":
        return "the program was stopped: what ran before is measured"
    if run.ending == "killed":
        return "the program was killed: what ran before is measured"
    if run.exit_code:
        return f"the program ended with exit code {run.exit_code}"
    if run.ending == "exit" and run.error is not None:
        return f"the program called sys.exit: {run.error}"
    return None


def unclosed_text(run: ApiRun) -> str | None:
    """Return a sentence if calls, code between calls and idle are not the whole program."""
    account = total_account(run)
    closure = account.closure
    if closure is None or abs(closure - 1) <= CLOSES_WITHIN:
        return None
    return f"the parts are {format_share(closure)} of the energy of the program: the rest is {UNEXPLAINED}"


def next_text(run: ApiRun, path: str | None) -> str | None:
    """Return the command to run next; None if there is none."""
    short_j = sum(joules_of(api.self_energy) for api in run.apis if api.too_short)
    program = shlex.join([run.program, *run.arguments])
    is_file = PurePath(run.program).suffix != ""  # and no cell of a notebook
    if is_file and not run.isolated and run.energy is not None and short_j > SHORT_SHARE * run.energy.joules:
        return f"joulediff apis --isolated {program}"
    if path is not None:
        return f"joulediff show {shlex.quote(path)} --markdown report.md"
    return None


def _meter_facts(domain: ApiDomain) -> Iterator[str]:
    is_metered = domain.source == "metered"
    yield f"{domain.source} every {format_si(domain.period_s, 's', digits=2)}" if is_metered else domain.source
    if domain.power_w is not None:
        yield f"mean {format_power(domain.power_w)}"
    if domain.idle is not None:
        yield f"idle {format_power(domain.idle.power_w)} ± {format_share(domain.idle.spread_share)}"
    if not domain.counted:
        yield "not added"
    if domain.note:
        yield domain.note
