"""Records a program: each pass in turn, and the recorded program kept for trials."""
