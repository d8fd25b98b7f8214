"""Replacements in a text, by the offsets of its characters. They never overlap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TextEdit:
    """Replaces the characters from `start` to `end`. At one offset the order of the list holds."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """Return the text with all edits."""
    parts = []
    at = 0
    for edit in sorted(edits, key=lambda each: (each.start, each.end)):
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])


def to_characters(text: str, edits: Iterable[TextEdit]) -> list[TextEdit]:
    """Return edits by offsets in the UTF-8 of a text as edits by characters."""
    if text.isascii():
        return list(edits)
    encoded = text.encode("utf-8")
    places = sorted({place for edit in edits for place in (edit.start, edit.end)})
    characters = {}
    before = count = 0
    for place in places:
        count += len(encoded[before:place].decode("utf-8"))
        characters[place], before = count, place
    return [TextEdit(characters[each.start], characters[each.end], each.text) for each in edits]
