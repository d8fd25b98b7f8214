"""Settings as suspects: what differs between the two runs at an operator, and which of it could matter to kernels."""

from __future__ import annotations

from collections.abc import Mapping

from joulediff.frameworks.framework import switches_of
from joulediff.model.place import Place
from joulediff.model.run import Run, Setting

# Facts about the machine and the libraries, which a program does not choose; told as conditions.
_FACTS = ("host.", "device.", "package.", "model.")


def differing_settings(a: Mapping[str, Setting], b: Mapping[str, Setting]) -> dict[str, tuple[Setting, Setting]]:
    """Return the settings that a program chooses and that are not alike; None where one side has none of that name.

    What one side has of the framework alone belongs to a part of it that the other has not loaded.
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


# What a library notes in a configuration about where it came from.
_NOTES = ("_name_or_path", "_commit_hash", "_use_default_values", "_class_name", "_diffusers_version")


def differing_config(a: Run, b: Run) -> dict[str, tuple[Setting, Setting]]:
    """Return entries of model configurations that are not alike, by their names within the configuration."""
    left, right = _config(a), _config(b)
    return {
        name: (left.get(name), right.get(name))
        for name in sorted({*left, *right})
        if left.get(name) != right.get(name) and name not in _NOTES
    }


def _config(run: Run) -> dict[str, Setting]:
    found = {}
    for name, value in run.settings.items():
        if name.startswith("model.") and ".config." in name:
            found[name.partition(".config.")[2]] = value
    return found


def set_place(run: Run, name: str) -> Place | None:
    """Return where the program's own code sets a setting, if the recording knows."""
    text = run.set_places.get(name)
    if text is None:
        return None
    file, _, rest = text.partition(":")
    while rest and not rest.partition(":")[0].isdigit():  # a drive letter, or a colon in a name
        more, _, rest = rest.partition(":")
        file = f"{file}:{more}"
    line, _, function = rest.partition(":")
    if not line.isdigit():
        return None
    return Place(file, int(line), function, run.line_text(file, int(line)))


def config_place(run: Run, name: str) -> Place | None:
    """Return where the program's own code sets an entry of a model's configuration."""
    found = [key for key in run.set_places if ".config." in key and key.partition(".config.")[2] == name]
    return set_place(run, found[0]) if found else None
