"""Makes the body of a loop in a script a function, which can be called again and again."""
