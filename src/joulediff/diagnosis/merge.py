"""Findings of one cause as one: a switch that makes ten rows dearer is reported once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from joulediff.diagnosis.lead import Lead
from joulediff.diagnosis.significance import joules
from joulediff.model.energy import add
from joulediff.model.finding import Cost, Finding, Proof

# A part of the difference that was confirmed must be at least this to speak for all of it.
_MOST = 0.9


def join_leads(leads: Sequence[Lead]) -> Lead:
    """Return several settings that are one cause only together."""
    first = leads[0]
    keys = " and ".join(str(lead.cause.key) for lead in leads)
    value_a = " and ".join(str(lead.cause.value_a) for lead in leads)
    value_b = " and ".join(str(lead.cause.value_b) for lead in leads)
    evidence = tuple(text for lead in leads for text in lead.cause.evidence)
    return replace(first, cause=replace(first.cause, key=keys, value_a=value_a, value_b=value_b, evidence=evidence))


def identity(finding: Finding) -> object:
    """Return what findings of one cause share; those without a known cause share nothing."""
    cause = finding.cause
    if finding.kind == "unknown" or cause.type in ("call_path", "redundancy"):
        configured = cause.type == "call_path" and finding.kind == "misconfiguration"
        here = cause.locations.of(finding.expensive)
        if not configured:
            return (cause.type, cause.key, here, finding.expensive, finding.region)
    # A switch is thrown in one place, wherever the operators run that it is about.
    location = None if cause.type == "setting" else cause.locations.of(finding.expensive)
    return (cause.type, cause.key, cause.value_a, cause.value_b, location, finding.expensive, finding.verdict)


def merge(findings: Sequence[Finding], *, keep_first: bool = False) -> Finding:
    """Return one finding for several rows of the same cause.

    The one with the most joules speaks for them, or, with `keep_first`, the first, which was tried with the others.
    """
    if len(findings) == 1:
        return findings[0]
    ordered = list(findings) if keep_first else sorted(findings, key=lambda finding: -finding.cost.delta_j)
    first = ordered[0]
    energy_a = add((i, f.cost.energy_a) for i, f in enumerate(ordered) if f.cost.energy_a is not None)
    energy_b = add((i, f.cost.energy_b) for i, f in enumerate(ordered) if f.cost.energy_b is not None)
    delta_j = sum(f.cost.delta_j for f in ordered)
    cheap_j = min(joules(energy_a), joules(energy_b))
    confirmations = [f.proof.confirmation for f in ordered if f.proof.confirmation is not None]
    saved_j = [each.saved_j for each in confirmations if each.saved_j is not None]
    shares = [each.saved_share for each in confirmations if each.saved_share is not None]
    confirmed_j = sum(f.cost.delta_j for f in ordered if f.proof.confirmed)
    confirmation = None
    if first.proof.confirmation is not None:
        confirmation = replace(
            first.proof.confirmation,
            saved_j=sum(saved_j) if saved_j else None,
            saved_share=sum(shares) if shares else None,
        )
    return replace(
        first,
        region=first.region if keep_first else f"{first.region}, {len(ordered) - 1} more",
        where=first.where if all(f.where == first.where for f in ordered) else "",
        regions=tuple(number for f in ordered for number in f.regions),
        cost=Cost(
            energy_a=energy_a,
            energy_b=energy_b,
            delta_j=delta_j,
            ratio=max(joules(energy_a), joules(energy_b)) / cheap_j if cheap_j > 0 else None,
            share_of_run=_sum([f.cost.share_of_run for f in ordered]),
            p_value=min((f.cost.p_value for f in ordered if f.cost.p_value is not None), default=None),
            time_a_s=_sum([f.cost.time_a_s for f in ordered]),
            time_b_s=_sum([f.cost.time_b_s for f in ordered]),
            difference=max((f.cost.difference for f in ordered if f.cost.difference is not None), default=None),
        ),
        proof=Proof(
            first.proof.confirmed and (keep_first or confirmed_j >= _MOST * delta_j),
            confirmation,
        ),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
