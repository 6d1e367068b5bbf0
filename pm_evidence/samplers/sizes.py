"""Upper limits of options: with larger values a run would fill the memory, or seem to hang."""

__all__ = ["MOST_ISLANDS", "MOST_MOVES", "MOST_STAGES", "MOST_TEMPERATURES"]

MOST_ISLANDS = 100_000
MOST_MOVES = 1_000_000  # of one state at one stage
MOST_STAGES = 1_000_000
MOST_TEMPERATURES = 32_767  # of tempered chains, which store their indices in 16 bits
