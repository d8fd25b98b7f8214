"""What makes rows alike, so that a proof for one of them holds for the others.

Either their ways part inside a library, to the same two functions; or they are of one operator, under one setting.
"""

from __future__ import annotations

from joulediff.diagnosis.evidence.deviation import find_deviation
from joulediff.diagnosis.evidence.find_leads import find_leads
from joulediff.diagnosis.lead import Subject
from joulediff.model.finding import Cause


def expected_way(subject: Subject) -> object:
    """Return what the row of a subject has in common with others, by its strongest evidence; None for nothing."""
    if subject.op_a is None or subject.op_b is None:
        return None
    return _functions(subject) or _switch(subject, find_leads(subject, {})[0].cause)


def proven_way(subject: Subject, cause: Cause) -> object:
    """Return what a row has in common with others now that its cause is proven; None for nothing."""
    return _functions(subject) or _switch(subject, cause)


def _functions(subject: Subject) -> object:
    """Return the two functions of a library that the ways part to; None where they do not part in one."""
    sides = subject.sides
    if subject.op_a is None or subject.op_b is None:
        return None
    found = find_deviation(sides.a.call_path(subject.op_a), sides.b.call_path(subject.op_b))
    if found is None or found.common_a.owner is None or found.first_a is None or found.first_b is None:
        return None
    functions = [(frame.file, frame.function) for frame in (found.first_a, found.first_b)]
    return None if functions[0] == functions[1] else (subject.expensive, *functions)


def _switch(subject: Subject, cause: Cause) -> object:
    """Return a setting and the operator that runs under it; None for another cause."""
    op = subject.op(subject.expensive)
    if cause.type != "setting" or op is None:
        return None
    name = subject.sides.run(subject.expensive).ops[op].name
    return (subject.expensive, cause.key, cause.value_a, cause.value_b, name)
