"""States of lowest energy, which reverse paths relax from."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.families.lattice.target import Ising, Potts

__all__ = ["ground_states"]


def ground_states(target: Ising | Potts, n: int, rng: np.random.Generator) -> NDArray[Any]:
    """Return ``n`` states, shape ``(n, *sizes)``: ordered ones drawn by their weights.

    Where neighbours repel each other: spins that alternate, or colours that are drawn evenly.
    """
    parity = np.indices(target.sizes).sum(axis=0) % 2
    if isinstance(target, Potts):
        size = (n, *target.sizes) if target.coupling < 0.0 else (n, *(1 for _ in target.sizes))
        colours = rng.integers(target.q, size=size, dtype=np.uint8)
        return np.broadcast_to(colours, (n, *target.sizes)).copy()
    # of the two ordered states a field prefers one
    up = 1.0 / (1.0 + np.exp(-np.clip(2.0 * target.field * target.n_dim, -700.0, 700.0)))
    sign = np.where(rng.random(n) < up, 1, -1).astype(np.int8)
    pattern = np.ones(target.sizes, np.int8) if target.coupling >= 0.0 else 1 - 2 * parity
    return (sign.reshape(n, *(1 for _ in target.sizes)) * pattern).astype(np.int8)
