"""Runs a program in a separate process and environment."""
