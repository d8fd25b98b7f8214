"""Causes that are found by what differs between two programs, and proven by changing it in the expensive one."""
