"""What the documents point at is there."""

import re

import pytest

import paths

ROOT = paths.ROOT
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_named_in_the_text_exist(page):
    named = re.findall(r"`((?:src|tests|benchmarks|docs|examples)/[\w./-]+)`", page.read_text())
    commands = re.findall(r"python ((?:benchmarks|examples|docs)/\S+\.py)", page.read_text())
    assert [n for n in [*named, *commands] if not (ROOT / n).exists()] == []
