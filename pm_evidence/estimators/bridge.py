"""A bridge between a fitted density and the target."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import described, plain_array
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.bar import bar
from pm_evidence.estimators.jarzynski import checked_work
from pm_evidence.estimators.verdicts import with_tail

__all__ = ["bridge", "checked_works"]

Floats = NDArray[np.float64]

# The fit is poor, and the usual ratio is taken, if its error is this many times smaller, or if this
# share of the posterior draws lies beyond the largest weight.
_GROSS, _BEYOND = 2.0, 0.05
# With so many posterior draws beyond the largest weight, the usual ratio has no tail left to miss.
_ENOUGH = 10


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
    Meng and Wong (1996), with Bennett's (1976) ratio, which is optimal for independent draws. The
    draws from the posterior depend on each other, and may reach its tails too rarely. So they count
    as no more than the square root of the number of draws from the fitted density. The estimate is
    then importance sampling with weights that are cut off smoothly at the square root of the number
    of draws, the rate of Ionides (2008), and the posterior draws supply the part that is cut off.
    Where the fit is too poor for that, the usual ratio is taken. If the posterior draws miss a mode
    with large weights, the estimate misses its evidence too, and its error does not show it.

    The error is that from the spread of the blocks and, added in quadrature, the share of the
    evidence that is expected beyond the largest weight of the draws from the fitted density, by
    their Pareto tail, less the share of the posterior draws that lie there. Where the fit is poor,
    this is only added if hardly any posterior draws lie there.
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
    log_weight, at_target = -np.concatenate(forward), -np.concatenate(reverse)
    beyond = at_target > log_weight.max()
    found = whole = ratio()
    if whole.status == Status.OK and log_weight.size**0.5 < at_target.size:
        cut = ratio(reverse_size=log_weight.size**0.5)
        gross = cut.status == Status.NO_OVERLAP or whole.mcse * _GROSS < cut.mcse
        found = whole if gross or np.mean(beyond) > _BEYOND else cut
    if found is whole and np.sum(beyond) >= _ENOUGH:
        return whole
    return with_tail(found, log_weight, float(np.mean(beyond)))


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


def _blocks(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(parts)), [len(part) for part in parts])
