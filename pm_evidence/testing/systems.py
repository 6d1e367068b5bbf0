"""PyMC models whose log evidence is known exactly, to try a kernel, a path or a sampler on.

Closed forms and quadratures that such values need are at the end, in float64 and in nats.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp

from pm_evidence.core.exceptions import NumericalError

Floats = NDArray[np.float64]
ScalePrior = Literal["half_cauchy", "half_normal"]


@dataclass(frozen=True)
class ExactSystem:
    """A PyMC model and its exact log evidence.

    Parameters
    ----------
    name : str
        Unique name, also the key in :func:`exact_systems`.
    build : callable
        Returns a fresh ``pm.Model``.
    log_evidence : float
        The exact log evidence in nats, of the *normalised* prior: where a
        transform cuts an ordinary prior, the prior renormalised on what is
        left. Potentials count as likelihood.
    smooth : bool, default True
        Whether the log density has a gradient everywhere in the unconstrained
        space: no discrete variable and no jump.
    log_prior_mass : float, default 0.0
        Log of the integral of the prior density as PyMC evaluates it, in nats:
        ``-log(n!)`` for ``n`` exchangeable parts under an ordered transform, the
        log mass inside the interval for a prior cut by an interval transform.
        ``log_evidence`` is the log integral of ``exp(model.logp())`` less this.
    """

    name: str
    build: Callable[[], pm.Model]
    log_evidence: float
    smooth: bool = True
    log_prior_mass: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError if the log evidence is not finite."""
        if not math.isfinite(self.log_evidence):
            raise ValueError(
                f"log_evidence of {self.name!r} must be finite, got {self.log_evidence}; "
                "correct the formula behind it."
            )


@cache
def _systems() -> dict[str, ExactSystem]:
    # Computed on the first call and not on import: some values are quadratures.
    log_normal_mean = float(log_normal_group(_NORMAL_Y, 1.0, _NORMAL_PRIOR_SD))
    log_counts = log_poisson_gamma(_COUNTS, 2.0, 0.5)
    systems = [
        ExactSystem("normal_mean", build_normal_mean, log_normal_mean),
        ExactSystem("gamma_poisson", build_gamma_poisson, log_counts),
        ExactSystem("bimodal_10", build_bimodal_10, _log_bimodal_10()),
        ExactSystem("category", build_category, _log_category(), smooth=False),
        gaussian(2),
        gaussian(10),
        ExactSystem(
            "correlated_gaussian_50", build_correlated_gaussian, _log_correlated_gaussian()
        ),
    ]
    scale_priors: tuple[ScalePrior, ...] = ("half_cauchy", "half_normal")
    for scale_prior in scale_priors:
        value = _log_eight_schools(scale_prior)
        for centred, form in ((True, "centred"), (False, "noncentred")):
            build = partial(build_eight_schools, scale_prior, centred)
            systems.append(ExactSystem(f"eight_schools_{scale_prior}_{form}", build, value))
    return {system.name: system for system in systems}


def exact_systems() -> dict[str, ExactSystem]:
    """Return a handful of models with their exact log evidence.

    They are conjugate, hierarchical, bimodal, discrete, and Gaussian in up to 50 dimensions.

    Returns
    -------
    dict of str to ExactSystem
        By name, in a fixed order. No model is built.

    Examples
    --------
    >>> systems = exact_systems()
    >>> round(systems["eight_schools_half_cauchy_centred"].log_evidence, 4)
    -31.3113
    """
    return dict(_systems())


# Scales are np.float64, not literals: PyTensor takes the log of a literal such as 2.0 in single
# precision.
_NORMAL_Y = np.array([1.2, 0.4, 2.1, 1.7, 0.9])
_NORMAL_PRIOR_SD = np.float64(2.0)


