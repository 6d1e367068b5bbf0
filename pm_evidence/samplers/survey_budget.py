"""How a survey of the posterior divides its budget.

Ascents take four tenths of the gradients. The rest goes to values, which cost less and of which
there are two kinds: a scan between prior and posterior, and probes of the inside of the peaks. For
the same cost ascents find more modes, and values more narrow spikes.
"""

import numpy as np

__all__ = ["SHARE_OF_ASCENTS", "USUAL_BUDGET", "n_probes", "n_scanned", "share_of_ascents"]

# Gradients that a survey costs, at least, in a run with the default target.
USUAL_BUDGET = 30_000
# Share of the budget for ascents, and for scan and probes together; cost of a value in gradients.
SHARE_OF_ASCENTS, _SHARE_OF_VALUES, _COST_OF_VALUE = 0.4, 0.6, 1 / 3
# Share of the values that probes take of the usual budget or of a larger one. Half as many probes
# as are made now missed the spike of ``spike_20`` in 1.5 % of 400 runs, and these none.
_SHARE_OF_PROBES = 0.65
# The least share of the usual number of ascents that a small budget leaves.
_LEAST_SHARE = 0.4
# Largest number of coordinates of all positions of a scan, or of all probes: it bounds the memory
# where there are very many dimensions.
_MOST_COORDINATES = 4_000_000


def share_of_ascents(budget: float) -> float:
    """Return the number of ascents that a budget allows, relative to the usual one."""
    return float(np.clip(budget / USUAL_BUDGET, _LEAST_SHARE, 1.0))


def n_scanned(budget: float, n_dim: int) -> int:
    """Return the number of positions that a budget allows for the scan."""
    n = (1.0 - _share_of_probes(budget)) * _n_values(budget)
    return int(min(n, _MOST_COORDINATES / n_dim))


def n_probes(budget: float, asked: float, n_dim: int) -> int:
    """Return the number of probes.

    Parameters
    ----------
    budget : float
        Gradients that the survey may cost.
    asked : float
        Those that were asked for, which are fewer where the survey has found several modes. If the
        usual budget was asked for, as many probes as it allows are made in excess of it.
    n_dim : int
        Number of dimensions.
    """
    n = _share_of_probes(budget) * _n_values(budget)
    n *= 1.0 + min(asked / USUAL_BUDGET, 1.0) ** 2
    return int(min(n, _MOST_COORDINATES / n_dim))


def _share_of_probes(budget: float) -> float:
    """Return the share of the values: little of a small budget, which finds no spikes."""
    return _SHARE_OF_PROBES * min(budget / USUAL_BUDGET, 1.0)


def _n_values(budget: float) -> float:
    """Return the number of values that a budget allows."""
    return _SHARE_OF_VALUES * budget / _COST_OF_VALUE
