"""The default size of reports: each fits one screen."""

# Columns of a report that is not printed to a terminal.
WIDTH = 120

TOP_FINDINGS = 10
TOP_ROWS = 15
TOP_REGIONS = 20