def build_normal_mean() -> pm.Model:
    """Mean of a normal sample with known variance."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, _NORMAL_PRIOR_SD)
        pm.Normal("y", mu, 1, observed=_NORMAL_Y)
    return model


_COUNTS = np.array([3, 1, 4, 2, 6, 3])


def build_gamma_poisson() -> pm.Model:
    """Poisson counts with a gamma prior of their mean."""
    with pm.Model() as model:
        rate = pm.Gamma("rate", alpha=2.0, beta=np.float64(0.5))
        pm.Poisson("y", rate, observed=_COUNTS)
    return model


# Ten dimensions: the modes are 2 * 3 * sqrt(10) / 0.3 = 63 standard deviations apart.
_MODES_DIMS, _MODES_PRIOR_SD = 10, np.float64(3.0)
_MODES_MEANS, _MODES_SD = np.array([-3.0, 3.0]), np.float64(0.3)
_MODES_LOG_WEIGHTS = np.log([0.2, 0.8])


def build_bimodal_10() -> pm.Model:
    """Two unequal modes in ten dimensions, 63 standard deviations apart, as a potential."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, _MODES_PRIOR_SD, shape=_MODES_DIMS)
        parts = [
            log_weight + pm.logp(pm.Normal.dist(mean, _MODES_SD), x).sum()
            for log_weight, mean in zip(_MODES_LOG_WEIGHTS, _MODES_MEANS, strict=True)
        ]
        pm.Potential("likelihood", pm.math.logaddexp(*parts))
    return model


def _log_bimodal_10() -> float:
    overlap = log_normal(_MODES_MEANS, 0.0, np.hypot(np.full(2, _MODES_SD), _MODES_PRIOR_SD))
    return float(logsumexp(_MODES_LOG_WEIGHTS + _MODES_DIMS * overlap))


_CATEGORY_P = np.array([0.6, 0.3, 0.1])
_CATEGORY_MEANS = np.array([-1.0, 0.5, 3.0])
_CATEGORY_Y = np.array([2.1, 1.6])


def build_category() -> pm.Model:
    """One categorical variable and normal data about its mean."""
    with pm.Model() as model:
        category = pm.Categorical("category", p=_CATEGORY_P)
        pm.Normal("y", pt.as_tensor(_CATEGORY_MEANS)[category], 1, observed=_CATEGORY_Y)
    return model


def _log_category() -> float:
    log_likelihood = log_normal(_CATEGORY_Y[:, None], _CATEGORY_MEANS, 1.0).sum(axis=0)
    return float(logsumexp(np.log(_CATEGORY_P) + log_likelihood))


def gaussian(n_dims: int, *, noise: float = 0.1) -> ExactSystem:
    """Return a Gaussian system of any dimension, for scaling studies.

    Every coordinate has a standard normal prior and is observed once with
    normal noise, so the information gained grows in proportion to ``n_dims``.

    Parameters
    ----------
    n_dims : int
        Number of free dimensions, at least 1.
    noise : float, default 0.1
        Standard deviation of the observations. The posterior is about
        ``1 / noise`` times narrower than the prior in every dimension.

    Returns
    -------
    ExactSystem
        Named ``gaussian_<n_dims>``; its builder can be pickled.

    Raises
    ------
    ValueError
        ``n_dims`` or ``noise`` is out of range.

    Examples
    --------
    >>> system = gaussian(3)
    >>> system.name, round(system.log_evidence, 3)
    ('gaussian_3', -8.208)
    """
    if n_dims < 1:
        raise ValueError(f"n_dims must be at least 1, got {n_dims}; pass a positive count.")
    if not 0 < noise < np.inf:
        raise ValueError(f"noise must be positive and finite, got {noise}; pass a scale.")
    y = _gaussian_y(n_dims, noise)
    return ExactSystem(
        f"gaussian_{n_dims}",
        partial(build_gaussian, n_dims, noise),
        float(log_normal(y, 0.0, np.hypot(1.0, noise)).sum()),
    )


def _gaussian_y(n_dims: int, noise: float) -> Floats:
    return np.hypot(1.0, noise) * np.random.default_rng(n_dims).standard_normal(n_dims)


