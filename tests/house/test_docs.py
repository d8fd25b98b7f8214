"""Links and file names in the documents exist."""

import re

import pytest

import paths

ROOT = paths.ROOT
LINK = re.compile(r"\]\(([^)#]+)\)")
NAMED = re.compile(r"`((?:src|tests|benchmarks|docs|examples)/[\w./-]+)`")
COMMAND = re.compile(r"python ((?:benchmarks|examples|docs)/\S+\.py)")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    targets = LINK.findall(page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_named_in_the_text_exist(page):
    named = NAMED.findall(page.read_text())
    commands = COMMAND.findall(page.read_text())
    assert [n for n in [*named, *commands] if not (ROOT / n).exists()] == []


def test_the_documents_have_links_and_name_files():
    text = "".join(page.read_text() for page in PAGES)
    assert LINK.search(text) and NAMED.search(text) and COMMAND.search(text)
