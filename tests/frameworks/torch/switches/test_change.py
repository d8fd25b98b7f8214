"""Settings changed while a program runs: each takes its value, and afterwards everything reads as before."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from joulediff.frameworks.torch.switches.change import changed  # noqa: E402
from joulediff.frameworks.torch.switches.read import put_torch  # noqa: E402
from joulediff.frameworks.torch.switches.table import aliases, group_aliases  # noqa: E402
from joulediff.model.errors import JoulediffError  # noqa: E402
from joulediff.model.run import Setting  # noqa: E402

MATMUL = "torch.backends.cuda.matmul"
OTHER: dict[str, Setting] = {
    "torch.backends.cuda.flash_sdp_enabled": False,
    "torch.backends.cuda.math_sdp_enabled": False,
    "torch.backends.cuda.mem_efficient_sdp_enabled": False,
    "torch.backends.cuda.cudnn_sdp_enabled": False,
    "torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed": True,
    f"{MATMUL}.allow_tf32": True,
    f"{MATMUL}.allow_fp16_reduced_precision_reduction": False,
    f"{MATMUL}.allow_bf16_reduced_precision_reduction": False,
    "torch.backends.cudnn.enabled": False,
    "torch.backends.cudnn.benchmark": True,
    "torch.backends.cudnn.deterministic": True,
    "torch.backends.cudnn.allow_tf32": False,
    "torch.backends.mkldnn.enabled": False,
    "torch.backends.mha.get_fastpath_enabled": False,
    "torch.float32_matmul_precision": "medium",
    "torch.num_threads": torch.get_num_threads() + 1,
    "torch.deterministic.enabled": True,
    "torch.deterministic.warn_only": True,
    "torch.deterministic.fill_uninitialized_memory": False,
    "torch.default_dtype": "float64",
    "torch.grad_enabled": False,
    "torch.autocast.cache": False,
}
# Newer versions have more.
NEWER: dict[str, Setting] = {
    f"{MATMUL}.allow_fp16_accumulation": True,
    f"{MATMUL}.fp32_precision": "tf32",
    "torch.backends.fp32_precision": "tf32",
    "torch.backends.cudnn.fp32_precision": "tf32",
    "torch.backends.cudnn.conv.fp32_precision": "ieee",
    "torch.backends.cudnn.rnn.fp32_precision": "ieee",
    "torch.backends.mkldnn.fp32_precision": "bf16",
    "torch.backends.mkldnn.matmul.fp32_precision": "bf16",
    "torch.backends.mkldnn.conv.fp32_precision": "bf16",
    "torch.backends.mkldnn.deterministic": True,
    "torch.backends.miopen.immediate": True,
    "torch.backends.python_native.triton.enabled": False,
}


def read() -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    put_torch(found)
    return found


@pytest.mark.parametrize("name", [*OTHER, *NEWER])
def test_a_setting_is_changed_and_restored(name: str) -> None:
    before = read()
    if name not in before:
        pytest.skip("not in this PyTorch")
    value = {**OTHER, **NEWER}[name]
    assert before[name] != value
    with changed({name: value}):
        assert read()[name] == value
    assert read() == before


def test_all_are_changed_at_once_and_restored() -> None:
    before = read()
    with changed(OTHER):
        assert {name: read()[name] for name in OTHER} == OTHER
    assert read() == before


def test_an_exception_of_the_program_passes_and_all_settings_are_restored() -> None:
    before = read()
    with pytest.raises(KeyError), changed(OTHER):
        raise KeyError
    assert read() == before


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction_split_k"), reason="older"
)
@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_two_flags_that_are_set_together_are_restored_together(kind: str) -> None:
    before = read()
    reduction = f"{MATMUL}.allow_{kind}_reduced_precision_reduction"
    with changed({reduction: False, f"{reduction}_split_k": False}):
        within = read()
        assert (within[reduction], within[f"{reduction}_split_k"]) == (False, False)
        with changed({reduction: True}):
            assert read()[reduction] is True
        assert read() == within
    assert read() == before


def test_changes_nest() -> None:
    before = read()
    with changed({f"{MATMUL}.allow_tf32": True}):
        within = read()
        with changed({"torch.float32_matmul_precision": "highest"}):
            assert read()[f"{MATMUL}.allow_tf32"] is False
        assert read() == within
    assert read() == before


def test_a_change_by_the_program_to_the_same_setting_is_undone() -> None:
    before = read()
    with changed({"torch.backends.cudnn.benchmark": True}):
        torch.backends.cudnn.benchmark = False
    assert read() == before


@pytest.mark.parametrize(
    "name",
    [
        "env.OMP_NUM_THREADS",
        "package.torch",
        "host.os",
        "device.cuda:0.name",
        "model.model.dtype",
        "torch.version.cuda",
        "torch.num_interop_threads",
        "torch.backends.cuda.is_built",
        "torch.backends.nowhere.enabled",
        "torch.backends.cudnn.is_available",
    ],
)
def test_a_setting_without_a_switch_is_refused(name: str) -> None:
    before = read()
    refused = pytest.raises(JoulediffError, match=f"^{name} cannot be changed at run time$")
    with refused, changed({"torch.backends.cudnn.benchmark": True, name: "x"}):
        raise AssertionError
    assert read() == before


@pytest.mark.parametrize(
    "settings",
    [
        {"torch.default_dtype": "nothing"},
        {"torch.default_dtype": "int64"},
        {"torch.float32_matmul_precision": "lowest"},
        {"torch.num_threads": 0},
        {"torch.backends.cudnn.benchmark": "often"},
        {f"{MATMUL}.allow_tf32": True, "torch.float32_matmul_precision": "highest"},
    ],
)
def test_a_value_that_is_not_taken_is_refused_and_nothing_stays_changed(settings: dict[str, Setting]) -> None:
    before = read()
    with pytest.raises(JoulediffError), changed({"torch.backends.cudnn.deterministic": True, **settings}):
        raise AssertionError
    assert read() == before


# Each in a process of its own: what the two interfaces left behind cannot be unmixed.
MIXED = """
import json, warnings
warnings.simplefilter("error")
import torch
from joulediff.model.errors import JoulediffError
from joulediff.frameworks.torch.switches.read import put_torch
from joulediff.frameworks.torch.switches.change import changed
def read():
    found = {{}}
    put_torch(found)
    return found
