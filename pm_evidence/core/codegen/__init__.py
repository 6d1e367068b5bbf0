"""What emits code for vectors, and calls compiled functions by address."""
