"""Known cases of wasted energy, two programs each, and the judgement of what a diff finds in them."""
