"""Rows and sentences of a script's API calls, and of two such runs."""
