"""Generation of code for vectors, and calls of compiled functions by address."""
