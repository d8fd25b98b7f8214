"""Score sequencing fragments: group duplicate reads, pool their evidence, rate each group."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
READS = 16_000_000 if DEVICE == "cuda" else 500_000
GENOME = READS // 400
UMI_BITS = 6
FEATURES = 4


class GroupReads(nn.Module):
    """Reads with the same position and barcode come from the same fragment."""

    def forward(self, position, umi):
        key = (position << UMI_BITS) | umi
        fragments, owner, depth = torch.unique(key, return_inverse=True, return_counts=True)
        return fragments, owner, depth


class PoolEvidence(nn.Module):
    def forward(self, quality, owner, depth):
        total = torch.zeros(depth.numel(), device=quality.device)
        total.index_add_(0, owner, quality)
        return total


class FragmentScorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.group = GroupReads()
        self.pool = PoolEvidence()
        self.rate = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 1))

    def describe(self, fragments, depth, total):
        mean = total / depth
        barcode = fragments & ((1 << UMI_BITS) - 1)
        return torch.stack([mean / 40.0, depth / 16.0, total / 640.0, barcode / 64.0], dim=1)

    def forward(self, position, umi, quality):
        fragments, owner, depth = self.group(position, umi)
        total = self.pool(quality, owner, depth)
        features = self.describe(fragments, depth, total)
        score = torch.sigmoid(self.rate(features)).squeeze(1)
        return fragments, depth, score


def aligned_reads():
    """Reads as they stand in the file: sorted by position, then by barcode."""
    position = torch.randint(GENOME, (READS,))
    umi = torch.randint(1 << UMI_BITS, (READS,))
    quality = 2.0 + 38.0 * torch.rand(READS)
    order = torch.argsort((position << UMI_BITS) | umi, stable=True)
    return position[order], umi[order], quality


def build():
    torch.manual_seed(0)
    scorer = FragmentScorer()
    reads = aligned_reads()
    scorer = scorer.to(DEVICE).eval()
    position, umi, quality = (column.to(DEVICE) for column in reads)

    def step():
        with torch.inference_mode():
            return scorer(position, umi, quality)

    return step
