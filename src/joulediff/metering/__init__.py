"""Joules, seconds and watts of one callable, with an interval, for each domain."""

from joulediff.metering.run import measure, measure_idle

__all__ = ["measure", "measure_idle"]
