"""`joulediff patch`: writes the measuring of a program's library calls into its source."""

from __future__ import annotations

import difflib
import shlex
from typing import TYPE_CHECKING

import click

from joulediff.cli.options import complete_file, examples, verbose_option

if TYPE_CHECKING:
    from joulediff.instrument.patch.program import PatchedProgram
    from joulediff.instrument.patch.source import Level


@click.command(
    "patch",
    epilog=examples(
        ("joulediff patch train.py -o measured.py", "then: python measured.py"),
        ("joulediff patch train.py --diff", "look at the changes first"),
        ("joulediff patch nb.ipynb -o measured.ipynb", "the code cells of a notebook"),
        ("joulediff patch --undo measured.py -o train.py", "take the patch out"),
    ),
)
@click.argument("script", metavar="SCRIPT", shell_complete=complete_file)
@click.option("-o", "--output", metavar="FILE", shell_complete=complete_file, help="Write the patched program to FILE.")
@click.option(
    "--level",
    type=click.Choice(["method", "project"]),
    default="method",
    show_default=True,
    help="Measure each library call, or only the whole program.",
)
@click.option(
    "--library",
    "libraries",
    multiple=True,
    metavar="NAME",
    help="Library whose calls are measured; may be repeated.  [those that the script imports]",
)
@click.option("--diff", "shows_diff", is_flag=True, help="Print the changes instead of writing a file.")
@click.option("--undo", is_flag=True, help="Take the patch out of a patched program.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@verbose_option
def command(
    script: str,
    output: str | None,
    level: Level,
    libraries: tuple[str, ...],
    shows_diff: bool,  # noqa: FBT001
    undo: bool,  # noqa: FBT001
    force: bool,  # noqa: FBT001
) -> int:
    """Write a copy of a script that measures its library calls as it runs.

    The copy is the script with one import and `measured(...)` around what it calls. It runs under plain python, and
    shows the energy of each library call at its end.
    """
    from joulediff.instrument.patch.program import patch_program, unpatch_program
    from joulediff.pysource.scripts import check_script

    if output is None and not shows_diff:
        raise click.UsageError("say where to write the program: -o FILE; or look at the changes: --diff")
    if undo and (libraries or level == "project"):
        raise click.UsageError("--undo takes everything out; leave --library and --level away")
    check_script(script)
    if output is not None:
        _refuse_place(script, output, force=force)
    found = unpatch_program(script) if undo else patch_program(script, output=output, libraries=libraries, level=level)
    if shows_diff:
        click.echo(_diff(found, script, output), nl=False)
        return 0
    assert output is not None
    _write(found, script, output)
    click.echo(_describe(found, output, level=level, undo=undo), err=True)
    return 0


def _refuse_place(script: str, output: str, *, force: bool) -> None:
    from pathlib import Path

    from joulediff.cli.output import refuse_recording, refuse_unwritable
    from joulediff.model.errors import JoulediffError

    refuse_unwritable(output, option="-o")
    refuse_recording(output, option="-o")
    place = Path(output)
    if not place.exists():
        return
    if place.samefile(script):
        raise JoulediffError(f"cannot write {output} (it is the program itself)", fix="choose another file for -o")
    if not force:
        raise JoulediffError(
            f"cannot write {output} (there is such a file)", fix="choose another file for -o, or replace it: --force"
        )


def _write(found: PatchedProgram, script: str, output: str) -> None:
    import shutil
    from pathlib import Path

    from joulediff.model.errors import JoulediffError

    try:
        Path(output).write_bytes(found.after.to_bytes())
        shutil.copymode(script, output)
    except OSError as error:
        raise JoulediffError(f"cannot write {output} ({error.strerror})", fix="choose another file for -o") from error


def _diff(found: PatchedProgram, script: str, output: str | None) -> str:
    from joulediff.pysource.source_files import split_lines

    before, after = (split_lines(each.text) for each in (found.before, found.after))
    lines = difflib.unified_diff(before, after, script, output or f"{script} (patched)")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _describe(found: PatchedProgram, output: str, *, level: Level, undo: bool) -> str:
    calls = f"{found.calls:,} call" + ("s" if found.calls != 1 else "")
    if undo:
        return f"{output}: took out the import and what measured {calls}"
    runs = "open it in Jupyter" if output.endswith(".ipynb") else f"python {shlex.quote(output)}"
    if level == "project":
        return f"{output} measures the whole program\nnext: {runs}"
    return f"{output} measures {calls} that may be of {', '.join(found.libraries)}\nnext: {runs}"
