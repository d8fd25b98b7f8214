"""A made-up collection of papers: which words they contain and which papers they cite."""

import torch

WORDS = 1433


def collection(papers, citations, dim):
    """Return features of the papers, citing and cited papers, and the strength of each citation."""
    source = torch.Generator().manual_seed(2)
    contained = (torch.rand(papers, WORDS, generator=source) < 0.02).float()
    features = contained @ torch.randn(WORDS, dim, generator=source) * 0.2
    citing = torch.randint(papers, (citations,), generator=source)
    cited = torch.randint(papers, (citations,), generator=source)
    strength = torch.rand(citations, generator=source) * papers / citations
    return features, citing, cited, strength
