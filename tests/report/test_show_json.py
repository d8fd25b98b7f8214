"""The JSON of a run: its schema, its sums, and null for unknown values."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from joulediff.model.run import Pass, Run
from joulediff.report.json.measurement import to_json
from joulediff.report.json.run import run_to_json
from run_builders import PASSES, Gpt2, RunBuilder, domain_energy, gpt2_run, measurement
from show_builders import replayed

ENERGY = {"joules": float, "low": float, "high": float, "source": str}
PARTS = ("operators", "idle", "host", "waits", "unexplained")
ACCOUNT = {"metered": ENERGY, **dict.fromkeys((*PARTS, "not_split"), (ENERGY, None))}
HOST_PART = {
    "function": str,
    "file": (str, None),
    "line": (int, None),
    "calls": str,
    "energy": (ENERGY, None),
    "time_s": float,
    "cpu_s": float,
    "count": int,
}
REPLAY = {
    "op": int,
    "domain": str,
    "energy_j": (float, None),
    "low_j": (float, None),
    "high_j": (float, None),
    "source": str,
    "rest_w": (float, None),
    "call_s": (float, None),
    "cpu_s": (float, None),
    "calls": int,
    "clock_mhz": (float, None),
    "how": (str, None),
    "inputs": (str, None),
    "copies": int,
    "note": (str, None),
    "beside_j": (float, None),
    "ops": int,
}
# What a reader may rely on: the type of every field, `None` where null is possible.
REGION: dict[str, Any] = {"name": str, "calls": int, "kernel_s": (float, None), "energy": (ENERGY, None)}
SCHEMA: dict[str, Any] = {
    "schema": str,
    "label": str,
    "program": (str, None),
    "created": str,
    "tool": str,
    "passes": [{"name": str, "status": str, "seconds": float, "note": (str, None)}],
    "notes": [str],
    "step": {
        "energy": (ENERGY, None),
        "net_energy": (ENERGY, None),
        "step_s": (float, None),
        "repeats": (int, None),
        "steps": (int, None),
        "domains": (dict, None),
        "idle_w": (dict, None),
        "clocks_mhz": (dict, None),
        "cpu_s": (float, None),
        "minor_faults": (float, None),
        "major_faults": (float, None),
        "profiles": (dict, None),
        "many_steps": (dict, None),
    },
    "conditions": {
        "trustworthy": (bool, None),
        "warnings": ([str], None),
        "conditions": ([dict], None),
        "devices": ([dict], None),
        "sampling_share": (float, None),
    },
    "traced_s": (float, None),
    "ledger": (
        {
            "domains": dict,
            "total": (ACCOUNT, None),
            "split": (str, None),
            "unexplained_share": (float, None),
            "closed": (bool, None),
            "exceeds_meter": bool,
        },
        None,
    ),
    "regions": ([REGION], None),
    "outside_regions": (REGION, None),
    "ops": (
        [
            {
                "id": int,
                "name": str,
                "overload": str,
                "module": (str, None),
                "file": (str, None),
                "line": (int, None),
                "user_file": (str, None),
                "user_line": (int, None),
                "phase": str,
                "compiled": bool,
                "calls": int,
                "kernel_s": (float, None),
                "energy": (ENERGY, None),
                "power_w": (float, None),
                "replay": (int, None),
                "arguments": str,
                "inputs": [{"shape": [int], "dtype": str, "strides": [int], "device": str}],
                "outputs": [{"shape": [int], "dtype": str, "strides": [int], "device": str}],
            }
        ],
        None,
    ),
    "replays": ([REPLAY], None),
    "kernels": (
        [
            {
                "name": str,
                "kind": str,
                "device": str,
                "streams": [int],
                "calls": int,
                "kernel_s": float,
                "energy": (ENERGY, None),
                "size_bytes": (int, None),
                "joined": int,
            }
        ],
        None,
    ),
    "unseen": (
        {
            "kernels": int,
            "kernel_s": float,
            "time_share": (float, None),
            "energy": (ENERGY, None),
            "share": (float, None),
            "name": str,
        },
        None,
    ),
    "idle": (
        [{"device": str, "span_s": float, "busy_s": float, "idle_s": float, "largest_gap": (dict, None)}],
        None,
    ),
    "waits": ([{"name": str, "file": (str, None), "line": (int, None), "calls": int, "wait_s": float}], None),
    "sampling": ({"steps": int, "period_s": float, "step_s": float, "plain_step_s": float}, None),
    "host": (
        [
            {
                "file": (str, None),
                "line": (int, None),
                "function": (str, None),
                "calls": str,
                "time_s": float,
                "cpu_s": float,
                "count": int,
            }
        ],
        None,
    ),
    "functions": ([HOST_PART], None),
    "lines": ([HOST_PART], None),
    "settings": dict,
}


def misfits(value: Any, form: Any, at: str = "") -> list[str]:
    """Return where a value does not have its form; a field too many is a misfit as well."""
    if isinstance(form, tuple):
        return [] if value is None and None in form else misfits(value, form[0], at)
    if isinstance(form, dict):
        if not isinstance(value, dict) or set(value) != set(form):
            return [f"{at}: {value!r:.80} has not the fields {sorted(form)}"]
        return [each for name in form for each in misfits(value[name], form[name], f"{at}.{name}")]
    if isinstance(form, list):
        if not isinstance(value, list):
            return [f"{at}: {value!r:.80} is no list"]
        return [each for i, item in enumerate(value) for each in misfits(item, form[0], f"{at}[{i}]")]
    kind = (float, int) if form is float else form
    return [] if isinstance(value, kind) and (form is bool or not isinstance(value, bool)) else [f"{at}: {value!r:.80}"]


def read_run(run: Run) -> Any:
    return json.loads(run_to_json(run))


def bare() -> Run:
    return Run("bare", None, "2026-11-20T10:31:22+00:00", "0.2.0")


def captured() -> Run:
    return Gpt2(2).build(kernels=(), waits=(), traced_s=None, passes=(PASSES[2],))


@pytest.mark.parametrize("run", [gpt2_run(), replayed(), bare(), captured()])
def test_the_schema(run: Run) -> None:
    found = json.loads(run_to_json(run))
    assert found["schema"] == "joulediff.run/1"
    assert misfits(found, SCHEMA) == []
    for account in (found["ledger"] or {"domains": {}})["domains"].values():
        assert misfits(account, {**ACCOUNT, "in_total": bool}) == []


def test_energies_of_operators_kernels_and_the_ledger_agree() -> None:
    found = read_run(replayed())
    operators = found["ledger"]["total"]["operators"]["joules"]
    for name in ("ops", "kernels"):
        joules = [entry["energy"]["joules"] for entry in found[name] if entry["energy"] is not None]
        assert sum(joules) == pytest.approx(operators)
        assert joules == sorted(joules, reverse=True)
    (pow_,) = [op for op in found["ops"] if op["name"] == "aten::pow" and op["module"] == "transformer.h.0.mlp.act"]
    replay = found["replays"][pow_["replay"]]
    assert pow_["energy"]["source"] == "replayed"
    assert pow_["energy"]["joules"] == pytest.approx(replay["energy_j"] + 75.8 * 21e-6)
    assert pow_["power_w"] == pytest.approx(pow_["energy"]["joules"] / 21e-6)
    assert (replay["ops"], replay["clock_mhz"], replay["inputs"]) == (12, 1755.0, "real")
    refused = [each for each in found["replays"] if each["energy_j"] is None]
    assert [each["note"] is None for each in refused] == [False, False]
    (view,) = {op["energy"] for op in found["ops"] if op["name"] == "aten::view"}
    assert view is None
    assert found["ledger"]["split"] == "replayed"
    assert found["ledger"]["closed"] is True


def test_unknown_parts_of_the_books_are_null() -> None:
    found = read_run(replace(gpt2_run(2), kernels=(), traced_s=None))
    assert {op["energy"] for op in found["ops"]} == {op["power_w"] for op in found["ops"]} == {None}
    assert found["replays"] is None
    ledger = found["ledger"]
    assert (ledger["split"], ledger["unexplained_share"], ledger["closed"]) == (None, None, None)
    for part in PARTS:
        assert ledger["domains"]["gpu0"][part] is None
    assert read_run(replace(gpt2_run(1), passes=(*PASSES, Pass("replayed", "done", 1.0))))["replays"] == []


def test_the_step_has_the_fields_of_measure() -> None:
    run = gpt2_run(1)
    found, measured = json.loads(run_to_json(run)), json.loads(to_json(measurement()))
    assert {**found["step"], **found["conditions"]}.items() <= measured.items()


def test_what_was_not_done_is_null() -> None:
    found = read_run(bare())
    assert set(found["step"].values()) == {None}
    assert set(found["conditions"].values()) == {None}
    for name in ("ops", "kernels", "idle", "waits", "regions", "ledger", "traced_s"):
        assert found[name] is None
    found = read_run(captured())
    assert {op["kernel_s"] for op in found["ops"]} == {None}
    assert found["kernels"] is None


def test_a_step_without_operators_is_not_one_that_was_not_captured() -> None:
    found = read_run(replace(bare(), traced_s=0.1, passes=(Pass("captured", "done", 1.0), Pass("traced", "done", 1.0))))
    assert (found["ops"], found["kernels"], found["waits"], found["regions"]) == ([], [], [], [])


def test_an_operator_at_one_place_is_one_entry() -> None:
    made = RunBuilder()
    here, there = made.frame("a.py", 1, "f"), made.frame("a.py", 2, "f")
    x, y = made.value((2, 3)), made.value((3, 2))
    first = made.op("aten::relu", inputs=[x], outputs=[y], frame=here, module="m")
    changed: tuple[dict[str, Any], ...] = (
        {},
        {"frame": there},
        {"module": "n"},
        {"overload": "out"},
        {"arguments": "[1]"},
        {"inputs": [y]},
        {"thread": 3, "stream": 9},
    )
    for changes in changed:
        made.op("aten::relu", **{"inputs": [x], "outputs": [y], "frame": here, "module": "m", **changes})
    for op in made.ops:
        made.kernel("k", 1e-3 if op.id else 5e-3, op=op.id)
    ops = read_run(made.build())["ops"]
    assert [op["calls"] for op in ops] == [3, 1, 1, 1, 1, 1]
    assert ops[0]["id"] == first
    assert ops[0]["kernel_s"] == pytest.approx(7e-3)
    assert ops[0]["inputs"] == [{"shape": [2, 3], "dtype": "float32", "strides": [3, 1], "device": "cuda:0"}]
    assert ops[0]["outputs"][0]["shape"] == [3, 2]
    assert (ops[0]["file"], ops[0]["line"]) == ("a.py", 1)


def test_operators_are_in_the_order_of_their_time_and_lose_none() -> None:
    run = gpt2_run(3)
    found = read_run(run)
    times = [op["kernel_s"] for op in found["ops"]]
    assert times == sorted(times, reverse=True)
    assert sum(times) == pytest.approx(sum(k.duration_s for k in run.kernels))
    assert sum(op["calls"] for op in found["ops"]) == len(run.ops)
    kernels = [kernel["kernel_s"] for kernel in found["kernels"]]
    assert kernels == sorted(kernels, reverse=True)
    assert sum(kernels) == pytest.approx(sum(times))
    assert sum(kernel["calls"] for kernel in found["kernels"]) == len(run.kernels)


def test_lines_are_a_librarys_and_the_users_own() -> None:
    gelu = next(op for op in read_run(gpt2_run(1))["ops"] if op["name"] == "aten::tanh")
    assert (gelu["file"], gelu["line"]) == ("transformers/activations.py", 56)
    assert (gelu["user_file"], gelu["user_line"]) == ("examples/gpt2.py", 12)


def test_an_operator_in_a_compiled_region_has_no_time() -> None:
    made = RunBuilder()
    made.op("aten::relu", module="m", compiled=True)
    eager = made.op("aten::view", module="m")
    made.kernel("fused", 1e-3, module="m", join="module")
    found = read_run(made.build())
    assert {op["name"]: op["kernel_s"] for op in found["ops"]} == {"aten::relu": None, "aten::view": 0.0}
    assert found["kernels"][0]["joined"] == 0
    assert found["ops"][-1]["id"] == eager or found["ops"][0]["id"] == eager


def test_regions_hold_their_own_operators() -> None:
    made = RunBuilder()
    for region, duration_s in (("loss", 1e-3), ("loss/head", 2e-3), (None, 4e-3), ("loss", 8e-3)):
        made.kernel("k", duration_s, op=made.op("aten::mm", region=region))
    found = read_run(made.build())
    assert found["regions"] == [
        {"name": "loss", "calls": 2, "kernel_s": pytest.approx(9e-3), "energy": None},
        {"name": "loss/head", "calls": 1, "kernel_s": pytest.approx(2e-3), "energy": None},
    ]
    assert found["outside_regions"]["calls"] == 1
    assert read_run(gpt2_run(1))["outside_regions"] is None
    measured = made.build(measurement=measurement(step_s=20e-3))
    loss, head = (region["energy"]["joules"] for region in read_run(measured)["regions"])
    assert loss == pytest.approx(4.5 * head)


def test_kernels_keep_their_streams_and_sizes() -> None:
    made = RunBuilder()
    made.kernel("a", 1e-3, stream=7)
    made.kernel("a", 1e-3, stream=3)
    made.kernel("Memcpy", 1e-6, kind="memcpy", size_bytes=10)
    made.kernel("Memcpy", 1e-6, kind="memcpy", size_bytes=20)
    a, copy = read_run(made.build())["kernels"]
    assert (a["streams"], a["size_bytes"]) == ([3, 7], None)
    assert copy["size_bytes"] == 30


def test_the_gap_and_the_waits_name_their_places() -> None:
    found = read_run(gpt2_run(1))
    (device,) = found["idle"]
    assert device["busy_s"] + device["idle_s"] == pytest.approx(device["span_s"])
    assert device["largest_gap"]["after"]["name"] == "aten::item"
    assert device["largest_gap"]["before"] is None
    assert found["waits"] == [
        {"name": "cudaStreamSynchronize", "file": "examples/gpt2.py", "line": 14, "calls": 1, "wait_s": 1.8e-3}
    ]


def test_the_ledger_closes() -> None:
    run = gpt2_run(
        measurement=measurement(
            domains={
                "gpu0": domain_energy(3.1234, 7.0e-3),
                "gpu1": domain_energy(0.6, 7.0e-3),
                "cpu": domain_energy(0.2, 7.0e-3, 20.0),
            }
        )
    )
    found = read_run(run)["ledger"]
    for domain in ("gpu0", "gpu1"):
        parts = found["domains"][domain]
        assert parts["idle"]["joules"] + parts["not_split"]["joules"] == pytest.approx(parts["metered"]["joules"])
        assert parts["idle"]["source"] == "attributed"
    # Nothing ran on it: all its idle power × time is idle.
    assert found["domains"]["gpu1"]["idle"]["joules"] == pytest.approx(75.8 * 7.0e-3)
    for parts in (*found["domains"].values(), found["total"]):
        known = [parts[part]["joules"] for part in PARTS if parts[part] is not None]
        assert sum(known) == pytest.approx(parts["metered"]["joules"])
    assert found["domains"]["cpu"]["host"] is None  # the CPU time is not known
    total = found["total"]
    assert total["metered"]["joules"] == pytest.approx(3.9234)
    assert total["idle"]["joules"] + total["not_split"]["joules"] == pytest.approx(3.9234)


def test_idle_energy_needs_a_trace_that_saw_the_card() -> None:
    run = gpt2_run(2)
    unseen = replace(run, kernels=())
    for each in (replace(run, kernels=(), traced_s=None), unseen):
        account = read_run(each)["ledger"]["domains"]["gpu0"]
        assert account["idle"] is None
        assert account["not_split"] is None
    no_idle = measurement(domains={"gpu0": domain_energy(3.0, 6.2e-3, None)})
    account = read_run(replace(run, measurement=no_idle))["ledger"]["domains"]["gpu0"]
    assert account["idle"] is None


def test_idle_energy_is_never_more_than_was_metered() -> None:
    made = Gpt2(1)
    made.now_s = 50e-3  # the card rests nearly all the time
    found = made.build(measurement=measurement(domains={"gpu0": domain_energy(0.45, 6.2e-3)}))
    account = read_run(found)["ledger"]["domains"]["gpu0"]
    assert account["idle"]["joules"] <= 0.45
    assert account["not_split"]["joules"] >= 0.0


def test_control_characters_are_escaped_in_the_text() -> None:
    odd = "\x1b[31m\x9b\x7f\u202e\u2028\ud800é"
    text = run_to_json(replace(bare(), label=odd))
    assert text.encode("utf-8")
    assert not set(text) & set("\x1b\x9b\x7f\u202e\u2028")
    assert "é" in text
    assert json.loads(text)["label"] == odd
