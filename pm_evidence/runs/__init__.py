"""From a target to a result: setup, rounds of blocks until the error is small, and the DataTree."""
