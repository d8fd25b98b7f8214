"""Which work of two runs equals which."""

from joulediff.matching.match import TOLERANCE, match
from joulediff.matching.rows import RegionGroup, group_regions, is_view, name_ops

__all__ = ["TOLERANCE", "RegionGroup", "group_regions", "is_view", "match", "name_ops"]
