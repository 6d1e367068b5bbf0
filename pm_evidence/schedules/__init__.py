"""The points on a path, from the reference (0) to the target (1)."""
