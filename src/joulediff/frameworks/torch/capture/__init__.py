"""The captured pass: every operator, its tensors and its call path."""
