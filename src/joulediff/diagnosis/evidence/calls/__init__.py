"""Evidence on calls: where two call paths part, the variable that decided there, and the calls in a line."""
