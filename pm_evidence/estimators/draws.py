"""What posterior draws tell of other hypotheses: another prior, a point, a region."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, log, log1p, nan, sqrt

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.numerics import ess_share, log_mean_exp
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.core.shape import learn_shape, squares
from pm_evidence.estimators.errors import (
    LARGEST_LOG,
    LARGEST_MCSE,
    Spread,
    combined,
    estimated,
    is_heavy,
    pareto_k,
    spread,
)

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

# If none of n independent draws lies in a region, its mass is below this over n with 95 %.
_NONE_OF_N = 3.0


@dataclass(frozen=True)
class Reweighted:
    """The log Bayes factor of a model with another prior, against the model that was sampled."""

    log_bf: float  # in nats
    mcse: float  # its standard error, and the degrees of freedom of that
    dof: float
    pareto_k: float  # shape of the tail of the prior ratios; NaN if they have none
    is_heavy: bool  # whether that tail is too heavy for the number of draws
    ess: float  # effective number of weighted draws
    # Upper bound, at a level of 95 %, of the share of the other evidence that belongs to regions in
    # which the posterior that was sampled has no draw. Infinite where its prior has no support.
    unseen: float


def reweighted(log_ratio: Floats, origin: Whole, largest_log_ratio: float) -> Reweighted:
    """Return the Bayes factor of two priors, from posterior draws under one of them.

    The Bayes factor is the posterior mean of the ratio of prior densities, an importance sampling
    estimate with the same likelihood in numerator and denominator. Its error is that of a mean over
    clusters of draws of the same origin. The bound of what may be unseen: a region without any of
    ``n`` independent draws has less than ``3 / n`` of the posterior with 95 %, so that it has at
    most ``3 / n`` times the largest ratio, over the mean ratio, of the other posterior. ``n`` is
    the number of independent draws whose mean ratio has the same error.
    """
    n = len(log_ratio)
    log_bf = float(log_mean_exp(log_ratio))
    if not np.isfinite(log_bf):  # no draw lies where the other prior has support
        return Reweighted(log_bf, nan, 1.0, nan, True, 0.0, np.inf)
    weight = np.exp(log_ratio - log_bf)
    error = spread(((weight - 1.0) / n, origin))
    k = pareto_k(log_ratio)
    variance = float(np.mean((weight - 1.0) ** 2))
    n_independent = min(variance / error.mcse**2, n) if error.mcse > 0.0 else float(n)
    excess = min(max(largest_log_ratio, float(log_ratio.max())) - log_bf, LARGEST_LOG)
    unseen = _NONE_OF_N * float(np.exp(excess)) / max(n_independent, 1.0)
    return Reweighted(
        log_bf=log_bf,
        mcse=error.mcse,
        dof=error.dof,
        pareto_k=k,
        is_heavy=is_heavy(k, n),
        ess=n * float(ess_share(log_ratio)),
        unseen=inf if largest_log_ratio == np.inf else unseen,
    )


# A coordinate moves with the point if this depends on it more than by chance: if the share of its
# variance that is explained exceeds this number over the number of draws, for each coordinate.
_BY_CHANCE = 10.0
# The least share of draws that lie at least as far from their centre as the point does. A part of
# the posterior that exists near the point alone has draws only if the point lies among them.
LEAST_BEYOND = 0.01


def point_density(
    x: Floats,
    log_density: Floats,
    origin: Whole,
    held: Whole,
    others: Whole,
    movable: NDArray[np.bool_],
    at: Floats,
    log_density_at: Callable[[Floats], Floats],
) -> tuple[Reweighted, float]:
    """Return the log density at a point, and the share of draws that lie at least as far away.

    Chen (1994), Eq. 2.3: for draws ``(u, v)`` of a density ``f`` and any density ``w`` of ``u``,
    the mean of ``w(u) f(at, v) / f(u, v)`` is the marginal density of ``u`` at the point. It is
    used in coordinates ``v - B u`` with the slopes ``B`` of a regression, a change of coordinates
    of determinant one, so that it has no variance if ``f`` is normal. ``B`` and ``w``, a normal
    density, are fitted to draws of even origin and used with those of odd origin, and the reverse.

    ``x`` has shape ``(n, d)`` and ``log_density`` shape ``(n,)``, with coordinates ``held`` and
    ``others``; only the ``movable`` of the latter change with the point ``at``, shape ``(q,)``.
    ``log_density_at`` returns the log density at the point and some ``others``.
    """
    log_term, beyond = np.empty(len(x)), np.empty(len(x), dtype=bool)
    parity = np.unique(origin, return_inverse=True)[1] % 2
    for half in (0, 1):
        mine, its = parity == half, parity != half
        u, v = x[its][:, held], x[its][:, others]
        shape = learn_shape(u, dense=True)
        slopes = np.where(movable[:, None], _slopes(u, v), 0.0)
        moved = x[mine][:, others] + (at - x[mine][:, held]) @ slopes.T
        distance = squares(shape.whitened(x[mine][:, held]))
        log_w = -0.5 * (distance + held.size * np.log(2.0 * np.pi)) - shape.log_volume
        log_term[mine] = log_w + log_density_at(moved) - log_density[mine]
        beyond[mine] = distance >= squares(shape.whitened(at[None]))
    return reweighted(log_term, origin, -np.inf), float(beyond.mean())


def _slopes(u: Floats, v: Floats) -> Floats:
    """Return the slopes of a regression of ``v`` on ``u``, shape ``(d, q)``; 0 if by chance."""
    n, q = u.shape
    u, v = u - u.mean(axis=0), v - v.mean(axis=0)
    slopes: Floats = np.linalg.lstsq(u, v, rcond=None)[0].T
    explained, total = squares(slopes @ u.T), squares(v.T)
    is_real = explained * n > _BY_CHANCE * q * total
    return np.where(is_real[:, None], slopes, 0.0)


# From this effective number of draws inside and outside on, the logarithm of their share is normal.
ENOUGH = 20.0
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


def share(inside: NDArray[np.bool_], origin: Whole, n_effective: float) -> Share:
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


def share_of_groups(shares: Floats) -> Share:
    """Return the mean of independent estimates of a share that is small, shape ``(n_groups,)``."""
    value, n = float(shares.mean()), shares.size
    variance = float(shares.var(ddof=1)) / n
    found = value * (1.0 - value) / variance if variance > 0.0 else 1.0 / value
    return Share(value, max(found, 1.0), n - 1.0)


def smallest_effective(columns: Floats, origin: Whole) -> float:
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
    total = combined(*(_spread(each, odds) for each in (prior, posterior)))
    message = f"The error is large: few draws tell the share. {_BOTH}"
    is_large = total.mcse > LARGEST_MCSE
    found = estimated("draws", value, total, [(Status.HIGH_VARIANCE, message)] * is_large)
    if min(prior.fewest, posterior.fewest) >= ENOUGH:
        return found
    ends = [[scale(end) for end in each.ends(_TWO_SIDED)] for each in (prior, posterior)]
    (prior_low, prior_high), (low, high) = ends
    own, other = scale(posterior.value), scale(prior.value)
    lower = value - sqrt((own - low) ** 2 + (prior_high - other) ** 2)
    upper = value + sqrt((high - own) ** 2 + (other - prior_low) ** 2)
    return replace(found, lower=lower, upper=upper)


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
    ends = (-inf, value) if is_none else (value, inf)
    # the bound may leave open which side is favoured
    shown = nan if (value > 0.0) == is_none else value
    return LogEvidence(shown, nan, "draws", Status.BOUND, *ends, message)


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
