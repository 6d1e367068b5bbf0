"""Contributions of fields that favour each value of a site, to energies and weights."""

import numpy as np

from pm_evidence.core.codegen.fast_math import fast_exp, fast_log
from pm_evidence.core.codegen.numba import njit

__all__ = ["favour_colours", "favour_spins"]

_NEGLIGIBLE = 40.0  # a term that is so many nats smaller than another changes no digit of the sum


@njit
def favour_spins(n_sites, up, fields, slope, energy, ratio):
    """Add the contributions of fields in favour of either spin to energies and log ratios.

    Parameters
    ----------
    n_sites : int
    up : int32 array, shape (m, n)
        Numbers of spins 1.
    fields : float64 array, shape (2, m)
        Strengths ``h`` before and after.
    slope : float64 array, shape (m,)
        Derivative of ``h`` by beta, before.
    energy, ratio : float64 arrays, shape (m, n)
        The derivative of ``log(exp(h up) + exp(h down))`` with respect to beta is subtracted from
        energies, and the change of this term is added to log ratios.
    """
    for k in range(up.shape[0]):
        own, before, after, least = up[k], fields[0, k], fields[1, k], n_sites
        for c in range(own.size):
            gap = abs(2 * own[c] - n_sites)
            least = min(least, gap)
            larger = 0.5 * (n_sites + gap)
            energy[k, c] -= slope[k] * larger
            ratio[k, c] += (after - before) * larger
        if min(before, after) * least > _NEGLIGIBLE:
            continue
        for c in range(own.size):
            gap = abs(2 * own[c] - n_sites)
            # the smaller of the two terms, over the larger
            first, second = fast_exp(-before * gap), fast_exp(-after * gap)
            share = 1.0 / (1.0 + first)
            energy[k, c] += slope[k] * gap * first * share
            ratio[k, c] += fast_log((1.0 + second) * share)


@njit
def favour_colours(counts, fields, slope, energy, ratio):
    """Add the contributions of fields in favour of every colour; see ``favour_spins``.

    ``counts`` has shape (m, q, n), so that sums over colours are sums of whole rows.
    """
    n = counts.shape[2]
    most, first, second, weighted = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for k in range(len(counts)):
        before, after = fields[0, k], fields[1, k]
        most[:] = 0.0
        for colour in range(counts.shape[1]):
            own = counts[k, colour]
            for c in range(n):
                most[c] = max(most[c], own[c])
        first[:] = 0.0
        second[:] = 0.0
        weighted[:] = 0.0
        for colour in range(counts.shape[1]):
            own = counts[k, colour]
            for c in range(n):
                gap = own[c] - most[c]
                weight = fast_exp(before * gap)
                first[c] += weight
                weighted[c] += weight * gap
                second[c] += fast_exp(after * gap)
        for c in range(n):
            energy[k, c] -= slope[k] * (most[c] + weighted[c] / first[c])
            ratio[k, c] += (after - before) * most[c] + fast_log(second[c] / first[c])
