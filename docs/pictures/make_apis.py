"""Draw the README's picture of a script's calls: python docs/pictures/make_apis.py RUN.jd OUT.svg COMMAND

    python docs/pictures/make_apis.py tests/golden/apis/h200_wide.jd docs/pictures/apis.svg \\
        "joulediff apis train.py --epochs 10 --width 8192 --batch 2048"
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from joulediff.archive.reader import load
from joulediff.model.apis.api_run import ApiRun
from joulediff.report.terminal.apis import print_api_run

WIDTH = 118


def main() -> None:
    """Print the run to a recording console and save its output."""
    recorded, place, command = sys.argv[1:]
    run = load(recorded)
    assert isinstance(run, ApiRun)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(f"$ {command}", style="bold", markup=False)
    print_api_run(run, console, top=10)
    # Without this rule the picture loads no font from another host.
    text = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="joulediff"), flags=re.DOTALL)
    Path(place).write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
