"""Reads Python programs: finds them, traces their lines, follows values to where they are set. Knows no framework."""
