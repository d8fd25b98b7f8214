"""`--loop`: the body of a loop of an ordinary script is recorded, measured and compared like any other step."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import paths
from cli_builders import make_domain, steady, write_program, write_script
from joulediff.archive.reader import load
from joulediff.model.run import Run

TRAIN = paths.ROOT / "examples" / "train.py"
SHORT = ("--seconds", "0.3", "--wait", "0", "--meter", "scripted:steady.json")

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def joulediff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a command in an empty folder, with a meter that reads 50 W."""
    monkeypatch.chdir(tmp_path)
    write_script(tmp_path / "steady.json", (make_domain(window_s=0.05), steady(50.0)))

    def run(command: str, *words: str) -> tuple[int, str, str]:
        at = words.index("--") if "--" in words else len(words)
        short = () if command == "show" else SHORT
        short = short if "--meter" not in words else SHORT[:-2]
        line = [sys.executable, "-m", "joulediff", command, *words[:at], *short, *words[at:]]
        ended = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300)
        return ended.returncode, ended.stdout, ended.stderr

    return run


@needs_torch
def test_a_training_script_is_recorded(joulediff: Call) -> None:
    words = ("--loop", "--replay-seconds", "1", "-o", "train.jd", "--", "--epochs", "1", "--workers", "1")
    code, out, _ = joulediff("record", str(TRAIN), *words)
    assert code in (0, 2)
    assert "epoch 0" not in out, "the script ends after the recording"
    run = load("train.jd")
    assert {each.status for each in run.passes} == {"done"}
    phases = Counter(op.phase for op in run.ops)
    assert phases["forward"] > 5
    assert phases["backward"] > 5
    assert phases["optimizer"] > 5
    names = Counter(op.name for op in run.ops)
    assert names["aten::convolution"] == 2, "one batch"
    assert any(each.name == "output.loss" for each in run.values)
    line = next(i for i, text in enumerate(TRAIN.read_text().splitlines(), 1) if "for x, y in loader:" in text)
    notes = [each for each in run.notes if each.startswith("the step is")]
    assert notes == [f"the step is the loop at {TRAIN}:{line} (for x, y in loader:), iteration 3"]
    first = next(op for op in run.ops if op.name == "aten::convolution")
    assert (run.call_path(first.id)[0].function, run.call_path(first.id)[0].line) == ("main", line + 2)
    code, out, _ = joulediff("show", "train.jd", "--by", "line")
    assert code == 0
    assert f"train.py:{line + 2}" in out


INFERENCE = """
    import torch
    from transformers import BatchEncoding, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    size = {"n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 64, "n_positions": 32}
    model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0)).eval()
    texts = []
    for i in range(16):
        texts.append(torch.randint(0, 64, (8,)))
    batches = []
    for at in range(0, len(texts), 4):
        ids = torch.stack(texts[at : at + 4])
        batches.append(BatchEncoding({"input_ids": ids, "labels": ids}))
    scores = []
    for batch in batches:
        labels = batch.pop("labels")
        with torch.no_grad():
            logits = model(**batch).logits
        scores.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).item())
"""


@needs_transformers
def test_the_loop_that_calls_a_model_is_found(joulediff: Call, tmp_path: Path) -> None:
    write_program(tmp_path / "infer.py", INFERENCE)
    code, _, err = joulediff("record", "infer.py", "--loop", "--no-replay")
    assert code in (0, 2), err
    run = load("infer.jd")
    assert "(for batch in batches:), iteration 3" in run.notes[0]
    assert {op.phase for op in run.ops} == {"forward"}
    assert any(each.name == "output.logits" for each in run.values)


CONVOLUTION = """
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = {enabled}
    model = torch.nn.Conv2d(128, 128, 3, padding=1, groups=128).eval()
    images = [torch.randn(1, 128, 14, 14) for _ in range(5)]
    with torch.no_grad():
        for image in images:
            features = model(image).relu()
"""


@needs_torch
def test_two_scripts_are_compared_and_the_setting_is_found(joulediff: Call, tmp_path: Path) -> None:
    for name, enabled in (("a.py", False), ("b.py", True)):
        write_program(tmp_path / name, CONVOLUTION.format(enabled=enabled))
    # An estimate counts the time on the CPU: other work on the machine does not add to it.
    words = ("a.py", "b.py", "--loop", "--replay-seconds", "2", "--keep", "kept", "-o", "found.json")
    code, out, err = joulediff("diff", *words, "--meter", "estimated")
    assert code in (0, 2), err
    findings = json.loads(Path("found.json").read_text())["findings"]
    assert findings, out
    found = findings[0]
    assert found["cause"]["key"] == "torch.backends.mkldnn.enabled", out
    assert found["proof"] == "cause confirmed", out
    runs = [load(str(path)) for path in sorted(Path("kept").iterdir())]
    assert len(runs) == 2
    assert all("for image in images" in run.notes[0] for run in runs)