def build_gaussian(n_dims: int, noise: float) -> pm.Model:
    """Independent coordinates, each observed once."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=n_dims)
        pm.Normal("y", x, np.float64(noise), observed=_gaussian_y(n_dims, noise))
    return model


_CORRELATED_DIMS, _CORRELATED_NOISE, _CORRELATION = 50, np.float64(0.5), 0.95


def _correlated_cov() -> Floats:
    lag = np.abs(np.subtract.outer(np.arange(_CORRELATED_DIMS), np.arange(_CORRELATED_DIMS)))
    return _CORRELATION**lag


def _correlated_y() -> Floats:
    # A smooth curve, as the prior expects, with noise of its own that the model expects as well.
    curve = np.sin(np.linspace(0, 6, _CORRELATED_DIMS))
    rng = np.random.default_rng(_CORRELATED_DIMS)
    return curve + _CORRELATED_NOISE * rng.standard_normal(_CORRELATED_DIMS)


def build_correlated_gaussian() -> pm.Model:
    """A correlated 50-dimensional normal prior, each coordinate observed once."""
    with pm.Model() as model:
        x = pm.MvNormal("x", np.zeros(_CORRELATED_DIMS), cov=_correlated_cov())
        pm.Normal("y", x, _CORRELATED_NOISE, observed=_correlated_y())
    return model


def _log_correlated_gaussian() -> float:
    noise = _CORRELATED_NOISE**2 * np.eye(_CORRELATED_DIMS)
    return log_mvnormal(_correlated_y(), 0.0, _correlated_cov() + noise)


# Rubin (1981): effects of coaching in eight schools and their standard errors, in SAT points.
SCHOOLS_Y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SCHOOLS_SD = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
SCHOOLS_MU_SD, _TAU_SCALE = np.float64(5.0), np.float64(5.0)


def build_eight_schools(scale_prior: ScalePrior, centred: bool) -> pm.Model:
    """Partial pooling of the eight schools, in either parametrisation."""
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu = pm.Normal("mu", 0, SCHOOLS_MU_SD)
        if scale_prior == "half_cauchy":
            tau = pm.HalfCauchy("tau", beta=_TAU_SCALE)
        else:
            tau = pm.HalfNormal("tau", sigma=_TAU_SCALE)
        if centred:
            theta = pm.Normal("theta", mu, tau, dims="school")
        else:
            z = pm.Normal("z", 0, 1, dims="school")
            theta = pm.Deterministic("theta", mu + tau * z, dims="school")
        pm.Normal("y", theta, SCHOOLS_SD, observed=SCHOOLS_Y, dims="school")
    return model


def _log_scale_prior(tau: Floats, scale_prior: ScalePrior) -> Floats:
    if scale_prior == "half_cauchy":
        return np.log(2 / (np.pi * _TAU_SCALE)) - np.log1p((tau / _TAU_SCALE) ** 2)
    return np.log(2) + log_normal(tau, 0.0, _TAU_SCALE)


def _log_eight_schools(scale_prior: ScalePrior) -> float:
    def log_density(log_tau: Floats) -> Floats:
        tau = np.exp(log_tau)
        variance = SCHOOLS_SD**2 + tau[..., None] ** 2
        log_likelihood = log_normal_group(SCHOOLS_Y, variance, SCHOOLS_MU_SD)
        return log_likelihood + _log_scale_prior(tau, scale_prior) + log_tau

    return log_integral(log_density, (-36.0, 12.0))


LOG_2PI = np.log(2 * np.pi)


def log_normal(x: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> Floats:
    """Return the normal log density, elementwise."""
    scale = np.asarray(sd, dtype=np.float64)
    deviation = (np.asarray(x, dtype=np.float64) - np.asarray(mean)) / scale
    return -0.5 * LOG_2PI - np.log(scale) - 0.5 * deviation**2


def log_mvnormal(x: Floats, mean: ArrayLike, cov: Floats) -> float:
    """Return the log density of a multivariate normal at one point ``x``, shape ``(d,)``."""
    factor = np.linalg.cholesky(cov)
    white = np.linalg.solve(factor, x - np.asarray(mean))
    return float(-0.5 * (x.size * LOG_2PI + white @ white) - np.log(np.diag(factor)).sum())


def log_normal_group(
    y: ArrayLike, variance: ArrayLike, prior_sd: float, included: ArrayLike = 1.0
) -> Floats:
    """Return the evidence of ``y_i ~ N(mu, variance_i)`` with ``mu ~ N(0, prior_sd)``.

    With ``A = sum 1/v``, ``B = sum y/v`` and ``C = sum y^2/v``, integrating ``mu``
    out leaves ``-1/2 [sum log(2 pi v) + C - B^2 / (A + 1/p^2) + log(1 + p^2 A)]``.
    """
    data = np.asarray(y, dtype=np.float64)
    spread = np.asarray(variance, dtype=np.float64)
    counted = np.asarray(included, dtype=np.float64) + 0 * data  # one entry for each datum
    precision = counted / spread
    total = precision.sum(axis=-1)
    linear = (data * precision).sum(axis=-1)
    square = (data**2 * precision).sum(axis=-1)
    log_scale = (counted * (LOG_2PI + np.log(spread))).sum(axis=-1)
    shrunk = linear**2 / (total + prior_sd**-2)
    return np.asarray(-0.5 * (log_scale + square - shrunk + np.log1p(prior_sd**2 * total)))


def log_poisson_gamma(counts: ArrayLike, shape: float, rate: float) -> float:
    """Return the evidence of Poisson counts whose common mean is ``Gamma(shape, rate)``."""
    k = np.asarray(counts)
    new_shape, new_rate = shape + k.sum(), rate + k.size
    log_ratio = shape * np.log(rate) - new_shape * np.log(new_rate)
    return float(log_ratio + gammaln(new_shape) - gammaln(shape) - gammaln(k + 1).sum())


_NODES_PER_PANEL = 16
# First and largest number of panels a side, by dimension. The largest cost 16 thousand, one
# million and four million evaluations, all well below a second for the densities here.
_PANELS = {1: (8, 1024), 2: (8, 64), 3: (4, 10)}


def gauss_legendre(lower: float, upper: float, n_panels: int) -> tuple[Floats, Floats]:
    """Return nodes and log weights of the composite Gauss-Legendre rule."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES_PER_PANEL)
    half_width = (upper - lower) / (2 * n_panels)
    centres = lower + half_width * (2 * np.arange(n_panels) + 1)
    points = (centres[:, None] + half_width * nodes).ravel()
    return points, np.log(np.tile(half_width * weights, n_panels))


def log_integral(
    log_density: Callable[..., Floats],
    *bounds: tuple[float, float],
    tolerance: float = 1e-11,
) -> float:
    """Return the log of the integral of ``exp(log_density)`` over a box."""
    n_panels, most_panels = _PANELS[len(bounds)]
    previous = np.inf
    while n_panels <= most_panels:
        value = _tensor_rule(log_density, bounds, n_panels)
        if abs(value - previous) < tolerance:
            return value
        previous = value
        n_panels = n_panels * 3 // 2
    raise NumericalError(
        f"log_density must be smooth inside bounds={bounds}, but the rule had not settled to "
        f"{tolerance} nats with {most_panels} panels a side; split the interval or narrow the "
        "bounds."
    )


def _tensor_rule(
    log_density: Callable[..., Floats], bounds: tuple[tuple[float, float], ...], n_panels: int
) -> float:
    rules = [gauss_legendre(*bound, n_panels) for bound in bounds]
    grids = np.meshgrid(*(nodes for nodes, _ in rules), indexing="ij", sparse=True)
    log_weights = np.meshgrid(*(weights for _, weights in rules), indexing="ij", sparse=True)
    total = log_density(*grids)
    for part in log_weights:
        total = total + part
    return float(logsumexp(total))
