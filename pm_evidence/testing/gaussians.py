"""Gaussian models in many dimensions: closed forms at any size."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pm_evidence.testing.closed_forms import log_mvnormal, log_normal
from pm_evidence.testing.system import ExactSystem, tagged

if TYPE_CHECKING:
    import pymc as pm


Floats = NDArray[np.float64]

_CORRELATED_DIMS = 50
_CORRELATED_NOISE = np.float64(0.5)
_CORRELATION = 0.95

_WALK_LENGTH = 20
_WALK_START, _WALK_STEP, _WALK_NOISE = np.float64(2.0), np.float64(0.3), np.float64(0.7)


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
    size = tagged("high-dimensional") if n_dims >= 10 else tagged()
    return ExactSystem(
        f"gaussian_{n_dims}",
        partial(build_gaussian, n_dims, noise),
        float(log_normal(y, 0.0, np.hypot(1.0, noise)).sum()),
        tagged("continuous", "conjugate") | size,
        "independent normal marginals of the data",
    )


def _gaussian_y(n_dims: int, noise: float) -> Floats:
    return np.hypot(1.0, noise) * np.random.default_rng(n_dims).standard_normal(n_dims)


def build_gaussian(n_dims: int, noise: float) -> "pm.Model":
    """Independent coordinates, each observed once."""
    import pymc as pm

    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=n_dims)
        pm.Normal("y", x, np.float64(noise), observed=_gaussian_y(n_dims, noise))
    return model


def _correlated_cov() -> Floats:
    lag = np.abs(np.subtract.outer(np.arange(_CORRELATED_DIMS), np.arange(_CORRELATED_DIMS)))
    return _CORRELATION**lag


def _correlated_y() -> Floats:
    # A smooth curve, as the prior expects, with noise of its own that the model expects as well.
    curve = np.sin(np.linspace(0, 6, _CORRELATED_DIMS))
    rng = np.random.default_rng(_CORRELATED_DIMS)
    return curve + _CORRELATED_NOISE * rng.standard_normal(_CORRELATED_DIMS)


def build_correlated_gaussian() -> "pm.Model":
    """A correlated 50-dimensional normal prior, each coordinate observed once."""
    import pymc as pm

    with pm.Model() as model:
        x = pm.MvNormal("x", np.zeros(_CORRELATED_DIMS), cov=_correlated_cov())
        pm.Normal("y", x, _CORRELATED_NOISE, observed=_correlated_y())
    return model


def _walk_y() -> Floats:
    steps = np.random.default_rng(_WALK_LENGTH).standard_normal((2, _WALK_LENGTH))
    return 1.0 + np.cumsum(_WALK_STEP * steps[0]) + _WALK_NOISE * steps[1]


def build_random_walk() -> "pm.Model":
    """A local level: a Gaussian random walk observed with noise."""
    import pymc as pm

    with pm.Model() as model:
        level = pm.GaussianRandomWalk(
            "level",
            sigma=_WALK_STEP,
            init_dist=pm.Normal.dist(0, _WALK_START),
            steps=_WALK_LENGTH - 1,
        )
        pm.Normal("y", level, _WALK_NOISE, observed=_walk_y())
    return model


def _log_random_walk() -> float:
    index = np.arange(_WALK_LENGTH)
    cov = _WALK_START**2 + _WALK_STEP**2 * np.minimum.outer(index, index)
    return log_mvnormal(_walk_y(), 0.0, cov + _WALK_NOISE**2 * np.eye(_WALK_LENGTH))


def _log_correlated_gaussian() -> float:
    noise = _CORRELATED_NOISE**2 * np.eye(_CORRELATED_DIMS)
    return log_mvnormal(_correlated_y(), 0.0, _correlated_cov() + noise)


def systems() -> tuple[ExactSystem, ...]:
    """Return the Gaussian systems of fixed size."""
    tags = tagged("continuous", "conjugate", "high-dimensional")
    note = "multivariate normal marginal of the data"
    return (
        gaussian(2),
        gaussian(10),
        ExactSystem(
            "correlated_gaussian_50",
            build_correlated_gaussian,
            _log_correlated_gaussian(),
            tags | tagged("slow"),
            note,
        ),
        ExactSystem("random_walk", build_random_walk, _log_random_walk(), tags, note),
    )
