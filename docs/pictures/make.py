"""Draw the README's picture of a measurement on this machine: python docs/pictures/make.py OUT.svg"""

import importlib.util
import re
import sys
from pathlib import Path

from rich.console import Console

from joulediff.measuring.doctor import check_machine
from joulediff.measuring.step import measure
from joulediff.report.terminal.doctor import print_checkup
from joulediff.report.terminal.measurement import print_measurement

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    """Return the step of an example."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.build()


def main():
    """Run the commands on a recording console and save its output."""
    console = Console(record=True, width=100, force_terminal=True, highlight=False)
    console.print("[bold]$ joulediff doctor[/]")
    print_checkup(check_machine(), console)
    for name in ("gelu_eager", "gelu_fused"):
        console.print(f"\n[bold]$ joulediff measure examples/{name}.py[/]")
        print_measurement(measure(load(name), label=name), console)
    drawing = console.export_svg(title="joulediff")
    # Without this rule the picture loads no font from another host.
    Path(sys.argv[1]).write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawing, flags=re.DOTALL))


if __name__ == "__main__":
    main()
