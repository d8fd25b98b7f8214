"""Draw a picture of a diff for the README: python docs/pictures/make_diff.py DIFF.json OUT.svg COMMAND

The pictures of the README:

    python benchmarks/first_run.py --runs 1 --keep first.json
    python docs/pictures/make_diff.py first.json docs/pictures/first.svg \\
        "joulediff diff gelu.py:written_out gelu.py:fused"
    python docs/pictures/make_diff.py gpt2.json docs/pictures/diff.svg \
        "joulediff diff examples/gpt2.py:plain examples/gpt2.py:fused"
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from joulediff.report.json.diff import diff_from_json
from joulediff.report.terminal.diff import print_diff

WIDTH = 118


def main() -> None:
    """Print the diff to a recording console and save its output."""
    saved, place, command = sys.argv[1:]
    diff = diff_from_json(Path(saved).read_bytes())
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(f"$ {command}", style="bold", markup=False)
    print_diff(diff, console)
    # Without this rule the picture loads no font from another host.
    text = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="joulediff"), flags=re.DOTALL)
    Path(place).write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
