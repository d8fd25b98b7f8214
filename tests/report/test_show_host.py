"""The lines of the host in `joulediff show`: their time, the functions that they call, and the overhead of sampling."""

from __future__ import annotations

import json
from dataclasses import replace

from joulediff.energy.host_time import GARBAGE_COLLECTION, function_name, line_times
from joulediff.model.run import Frame, HostSample, Run, Sampling, SourceText
from joulediff.report.json.run import run_to_json
from joulediff.report.views.run.host import host_table, host_title
from run_builders import gpt2_run
from show_builders import metered_only, render

FRAMES = (
    Frame("train.py", 7, "step", None, None),
    Frame("logging/__init__.py", 1477, "Logger.info", "python", 0),
    Frame("logging/__init__.py", 1624, "Logger._log", "python", 1),
    Frame("train.py", 8, "step", None, None),
)
SAMPLES = (
    HostSample(2, "line", 2e-3, 1.9e-3, 200),
    HostSample(1, "line", 1e-3, 1e-3, 100),
    HostSample(3, "gc", 5e-3, 5e-3, 100),
    HostSample(None, "line", 1e-6, 1e-6, 1),
)


def sampled() -> Run:
    source = SourceText("train.py", 7, "    log.info(loss)\n    table = [{} for _ in rows]\n")
    sampling = Sampling(100, 1e-3, 0.0202, 0.02)
    return replace(metered_only(), frames=FRAMES, host_samples=SAMPLES, sampling=sampling, sources=(source,))


def test_lines_have_the_time_of_all_that_they_call() -> None:
    collecting, logging, step = line_times(sampled())
    assert (collecting.calls, collecting.time_s, collecting.count) == (GARBAGE_COLLECTION, 5e-3, 100)
    assert (logging.calls, logging.time_s, logging.count) == ("logging.Logger.info", 3e-3, 300)
    assert logging.frame == FRAMES[0]
    assert step.frame is None
    assert sum(line.time_s for line in line_times(sampled())) == sum(sample.time_s for sample in SAMPLES)


def test_the_name_of_a_function() -> None:
    assert function_name(FRAMES[0]) == function_name(None) == ""
    assert function_name(Frame("json/decoder.py", 3, "JSONDecoder.decode", "python", None)) == (
        "json.decoder.JSONDecoder.decode"
    )


def test_the_report_names_lines_functions_and_the_overhead() -> None:
    text = render(sampled(), 100)
    assert "time of the host in one sampled step of 20.20 ms; 1% more than without sampling, 100 steps" in text
    assert "train.py:8" in text and "garbage collection" in text
    assert "log.info(loss)" in text and "logging.Logger.info" in text


def test_a_run_without_the_pass_has_no_lines() -> None:
    run = gpt2_run(1)
    assert host_title(run) is None and host_table(run) is None
    assert json.loads(run_to_json(run))["host"] is None
    assert json.loads(run_to_json(sampled()))["host"][0]["calls"] == GARBAGE_COLLECTION
