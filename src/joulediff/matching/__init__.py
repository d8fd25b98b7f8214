"""Matching: the regions of two runs that compute the same."""

from joulediff.matching.match_runs import TOLERANCE, match_regions
from joulediff.matching.rows import RegionGroup, group_regions, is_view, name_ops

__all__ = ["TOLERANCE", "RegionGroup", "group_regions", "is_view", "match_regions", "name_ops"]
