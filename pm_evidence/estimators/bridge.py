"""A bridge between a fitted density and the target."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import described, plain_array
from pm_evidence.core.numerics import ess_share
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.bar import bar
from pm_evidence.estimators.intervals import widened
from pm_evidence.estimators.jarzynski import checked_work
from pm_evidence.estimators.pareto import unseen_tail

__all__ = ["bridge", "checked_works", "fit_share"]

Floats = NDArray[np.float64]

# The usual ratio is taken where its error is this many times smaller.
_GROSS = 2.0


def bridge(works: Sequence[tuple[ArrayLike, ArrayLike]]) -> LogEvidence:
    """Estimate log Z from the work between a fitted density and the target.

    Parameters
    ----------
    works : sequence of (forward, reverse)
        For every independent block, ``log q(x) - log f(x)`` in nats at draws from the fitted
        density ``q``, shape ``(n_forward,)``, and at draws from the target, shape ``(n_reverse,)``.

    Returns
    -------
    LogEvidence
        Bennett's estimate from all blocks together, with a Student interval from their spread: it
        needs no assumption on how the draws of one block depend on each other.

    Raises
    ------
    ValueError
        If there is no work on one side, some of it is NaN, or that of the target's draws infinite.

    Notes
    -----
    Meng and Wong (1996), with Bennett's (1976) ratio. The ratio is optimal for independent draws;
    here the draws from the posterior depend on each other, and may reach its tails too rarely,
    while those from the fitted density are independent. So the posterior draws count as no more
    than the square root of the number of the others, unless the fit is so poor that the error would
    be more than twice that of the usual ratio. The estimate is then importance sampling with
    weights that are cut off smoothly at the square root of the number of draws, the rate of Ionides
    (2008), and the posterior draws supply the part that is cut off. If they miss a mode with large
    weights, the estimate misses its evidence too, and its error does not show it.

    The error is that from the spread of the blocks and, added in quadrature, the share of the
    evidence that is expected beyond the largest weight of the draws from the fitted density, by
    their Pareto tail, less the share of the posterior draws that lie there.
    """
    checked = checked_works(works)
    forward, reverse = ([pair[k] for pair in checked] for k in (0, 1))
    ratio = partial(
        bar,
        np.concatenate(forward),
        np.concatenate(reverse),
        forward_blocks=_blocks(forward),
        reverse_blocks=_blocks(reverse),
        name="bridge",
    )
    whole = ratio()
    size = sum(map(len, forward)) ** 0.5
    if whole.status != Status.OK or size >= sum(map(len, reverse)):
        return whole
    cut = ratio(reverse_size=size)
    if cut.status == Status.NO_OVERLAP or whole.mcse * _GROSS < cut.mcse:
        return whole  # the fit is poor
    log_weight = -np.concatenate(forward)
    reached = float(np.mean(-np.concatenate(reverse) > log_weight.max()))
    return widened(cut, max(unseen_tail(log_weight, cut.value) - reached, 0.0))


def checked_works(works: Any) -> list[tuple[Floats, ...]]:
    """Return the work of every block; raise ValueError if it is missing or not a pair."""
    if not isinstance(works, list | tuple) or not works:
        raise ValueError(
            f"works must be a list of at least one pair (forward, reverse), got "
            f"{described(works)}; run the sampler."
        )
    found: list[tuple[Floats, ...]] = []
    for i, pair in enumerate(works):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(
                f"works[{i}] must be a pair (forward, reverse), got {described(pair)}; pass the "
                "work at draws of the fitted density, and of the target."
            )
        found.append(tuple(_checked_side(f"works[{i}][{k}]", pair[k]) for k in (0, 1)))
    for k, side in enumerate(("forward", "reverse")):
        if not sum(len(pair[k]) for pair in found):
            raise ValueError(
                f"works must hold {side} work of at least one block, got none; run the sampler."
            )
    return found


def _checked_side(name: str, values: ArrayLike) -> Floats:
    if np.shape(plain_array(name, values)) == (0,):  # a block may have no work on one side
        return np.empty(0)
    return checked_work(values, name=name)


def fit_share(works: Sequence[tuple[ArrayLike, ArrayLike]]) -> float:
    """Return the effective share of draws from the fitted density as draws from the target.

    Parameters
    ----------
    works : sequence of (forward, reverse)
        As for ``bridge``.
    """
    return float(ess_share(-np.concatenate([checked_work(forward) for forward, _ in works])))


def _blocks(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(parts)), [len(part) for part in parts])