def read_behind():
    # What a setting follows shows once that is changed.
    top, seen = torch._C._get_fp32_precision_getter("generic", "all"), []
    for value in ("tf32", "ieee", "none", top):
        torch._C._set_fp32_precision_setter("generic", "all", value)
        seen.append(read())
    return seen
def try_all(tried, read):
    before, refused = read(), 0
    for settings in tried:
        try:
            with changed(settings):
                now = globals()["read"]()
                assert all(now[name] == value for name, value in settings.items()), now
        except JoulediffError:
            refused += 1
        assert read() == before, settings
    assert refused < 2
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    {change}
print(json.dumps(read()))
try_all({matmul}, read_behind)
try_all({cudnn}, read)
"""
CHANGES = [
    "pass",
    "torch.set_float32_matmul_precision('medium')",
    "torch.backends.fp32_precision = 'tf32'",
    "torch.backends.cudnn.conv.fp32_precision = 'ieee'",
    "torch.backends.cudnn.fp32_precision = 'tf32'; torch.backends.cuda.matmul.fp32_precision = 'ieee'",
    "torch.set_float32_matmul_precision('high'); torch.backends.cuda.matmul.fp32_precision = 'ieee'",
    "torch.backends.cudnn.allow_tf32 = False; torch.backends.cudnn.conv.fp32_precision = 'tf32'",
]
PRECISE = f"{MATMUL}.fp32_precision"
TRIED: list[dict[str, Setting]] = [
    {f"{MATMUL}.allow_tf32": True},
    {f"{MATMUL}.allow_tf32": False},
    {"torch.float32_matmul_precision": "high"},
    {PRECISE: "tf32"},
    {f"{MATMUL}.allow_tf32": True, PRECISE: "tf32", "torch.float32_matmul_precision": "high"},
    {"torch.backends.cudnn.benchmark": True},
]
CUDNN: list[dict[str, Setting]] = [
    {"torch.backends.cudnn.allow_tf32": True},
    {"torch.backends.cudnn.allow_tf32": False},
    {"torch.backends.cudnn.conv.fp32_precision": "ieee"},
]


def run(change: str, matmul: list[dict[str, Setting]], cudnn: list[dict[str, Setting]]) -> dict[str, Setting]:
    done = subprocess.run(
        [sys.executable, "-c", MIXED.format(change=change, matmul=matmul, cudnn=cudnn)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Setting] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def fresh() -> dict[str, Setting]:
    return run("pass", [], [])


two_interfaces = pytest.mark.skipif(not hasattr(torch._C, "_set_fp32_precision_setter"), reason="one interface alone")


@two_interfaces
@pytest.mark.parametrize("change", CHANGES)
def test_either_interface_to_precision_is_restored_whichever_the_program_used(change: str) -> None:
    run(change, TRIED, CUDNN)


def test_names_of_one_switch() -> None:
    assert f"{MATMUL}.allow_tf32" in aliases("torch.float32_matmul_precision")
    assert "torch.float32_matmul_precision" in aliases(f"{MATMUL}.allow_tf32")
    assert f"{MATMUL}.fp32_precision" in aliases("torch.backends.fp32_precision")
    assert aliases("torch.backends.cudnn.benchmark") == ()


@two_interfaces
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("torch.backends.cuda.matmul.allow_tf32 = True", f"{MATMUL}.allow_tf32"),
        ("torch.set_float32_matmul_precision('high')", "torch.float32_matmul_precision"),
        ("torch.backends.cudnn.allow_tf32 = False", "torch.backends.cudnn.allow_tf32"),
        ("torch.backends.fp32_precision = 'tf32'", "torch.backends.fp32_precision"),
        ("torch.backends.cuda.matmul.fp32_precision = 'tf32'", f"{MATMUL}.fp32_precision"),
    ],
)
def test_all_that_one_line_changes_is_one_group_named_after_it(
    change: str, expected: str, fresh: dict[str, Setting]
) -> None:
    before, after = fresh, run(change, [], [])
    differing = [name for name in after if name in before and after[name] != before[name]]
    groups = group_aliases(differing)
    assert len(groups) == 1
    assert groups[0][0] == expected


def test_settings_of_different_switches_are_in_different_groups() -> None:
    names = ["env.X", f"{MATMUL}.fp32_precision", "torch.backends.cudnn.allow_tf32", f"{MATMUL}.allow_tf32"]
    assert group_aliases(names) == [
        ("env.X",),
        (f"{MATMUL}.allow_tf32", f"{MATMUL}.fp32_precision"),
        ("torch.backends.cudnn.allow_tf32",),
    ]
    assert group_aliases([]) == []
