"""Known wastes of energy, each as two programs that anyone can run, and the judgement of what a diff finds in them."""
