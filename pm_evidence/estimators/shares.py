"""The ratio of two probabilities of a region, each from draws of which some lie in it."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, log1p, nan, sqrt

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.errors import Spread, combined, interval, spread

# From this effective number of draws inside and outside on, the logarithm of their share is normal.
ENOUGH = 20.0
_LARGEST_ERROR = 0.5  # in nats, beyond which an estimate should not be relied on
_ONE_SIDED, _TWO_SIDED = 0.05, 0.025  # probabilities outside of the ends of intervals
_BOTH = (
    "Pass the parts of the constraint as a list of functions, which are met one after the other, "
    "give the run more draws, or compare with a model that has the constraint as its prior."
)


@dataclass(frozen=True, slots=True)
class Share:
    """The share of draws in a region."""

    value: float  # from 0 to 1
    n_effective: float  # number of independent draws that tell it as well
    dof: float = inf  # degrees of freedom with which this number was estimated

    @property
    def fewest(self) -> float:
        """Effective number of draws inside or outside, whichever is smaller."""
        return self.n_effective * min(self.value, 1.0 - self.value)

    @property
    def complement(self) -> "Share":
        """The share of draws that lie outside."""
        return Share(1.0 - self.value, self.n_effective, self.dof)

    def ends(self, outside: float) -> tuple[float, float]:
        """Return a lower and an upper bound, each with a probability to be wrong.

        The bounds of Clopper and Pearson (1934).
        """
        from scipy.stats import beta

        inside, n = self.n_effective * self.value, self.n_effective
        lower = beta.ppf(outside, inside, n - inside + 1.0) if self.value > 0.0 else 0.0
        upper = beta.ppf(1.0 - outside, inside + 1.0, n - inside) if self.value < 1.0 else 1.0
        return float(lower), float(upper)


def share(inside: NDArray[np.bool_], origin: NDArray[np.int64], n_effective: float) -> Share:
    """Return the share of draws inside a region, whose origin tells which are independent.

    The effective number of draws is that of the share itself; with few draws inside or outside it
    is not known, and is at most ``n_effective``, that of other quantities.
    """
    n, value = inside.size, float(inside.mean())
    variance = value * (1.0 - value)
    error = spread(((inside - value) / n, origin))
    found = variance / error.mcse**2 if error.mcse > 0.0 else float(n)
    if not found > 0.0 or n * min(value, 1.0 - value) < ENOUGH:
        found = min(n_effective, found) if found > 0.0 else n_effective
    return Share(value, float(np.clip(found, 1.0, n)), error.dof)


def share_of_groups(shares: NDArray[np.float64]) -> Share:
    """Return the mean of independent estimates of a share that is small, shape ``(n_groups,)``."""
    value, n = float(shares.mean()), shares.size
    variance = float(shares.var(ddof=1)) / n
    found = value * (1.0 - value) / variance if variance > 0.0 else 1.0 / value
    return Share(value, max(found, 1.0), n - 1.0)


def smallest_effective(columns: NDArray[np.float64], origin: NDArray[np.int64]) -> float:
    """Return the smallest effective number of draws of some quantities, shape ``(n, m)``."""
    n, found = len(columns), float(len(columns))
    for column in (columns - columns.mean(axis=0)).T:
        error = spread((column / n, origin)).mcse
        if error > 0.0:
            found = min(found, float(column @ column) / n / error**2)
    return max(found, 1.0)


def log_ratio(prior: Share, posterior: Share, *, odds: bool) -> LogEvidence:
    """Return the log of the ratio of two shares, or of their odds, in nats.

    Intervals of a ratio are those of Zou and Donner (2008), Eq. 4, from the intervals of its parts,
    where one of these is not normal. Where a share is 0 or 1 the ratio has only one bound.
    """
    scale = _logit if odds else _log
    value = scale(posterior.value) - scale(prior.value)
    if not np.isfinite(value):
        return _bound(prior, posterior, scale)
    spreads = [_spread(each, odds) for each in (prior, posterior)]
    total = combined(*spreads)
    if min(prior.fewest, posterior.fewest) >= ENOUGH:
        lower, upper = interval(value, total)
    else:
        ends = [[scale(end) for end in each.ends(_TWO_SIDED)] for each in (prior, posterior)]
        (prior_low, prior_high), (low, high) = ends
        own, other = scale(posterior.value), scale(prior.value)
        lower = value - sqrt((own - low) ** 2 + (prior_high - other) ** 2)
        upper = value + sqrt((high - own) ** 2 + (other - prior_low) ** 2)
    if total.mcse > _LARGEST_ERROR:
        message = f"The error is large: few draws tell the share. {_BOTH}"
        status = Status.HIGH_VARIANCE
    else:
        message, status = "", Status.OK
    return LogEvidence(value, total.mcse, "draws", status, lower, upper, message, total.dof)


def _bound(prior: Share, posterior: Share, scale: Callable[[float], float]) -> LogEvidence:
    """Return the bound of a ratio of which one share, or its complement, is zero."""
    if prior.value in (0.0, 1.0):
        which = "No" if prior.value == 0.0 else "Every"
        message = f"{which} prior draw satisfies the constraint: its prior probability is unknown."
        return LogEvidence(nan, nan, "draws", Status.NO_SUPPORT, nan, nan, message)
    low, high = posterior.ends(_ONE_SIDED)
    is_none = posterior.value == 0.0
    value = scale(high if is_none else low) - scale(prior.value)
    value += (2.0 if is_none else -2.0) * _spread(prior, scale is _logit).mcse
    what, side = ("No", "below") if is_none else ("Every", "above")
    message = (
        f"{what} posterior draw satisfies the constraint: the log Bayes factor lies {side} "
        f"{value:.2f} with 95 %. {_BOTH}"
    )
    if (value > 0.0) == is_none:  # the bound leaves open which side is favoured
        return LogEvidence(nan, nan, "draws", Status.BOUND, *_side(value, is_none), message)
    return LogEvidence(value, nan, "draws", Status.BOUND, *_side(value, is_none), message)


def _side(value: float, is_upper: bool) -> tuple[float, float]:
    return (-inf, value) if is_upper else (value, inf)


def _spread(found: Share, odds: bool) -> Spread:
    """Return the error of the log of a share, or of its log odds, by the delta method."""
    inside, n = found.value, found.n_effective
    inside = float(np.clip(inside, 0.5 / n, 1.0 - 0.5 / n))
    variance = 1.0 / (n * inside * (1.0 - inside)) if odds else (1.0 - inside) / (n * inside)
    return Spread(sqrt(variance), found.dof)


def _log(value: float) -> float:
    return log(value) if value > 0.0 else -inf


def _logit(value: float) -> float:
    return _log(value) - (log1p(-value) if value < 1.0 else -inf)
