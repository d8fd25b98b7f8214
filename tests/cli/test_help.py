"""Every help text ends with examples that parse, and the shell completes commands, options and case names."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest
from click.shell_completion import ShellComplete, get_completion_class

from joulediff.cli import cli

EXAMPLES = "\b\nExamples:\n"


def all_commands() -> Iterator[tuple[str, click.Command]]:
    yield "joulediff", cli
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        yield f"joulediff {name}", command
        if isinstance(command, click.Group):
            yield from ((f"joulediff {name} {each}", sub) for each, sub in command.commands.items())


COMMANDS = dict(all_commands())


def example_lines(command: click.Command) -> list[str]:
    assert command.epilog is not None
    assert command.epilog.startswith(EXAMPLES)
    return [line.strip() for line in command.epilog.removeprefix(EXAMPLES).splitlines()]


def words_of(line: str) -> list[str]:
    """Return the words of a command, without the text that says what it does."""
    return shlex.split(line.partition("   ")[0].partition(" < ")[0].split("  ")[0])


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_parse(name: str) -> None:
    lines = example_lines(COMMANDS[name])
    assert 2 <= len(lines) <= 4
    for line in lines:
        words = words_of(line)
        assert " ".join(words).startswith(name if name != "joulediff cases" else "joulediff cases ")
        parse(cli, words)


def parse(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Parse the words as the command line does, without running the command. Raises for wrong ones."""
    name, *rest = words
    ctx = command.make_context(name, rest, parent=parent)
    if isinstance(command, click.Group):
        left = [*ctx._protected_args, *ctx.args]
        found = command.get_command(ctx, left[0])
        assert found is not None, left
        parse(found, left, ctx)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns_and_shows_the_examples(name: str) -> None:
    command = COMMANDS[name]
    with click.Context(command, info_name=name, terminal_width=80) as ctx:
        text = command.get_help(ctx)
    assert max(map(len, text.splitlines())) <= 80
    for line in example_lines(command):
        assert line in text


def test_an_example_with_a_wrong_option_does_not_parse() -> None:
    with pytest.raises(click.UsageError):
        parse(cli, ["joulediff", "show", "a.jd", "--buy", "op"])


def completed(*words: str) -> list[tuple[str, str]]:
    *given, last = words
    shell = ShellComplete(cli, {}, "joulediff", "_JOULEDIFF_COMPLETE")
    return [(each.value, each.type) for each in shell.get_completions(given, last)]


def test_the_shell_completes_commands_options_and_cases() -> None:
    assert ("doctor", "plain") in completed("do")
    assert ("--precision", "plain") in completed("measure", "--pre")
    assert ("module", "plain") in completed("show", "--by", "mo")
    assert ("pytorch-153195", "plain") in completed("cases", "show", "pytorch-15")


@pytest.mark.parametrize("words", [("show", "ba"), ("diff", "a.jd", ""), ("measure", ""), ("diff", "-o", "")])
def test_the_shell_completes_files(words: tuple[str, ...]) -> None:
    assert [kind for _, kind in completed(*words)] == ["file"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_made(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = get_completion_class(shell)
    assert found is not None
    # bash's own check runs `bash --version`, which a machine without bash lacks.
    monkeypatch.setattr(found, "_check_version", lambda *_: None, raising=False)
    script = found(cli, {}, "joulediff", "_JOULEDIFF_COMPLETE").source()
    assert f"_JOULEDIFF_COMPLETE={shell}_complete" in script
    assert "joulediff" in script
