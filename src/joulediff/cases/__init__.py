"""Known cases of wasted energy, two programs each, and the judgement of their diffs."""
