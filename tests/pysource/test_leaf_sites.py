"""The lines that set the plain values of a step are found in its source: keywords, attributes, defaults, positions."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from joulediff.frameworks.torch.source_hints import SETTERS
from joulediff.model.run import Setting
from joulediff.pysource.leaf_sites import find_leaf_places, find_number_places, words_of


def lines(tmp_path: Path, text: str, leaves: dict[str, Setting]) -> dict[str, str | None]:
    """Return the text of the line of each path."""
    file = tmp_path / "program.py"
    file.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    found = find_leaf_places(leaves, {"program.py": file}, SETTERS)
    return {path: place.text for path, place in found.items()}


def test_the_words_of_a_path() -> None:
    assert words_of("opt.param_groups[0]['foreach']") == ("opt", "param_groups", "0", "foreach")


# A program, a leaf with its value, and the line that sets it.
LINES: dict[str, tuple[str, Setting, str | None]] = {
    "import torch\nopt = torch.optim.AdamW(p, foreach=False)": (
        "opt.param_groups[0]['foreach']",
        False,
        "opt = torch.optim.AdamW(p, foreach=False)",
    ),
    "model.config.use_cache = False": ("model.config.use_cache", False, "model.config.use_cache = False"),
    "model.config.use_cache = True": ("model.config.use_cache", False, None),
    "config = Config()\nconfig._attn_implementation = 'eager'": (
        "m.config._attn_implementation",
        "eager",
        "config._attn_implementation = 'eager'",
    ),
    "m = Model.load(attn_implementation='eager')": (
        "m.config._attn_implementation",
        "eager",
        "m = Model.load(attn_implementation='eager')",
    ),
    "need_weights = True\ndef step(): return f(need_weights)": ("need_weights", True, "need_weights = True"),
    "LIMIT = 80\n": ("LIMIT", 80, "LIMIT = 80"),
    "a, b = 1, True": ("b", True, "a, b = 1, True"),
    "sizes = (8, 16)": ("sizes", "(8, 16)", "sizes = (8, 16)"),
    "options = {'fast': True}": ("options['fast']", True, "options = {'fast': True}"),
    "setattr(model, 'checkpoint', True)": ("model.checkpoint", True, "setattr(model, 'checkpoint', True)"),
    "model = Net().eval()": ("model.training", False, "model = Net().eval()"),
    "model.gradient_checkpointing_enable()": (
        "model.gradient_checkpointing",
        True,
        "model.gradient_checkpointing_enable()",
    ),
    "pipe.vae.disable_slicing()": ("pipe.vae.slicing", False, "pipe.vae.disable_slicing()"),
    "m.set_attn_implementation('eager')": ("m._attn_implementation", "eager", "m.set_attn_implementation('eager')"),
    "import torch\nd = torch.float16": ("d", "float16", "d = torch.float16"),
}


@pytest.mark.parametrize("text", LINES)
def test_the_line_that_sets_a_leaf(text: str, tmp_path: Path) -> None:
    path, value, line = LINES[text]
    assert lines(tmp_path, text, {path: value}).get(path) == line


def test_a_statement_of_several_lines_is_named_by_the_line_of_the_argument(tmp_path: Path) -> None:
    text = """
    opt = AdamW(
        p,
        fused=True,
    )
    """
    assert lines(tmp_path, text, {"opt.defaults['fused']": True})["opt.defaults['fused']"] == "fused=True,"


CLASSES = """
class Block:
    def __init__(self, size, fast=False):
        self._quick = fast

class Net:
    def __init__(self, size, fast):
        self.block = Block(size, fast)

net = Net(16, True)
slow = Block(16)
"""


def test_a_parameter_that_is_passed_on_is_followed_to_the_call_that_gives_it(tmp_path: Path) -> None:
    found = lines(tmp_path, CLASSES, {"net.block._quick": True})
    assert found["net.block._quick"] == "net = Net(16, True)"


def test_a_default_is_the_line_of_the_definition(tmp_path: Path) -> None:
    found = lines(tmp_path, CLASSES, {"slow._quick": False})
    assert found["slow._quick"] == "def __init__(self, size, fast=False):"


def test_a_line_with_the_same_path_is_preferred(tmp_path: Path) -> None:
    text = "draft.config.use_cache = False\nmodel.config.use_cache = False\nother.use_cache = False"
    found = lines(tmp_path, text, {"model.config.use_cache": False, "draft.config.use_cache": False})
    assert found == {
        "model.config.use_cache": "model.config.use_cache = False",
        "draft.config.use_cache": "draft.config.use_cache = False",
    }


def test_objects_have_the_line_that_makes_them(tmp_path: Path) -> None:
    text = "opt = AdamW(p)\nclass T:\n    def __init__(self):\n        self.inner = Inner(3)\n"
    found = lines(tmp_path, text, {"opt.defaults['fused']": None, "t.inner.size": 4})
    assert found == {"opt": "opt = AdamW(p)", "t.inner": "self.inner = Inner(3)"}


def test_lines_with_the_sizes_of_tensors(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "def build():\n    vocab = 50257\n    x = f(8, 3.0, 50_257)\n    return 7, True\n", encoding="utf-8"
    )
    found = find_number_places({50257, 3, 1}, {"program.py": file})
    assert [(place.line, place.function, place.text) for place in found] == [
        (2, "build", "vocab = 50257"),
        (3, "build", "x = f(8, 3.0, 50_257)"),
    ]


def test_a_file_that_cannot_be_parsed_has_no_lines(tmp_path: Path) -> None:
    assert lines(tmp_path, "x = (", {"x": 1}) == {}
