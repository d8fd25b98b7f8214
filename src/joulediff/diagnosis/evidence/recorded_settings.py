"""Differences between the recorded settings of two runs, and the lines of code that set them."""

from __future__ import annotations

from collections.abc import Mapping

from joulediff.frameworks.framework import switches_of
from joulediff.model.place import Place
from joulediff.model.run import Run, Setting

# Facts about the machine and the libraries, which a program does not choose; they are reported as conditions.
_FACTS = ("host.", "device.", "package.", "model.")


def differing_settings(a: Mapping[str, Setting], b: Mapping[str, Setting]) -> dict[str, tuple[Setting, Setting]]:
    """Return the settings that a program chooses and that differ; None means that a side lacks that setting.

    A framework's setting that only one side has belongs to a part of it that the other side has not loaded.
    """
    return {
        name: (a.get(name), b.get(name))
        for name in sorted({*a, *b})
        if a.get(name) != b.get(name) and not name.startswith(_FACTS) and _is_choice(name, a, b)
    }


def _is_choice(name: str, a: Mapping[str, Setting], b: Mapping[str, Setting]) -> bool:
    switches = switches_of(name)
    if switches is None:
        return True
    return name in a and name in b and name not in switches.modes and not name.startswith(switches.facts)


# Entries of a configuration that record its origin.
_ORIGINS = ("_name_or_path", "_commit_hash", "_use_default_values", "_class_name", "_diffusers_version")


def differing_config(a: Run, b: Run) -> dict[str, tuple[Setting, Setting]]:
    """Return the entries of model configurations that differ, by their names within the configuration."""
    left, right = _config(a), _config(b)
    return {
        name: (left.get(name), right.get(name))
        for name in sorted({*left, *right})
        if left.get(name) != right.get(name) and name not in _ORIGINS
    }


def _config(run: Run) -> dict[str, Setting]:
    found = {}
    for name, value in run.settings.items():
        if name.startswith("model.") and ".config." in name:
            found[name.partition(".config.")[2]] = value
    return found


def set_place(run: Run, name: str) -> Place | None:
    """Return the line of the user's code that sets a setting; None if it is not recorded."""
    text = run.set_places.get(name)
    return None if text is None else parse_place(run, text)


def parse_place(run: Run, text: str) -> Place | None:
    """Return a recorded `file:line:function` as a place; None for another text."""
    file, _, rest = text.partition(":")
    while rest and not rest.partition(":")[0].isdigit():  # a drive letter, or a colon in a name
        more, _, rest = rest.partition(":")
        file = f"{file}:{more}"
    line, _, function = rest.partition(":")
    if not line.isdigit():
        return None
    return Place(file, int(line), function, run.line_text(file, int(line)))


def config_place(run: Run, name: str) -> Place | None:
    """Return the line of the user's code that sets an entry of a model's configuration."""
    found = [key for key in run.set_places if ".config." in key and key.partition(".config.")[2] == name]
    return set_place(run, found[0]) if found else None
