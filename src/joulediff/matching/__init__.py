"""Which work of two runs equals which."""

from joulediff.matching.hierarchy import RegionGroup, group_regions, is_view, name_ops
from joulediff.matching.match import TOLERANCE, match

__all__ = ["TOLERANCE", "RegionGroup", "group_regions", "is_view", "match", "name_ops"]
