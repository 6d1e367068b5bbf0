"""Models with plates of local variables, whose evidence is a quadrature over their globals.

Elements are integrated by sums, in closed form or by the trapezoid rule, without code of the
package. Two systems have elements with two modes, one has heavy tails, and one has elements with a
spike that is a thousand times narrower than their prior.
"""

from collections.abc import Callable

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy import special, stats
from scipy.special import logsumexp

Floats = NDArray[np.float64]

_RNG = np.random.default_rng(46)
_VISITS = _RNG.binomial(_RNG.poisson(9, (8, 1)), 0.4, (8, 3))
_MIXED = np.concatenate([_RNG.normal(-1.2, 1, 9), _RNG.normal(1.6, 1, 12)])
_SQUARES = _RNG.normal(np.array([0.2, 1.5, 4.0, 2.5, 0.4, 3.0]), 0.4)
_SIDES = _RNG.normal(np.array([-3.2, 2.5, 0.3, 3.5, -0.4, 1.0]), 1.0)
_TAILS = np.array([0.3, -0.8, 11.0, 0.1, 0.9, -1.4, 0.4, -6.0])
_SHARP = np.array([0.7, -2.1, 3.3, 0.002, -0.9])
_TRIALS = _RNG.binomial(12, special.expit(_RNG.normal(0.3, 0.8, 15)))
_ZEROS = np.where(_RNG.random(20) < 0.3, 0, _RNG.poisson(np.exp(_RNG.normal(0.8, 0.7, 20))))
_X = np.linspace(-1, 1, 16)
_LINE = 1.5 * _X + _RNG.normal(0, 0.5, 16) + np.where(np.arange(16) % 7 == 3, 6.0, 0.0)
_TRUE = _RNG.normal(0, 1, 14)
_SEEN = _TRUE + _RNG.normal(0, 0.4, 14)
_CURVED = 1.3 * np.tanh(2 * _TRUE) + _RNG.normal(0, 0.3, 14)


def _over(log_f: Callable[..., float], *ranges: tuple[float, float, int]) -> float:
    """Return the log of an integral by the trapezoid rule; log_f takes a number for each range."""
    grids = [np.linspace(low, high, n) for low, high, n in ranges]
    points = np.stack(np.meshgrid(*grids, indexing="ij"), -1).reshape(-1, len(grids))
    log_steps = sum(float(np.log(grid[1] - grid[0])) for grid in grids)
    return float(logsumexp([log_f(*point) for point in points])) + log_steps


def _each(log_f: Floats, grid: Floats) -> float:
    """Return the sum, over elements, of the logs of their integrals; the grid is the first axis."""
    return float((logsumexp(log_f, axis=0) + np.log(grid[1] - grid[0])).sum())


def _log_half_normal(log_s: float, scale: float = 1.0) -> float:
    return float(stats.halfnorm.logpdf(np.exp(log_s), scale=scale)) + log_s


def _log_beta(logit: float, a: float, b: float) -> float:
    return float(stats.beta.logpdf(special.expit(logit), a, b)) + float(
        special.log_expit(logit) + special.log_expit(-logit)
    )


def detections() -> pm.Model:
    """N-mixture: unknown counts at eight sites, of which each visit detects some."""
    with pm.Model() as model:
        rate, detection = pm.Gamma("rate", 5, 0.5), pm.Beta("detection", 2, 2)
        number = pm.Poisson("number", rate, shape=8)
        pm.Binomial("seen", number[:, None], detection, observed=_VISITS)
    return model


def _log_detections() -> float:
    every = np.arange(400)[:, None]

    def log_f(log_rate: float, logit: float) -> float:
        rate = np.exp(log_rate)
        seen = stats.binom.logpmf(_VISITS, every[..., None], special.expit(logit)).sum(axis=2)
        each = logsumexp(stats.poisson.logpmf(every, rate) + seen, axis=0)
        log_prior = stats.gamma.logpdf(rate, 5, scale=2) + log_rate + _log_beta(logit, 2, 2)
        return float(each.sum() + log_prior)

    return _over(log_f, (0.5, 4.5, 60), (-5, 5, 60))


def labels() -> pm.Model:
    """A mixture of two components with a label for each point; the components may be exchanged."""
    with pm.Model() as model:
        share, mean = pm.Beta("share", 2, 2), pm.Normal("mean", 0, 2, shape=2)
        label = pm.Bernoulli("label", share, shape=_MIXED.size)
        pm.Normal("y", mean[label], 1, observed=_MIXED)
    return model


