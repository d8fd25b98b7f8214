"""Runs a program in a process of its own, so that whatever ends the program does not end the recording."""
