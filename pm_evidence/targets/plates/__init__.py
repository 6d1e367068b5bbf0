"""Models whose local variables are integrated one element at a time, given the others."""