def _log_labels() -> float:
    means = np.linspace(-8, 8, 161)
    first, log_prior = stats.norm.logpdf(_MIXED, means[:, None]), stats.norm.logpdf(means, 0, 2)

    def log_f(logit: float) -> float:
        low, high = special.log_expit(-logit), special.log_expit(logit)
        both = np.logaddexp(low + first[:, None], high + first).sum(axis=2)
        total = logsumexp(both + log_prior[:, None] + log_prior) + 2 * np.log(means[1] - means[0])
        return float(total) + _log_beta(logit, 2, 2)

    return _over(log_f, (-9, 9, 91))


def squares() -> pm.Model:
    """Only squares of the elements are seen, so that each has a mode on either side."""
    with pm.Model() as model:
        mean, scale = pm.Normal("mean", 0, 1), pm.HalfNormal("scale", 2)
        x = pm.Normal("x", mean, scale, shape=_SQUARES.size)
        pm.Normal("y", x**2, 0.4, observed=_SQUARES)
    return model


def _log_squares() -> float:
    x = np.linspace(-4, 4, 4001)[:, None]
    seen = stats.norm.logpdf(_SQUARES, x**2, 0.4)

    def log_f(mean: float, log_s: float) -> float:
        log_prior = stats.norm.logpdf(mean) + _log_half_normal(log_s, 2)
        return _each(seen + stats.norm.logpdf(x, mean, np.exp(log_s)), x[:, 0]) + float(log_prior)

    return _over(log_f, (-6, 6, 61), (-3, 3, 61))


def sides() -> pm.Model:
    """The prior of each element is a narrow and a wide component, six apart."""
    with pm.Model() as model:
        share, scale = pm.Beta("share", 1, 1), pm.HalfNormal("scale", 2)
        parts = pm.math.stack([share, 1 - share])
        x = pm.NormalMixture("x", parts, mu=[-3, 3], sigma=[0.2, 1], shape=_SIDES.size)
        pm.Normal("y", x, scale, observed=_SIDES)
    return model


def _log_sides() -> float:
    def log_f(logit: float, log_s: float) -> float:
        s, found = np.exp(log_s), _log_half_normal(log_s, 2) + _log_beta(logit, 1, 1)
        left = special.log_expit(logit) + stats.norm.logpdf(_SIDES, -3, np.hypot(0.2, s))
        right = special.log_expit(-logit) + stats.norm.logpdf(_SIDES, 3, np.hypot(1, s))
        return float(np.logaddexp(left, right).sum()) + found

    return _over(log_f, (-20, 20, 161), (-6, 3, 121))


def tails() -> pm.Model:
    """Effects with two degrees of freedom, and two far data."""
    with pm.Model() as model:
        mean, scale = pm.Normal("mean", 0, 1), pm.HalfNormal("scale", 1)
        x = pm.StudentT("x", nu=2, mu=mean, sigma=scale, shape=_TAILS.size)
        pm.Normal("y", x, 1, observed=_TAILS)
    return model


def _log_tails() -> float:
    u = np.linspace(-16, 16, 1601)[:, None]
    z = np.sinh(u)  # equal steps of the area sine reach far tails
    log_prior = stats.t.logpdf(z, 2) + np.log(np.cosh(u))

    def log_f(mean: float, log_s: float) -> float:
        seen = stats.norm.logpdf(_TAILS, mean + np.exp(log_s) * z)
        log_globals = stats.norm.logpdf(mean) + _log_half_normal(log_s)
        return _each(seen + log_prior, u[:, 0]) + float(log_globals)

    return _over(log_f, (-5, 5, 61), (-14, 2, 97))


