"""Moves of a whole population that leave a density of the path invariant."""
