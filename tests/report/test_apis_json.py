"""The API calls of a script as JSON: the names of the schema, and back again."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from api_run_builders import make_api_run
from archive_mutants import change_somewhere
from joulediff.archive.apis import MAX_RECORD_BYTES
from joulediff.model.apis.api_run import ApiRun
from joulediff.model.errors import ArchiveError
from joulediff.report.json.apis import api_run_from_json, api_run_to_json
from joulediff.report.render import render


def test_the_schema_has_these_names() -> None:
    plain = json.loads(api_run_to_json(make_api_run()))
    assert plain["schema"] == "joulediff.apis/1"
    api = plain["apis"][1]
    assert api["api"] == "torch.nn.Module.__call__"
    assert api["library"] == "torch"
    assert api["calls"] == 16
    assert set(api["energy"]) == {"joules", "low", "high", "source"}
    assert api["energy"]["joules"] > api["self_energy"]["joules"] > 0
    assert set(api["domains"]) == {"gpu0", "cpu"}
    assert 0 < api["share"] < 1
    assert api["input_bytes"] == 16 * 256 * 64 * 4
    assert {"file", "line", "calls", "energy"} <= set(api["sites"][0])
    parts = ("calls", "between", "idle", "children", "measuring", "unexplained")
    for account in plain["ledger"].values():
        known = [account[part]["joules"] for part in parts if account[part] is not None]
        assert sum(known) == pytest.approx(account["metered"]["joules"])
    assert plain["ledger"]["gpu0"]["children"] is None, "there were no other processes: not 0"


@pytest.mark.parametrize(
    "run", [make_api_run(), make_api_run(idle=False, domains=("cpu",)), replace(make_api_run(), error="\u202e\x1b[2J")]
)
def test_it_is_read_back(run: ApiRun) -> None:
    text = api_run_to_json(run)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert api_run_from_json(text.encode()) == run
    assert render(run, "json") == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "it holds no record of API calls"),
        ("[]", "it holds no record of API calls"),
        ('{"schema": "joulediff.diff/2"}', "it is a joulediff.diff/2, no joulediff.apis/1"),
        ('{"schema": "joulediff.apis/2"}', "too new to be read"),
        ('{"schema": "joulediff.apis/1"}', "apis.label is missing"),
        ("{", "its JSON cannot be parsed"),
        ("[" * 100_000, "nested too deeply"),
        (" " * (MAX_RECORD_BYTES + 1), "64,000,000 are allowed"),
    ],
)
def test_other_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ArchiveError, match=message) as caught:
        api_run_from_json(text.encode())
    assert caught.value.fix


def test_wrong_values_raise_an_archive_error() -> None:
    base = api_run_to_json(make_api_run())
    read = 0
    for seed in range(300):
        plain = json.loads(base)
        change_somewhere(random.Random(seed), plain)
        try:
            api_run_from_json(json.dumps(plain).encode())
        except ArchiveError as error:
            assert error.fix
        else:
            read += 1
    assert 0 < read < 300