def spikes() -> pm.Model:
    """Each datum is its element to 0.005 or an outlier, and elements are up to ten wide."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 5)
        x = pm.Normal("x", 0, scale, shape=_SHARP.size)
        near = np.log(0.7) + pm.logp(pm.Normal.dist(x, 0.005), _SHARP)
        far = np.log(0.3) + pm.logp(pm.Normal.dist(0, 3), _SHARP)
        pm.Potential("y", pm.math.logaddexp(near, far).sum())
    return model


def _log_spikes() -> float:
    far = np.log(0.3) + stats.norm.logpdf(_SHARP, 0, 3)

    def log_f(log_s: float) -> float:
        near = np.log(0.7) + stats.norm.logpdf(_SHARP, 0, np.hypot(np.exp(log_s), 0.005))
        return float(np.logaddexp(near, far).sum()) + _log_half_normal(log_s, 5)

    return _over(log_f, (-20, 4, 4801))


def successes() -> pm.Model:
    """Numbers of successes in groups whose log odds are normal."""
    with pm.Model() as model:
        mean, scale = pm.Normal("mean", 0, 1), pm.HalfNormal("scale", 1)
        effect = pm.Normal("effect", mean, scale, shape=_TRIALS.size)
        pm.Binomial("y", 12, logit_p=effect, observed=_TRIALS)
    return model


def _log_successes() -> float:
    z = np.linspace(-9, 9, 601)[:, None]

    def log_f(mean: float, log_s: float) -> float:
        seen = stats.binom.logpmf(_TRIALS, 12, special.expit(mean + np.exp(log_s) * z))
        log_globals = stats.norm.logpdf(mean) + _log_half_normal(log_s)
        return _each(seen + stats.norm.logpdf(z), z[:, 0]) + float(log_globals)

    return _over(log_f, (-3, 3, 61), (-14, 2, 97))


def zeros() -> pm.Model:
    """Counts with normal effects, of which an unknown share is replaced by zero."""
    with pm.Model() as model:
        share, scale = pm.Beta("share", 2, 2), pm.HalfNormal("scale", 1)
        effect = pm.Normal("effect", 0.8, scale, shape=_ZEROS.size)
        pm.ZeroInflatedPoisson("y", share, pm.math.exp(effect), observed=_ZEROS)
    return model


def _log_zeros() -> float:
    z = np.linspace(-9, 9, 601)[:, None]

    def log_f(logit: float, log_s: float) -> float:
        counts = stats.poisson.logpmf(_ZEROS, np.exp(0.8 + np.exp(log_s) * z))
        counts += special.log_expit(logit)
        none = np.where(_ZEROS == 0, special.log_expit(-logit), -np.inf)
        seen = np.logaddexp(none, counts) + stats.norm.logpdf(z)
        return _each(seen, z[:, 0]) + _log_half_normal(log_s) + _log_beta(logit, 2, 2)

    return _over(log_f, (-7, 7, 71), (-14, 2, 97))


def outliers() -> pm.Model:
    """A line, and for each datum whether it is an outlier."""
    with pm.Model() as model:
        slope, share = pm.Normal("slope", 0, 2), pm.Beta("share", 1, 5)
        outlier = pm.Bernoulli("outlier", share, shape=_X.size)
        pm.Normal("y", slope * _X, pm.math.where(outlier, 5.0, 0.5), observed=_LINE)
    return model


def _log_outliers() -> float:
    def log_f(slope: float, logit: float) -> float:
        inside = special.log_expit(-logit) + stats.norm.logpdf(_LINE, slope * _X, 0.5)
        outside = special.log_expit(logit) + stats.norm.logpdf(_LINE, slope * _X, 5)
        each = np.logaddexp(inside, outside).sum()
        return float(each + stats.norm.logpdf(slope, 0, 2)) + _log_beta(logit, 1, 5)

    return _over(log_f, (-8, 8, 321), (-25, 8, 133))


def errors_in_x() -> pm.Model:
    """A curve through points that are seen with errors in both coordinates."""
    with pm.Model() as model:
        height, noise = pm.Normal("height", 0, 2), pm.HalfNormal("noise", 1)
        x = pm.Normal("x", 0, 1, shape=_SEEN.size)
        pm.Normal("seen", x, 0.4, observed=_SEEN)
        pm.Normal("y", height * pm.math.tanh(2 * x), noise, observed=_CURVED)
    return model


def _log_errors_in_x() -> float:
    x = np.linspace(-6, 6, 4001)[:, None]
    seen = stats.norm.logpdf(x) + stats.norm.logpdf(_SEEN, x, 0.4)

    def log_f(height: float, log_s: float) -> float:
        curve = stats.norm.logpdf(_CURVED, height * np.tanh(2 * x), np.exp(log_s))
        log_prior = stats.norm.logpdf(height, 0, 2) + _log_half_normal(log_s)
        return _each(seen + curve, x[:, 0]) + float(log_prior)

    return _over(log_f, (-4, 4, 61), (-4.5, 2, 61))


_CASES: dict[str, tuple[Callable[[], pm.Model], Callable[[], float]]] = {
    "detections": (detections, _log_detections),
    "labels": (labels, _log_labels),
    "squares": (squares, _log_squares),
    "sides": (sides, _log_sides),
    "tails": (tails, _log_tails),
    "spikes": (spikes, _log_spikes),
    "successes": (successes, _log_successes),
    "zeros": (zeros, _log_zeros),
    "outliers": (outliers, _log_outliers),
    "errors_in_x": (errors_in_x, _log_errors_in_x),
}
NAMES = tuple(_CASES)


def plates(name: str) -> tuple[pm.Model, float]:
    """Return a model and its log evidence in nats."""
    build, log_evidence = _CASES[name]
    return build(), log_evidence()