def test_a_loop_is_measured(joulediff: Call, tmp_path: Path) -> None:
    text = "import sys\nfor i in range(int(sys.argv[1])):\n    total = sum(range(20_000))\nprint('ended')\n"
    write_program(tmp_path / "plain.py", text)
    code, out, _ = joulediff("measure", "--loop", "plain.py", "--", "5")
    assert code in (0, 2)
    assert re.search(r"^plain  \S+ m?J ± \S+% a step", out, re.M)
    assert "ended" not in out
    code, _, err = joulediff("measure", "plain.py", "--loop", "--", "2")
    assert code == 1
    assert "the loop at plain.py:2 ran 2 times, and is recorded after 2 of them" in err
    assert "--loop-after 1" in err
    assert joulediff("measure", "plain.py", "--loop", "--loop-after", "1", "--", "2")[0] in (0, 2)


def outputs(run: Run) -> list[str]:
    return [value.name or "" for value in run.values]


def test_a_script_without_a_framework_is_recorded(joulediff: Call, tmp_path: Path) -> None:
    text = "def work(n):\n    return sum(range(n))\nwhile True:\n    total = work(20_000)\n"
    write_program(tmp_path / "plain.py", text)
    assert joulediff("record", "plain.py", "--loop")[0] in (0, 2)
    assert outputs(load("plain.jd")) == ["output.total"]


REFUSED = {
    "no loop": ("print(1)\n", (), ("no loop that could be the step", "joulediff.step()")),
    "line": (
        "for i in 'abc':\n    i.upper()\n",
        ("7",),
        ("no loop around line 7", "--loop 1  <module>: for i in 'abc':"),
    ),
    "raises": ("for i in 'abc':\n    1 / 0\n", (), ("plain.py raised ZeroDivisionError", "-vv shows the traceback")),
    "iterator": (
        "it = iter(range(50))\nwhile True:\n    x = next(it)\n",
        (),
        ("the step raised StopIteration", "part of metered pass", "mark the part after next()"),
    ),
}


@pytest.mark.parametrize("name", ["no loop", "line", "raises"])
def test_an_error_names_the_script_and_what_to_do(joulediff: Call, tmp_path: Path, name: str) -> None:
    text, where, said = REFUSED[name]
    write_program(tmp_path / "plain.py", text)
    code, _, err = joulediff("record", "plain.py", "--loop", *where)
    assert code == 1
    for each in (*said, "nothing was recorded"):
        assert each in err
    assert not Path("plain.jd").exists()


def test_a_body_that_uses_up_an_iterator_is_told_so(joulediff: Call, tmp_path: Path) -> None:
    write_program(tmp_path / "plain.py", REFUSED["iterator"][0])
    code, _, err = joulediff("record", "plain.py", "--loop")
    assert code == 1
    assert "the step raised StopIteration" in err
    assert "mark the part after next() with joulediff.step()" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plain.py:main", "--loop"), "give plain.py --loop main"),
        (("plain.py", "--loop", "--step"), "leave out one of them"),
        (("absent.py", "--loop"), "there is no file absent.py"),
    ],
)
def test_a_program_that_is_no_script_is_refused(joulediff: Call, tmp_path: Path, words: Any, said: str) -> None:
    write_program(tmp_path / "plain.py", "def main(): pass\n")
    code, _, err = joulediff("record", *words)
    assert code == 1
    assert said in err


def test_ctrl_c_keeps_what_was_recorded(joulediff: Call, tmp_path: Path) -> None:
    text = """
        import time
        calls = []
        try:
            for i in range(10):
                calls.append(i)
                if len(calls) == 12:
                    print("ready", flush=True)
                time.sleep(0.02 if len(calls) < 12 else 0.3)
        finally:
            print("cleaned up", flush=True)
    """
    del joulediff  # its folder and its meter are used
    write_program(tmp_path / "slow.py", text)
    command = [sys.executable, "-m", "joulediff", "record", "slow.py", "--loop", *SHORT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "cleaned up" in out
    assert [(each.name, each.status) for each in load(str(tmp_path / "slow.jd")).passes] == [("metered", "partial")]
