"""Rows and sentences of reports, independent of the format."""
