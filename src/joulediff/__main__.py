"""`python -m joulediff`."""

from joulediff.cli import main

main()
