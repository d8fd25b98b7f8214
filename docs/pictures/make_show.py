"""Draw the README's picture of a recorded run: python docs/pictures/make_show.py RUN.jd OUT.svg"""

import re
import sys
from pathlib import Path

from rich.console import Console

from joulediff.archive.reader import load
from joulediff.report.terminal.run import print_run


def main():
    """Print the run to a recording console and save its output."""
    recorded, drawing = sys.argv[1:]
    name = "gpt2.jd"
    console = Console(record=True, width=104, force_terminal=True, highlight=False)
    console.print(f"[bold]$ joulediff record examples/gpt2.py -o {name}[/]")
    console.print(f"[bold]$ joulediff show {name} --by line[/]")
    print_run(load(recorded), console, by="line", top=10, path=name)
    text = console.export_svg(title="joulediff")
    # Without this rule the picture loads no font from another host.
    Path(drawing).write_text(re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
