"""Dataclasses through the codec: another name in JSON, and nested dataclasses stored inline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from joulediff.archive.codec import Document, from_plain, to_plain
from joulediff.model.errors import ArchiveError

DOCUMENT = Document(within="")


@dataclass(frozen=True)
class Inner:
    joules: float
    note: str | None = None


@dataclass(frozen=True)
class Middle:
    inner: Inner = field(metadata={"inline": True})
    level: int = 1


@dataclass(frozen=True)
class Outer:
    id: str
    rows: tuple[Inner, ...] = field(default=(), metadata={"name": "regions"})
    middle: Middle = field(default=Middle(Inner(0.0)), metadata={"inline": True})


OUTER = Outer("f1", (Inner(1.0), Inner(2.0, "two")), Middle(Inner(3.0, "three"), 4))
PLAIN: dict[str, Any] = {
    "id": "f1",
    "regions": [{"joules": 1.0, "note": None}, {"joules": 2.0, "note": "two"}],
    "joules": 3.0,
    "note": "three",
    "level": 4,
}


def read(value: object) -> Any:
    return from_plain(Outer, value, "outer", DOCUMENT)


def test_a_field_has_its_other_name_and_inline_fields_stand_beside_the_others() -> None:
    assert to_plain(OUTER) == PLAIN
    assert list(to_plain(OUTER)) == list(PLAIN)
    assert read(PLAIN) == OUTER


def test_fields_with_a_default_may_be_missing() -> None:
    assert read({"id": "f1"}) == Outer("f1")
    assert read({"id": "f1", "joules": 5.0}) == Outer("f1", (), Middle(Inner(5.0)))


def test_the_name_of_the_field_itself_is_no_key() -> None:
    assert read({"id": "f1", "rows": [{"joules": 1.0}]}).rows == ()
    assert read({"id": "f1", "middle": {"inner": {"joules": 1.0}}}) == Outer("f1")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"joules": "3"}, "outer.joules may not be the str 3"),
        ({"joules": None}, "outer.joules may not be the null"),
        ({"level": 1.5}, "outer.level may not be the float 1.5"),
        ({"regions": {}}, "outer.regions may not be the dict"),
        ({"regions": [{}]}, "outer.regions[0].joules is missing"),
    ],
)
def test_reading_stays_strict(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ArchiveError) as caught:
        read({**PLAIN, **change})
    assert caught.value.what == told


def test_a_required_inline_field_is_missed_by_its_own_fields() -> None:
    with pytest.raises(ArchiveError, match=r"^middle\.joules is missing$"):
        from_plain(Middle, {"level": 2}, "middle", DOCUMENT)
    # One key of an inline field is there, so it is not the default that is meant.
    with pytest.raises(ArchiveError, match=r"^outer\.joules is missing$"):
        read({"id": "f1", "level": 2})


@dataclass(frozen=True)
class Twice:
    note: str
    inner: Inner = field(metadata={"inline": True})


@dataclass(frozen=True)
class Scalar:
    count: int = field(default=1, metadata={"inline": True})


@pytest.mark.parametrize(
    ("value", "told"),
    [(Twice("a", Inner(1.0)), "Twice has the key note twice"), (Scalar(), "Scalar.count is no dataclass")],
)
def test_a_dataclass_that_cannot_be_stored_is_refused_both_ways(value: object, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        to_plain(value)
    with pytest.raises(TypeError, match=told):
        from_plain(type(value), {}, "value", DOCUMENT)
