"""Regressions without group effects: their posteriors are near normal densities."""

from functools import cache, partial

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pm_evidence.testing.systems import LOG_2PI, log_integral, log_normal

from . import data
from .case import Case, Nuts, Reference
from .importance import evidence_at_mode

__all__ = ["CASES"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Scales of the priors of the large linear regression.
_COEFFICIENT_SD, _NOISE_SCALE = 1.0, 2.0


@cache
def simulated_logistic(rows: int, columns: int) -> tuple[Floats, Integers]:
    """Return a design with a column of ones, and responses of 0 and 1."""
    rng = np.random.default_rng([rows, columns])
    design = rng.standard_normal((rows, columns))
    design[:, 0] = 1.0
    logit = design @ rng.normal(0, 1.5 / columns**0.5, size=columns)
    return design, (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.int64)


def build_logistic(data_of, prior_sd: float) -> pm.Model:
    """Logistic regression with independent normal priors."""
    design, response = data_of()
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, prior_sd, shape=design.shape[1])
        pm.Bernoulli("y", logit_p=design @ slope, observed=response)
    return model


def log_logistic(data_of, prior_sd: float, draws: int, dof: float) -> Reference:
    """Importance sampling of the log evidence of `build_logistic`."""
    design, response = data_of()
    linear = response @ design

    def log_density(slope: Floats) -> Floats:
        logit = slope @ design.T
        log_likelihood = slope @ linear - np.logaddexp(0.0, logit).sum(axis=1)
        return log_likelihood + log_normal(slope, 0.0, prior_sd).sum(axis=1)

    return evidence_at_mode(log_density, np.zeros(design.shape[1]), draws=draws, dof=dof)


@cache
def simulated_linear(rows: int, columns: int) -> tuple[Floats, Floats]:
    """Return a design with a column of ones, and responses."""
    rng = np.random.default_rng([rows, columns, 1])
    design = rng.standard_normal((rows, columns))
    design[:, 0] = 1.0
    slope = rng.normal(0, 0.5, size=columns)
    return design, design @ slope + 1.3 * rng.standard_normal(rows)


def build_linear(rows: int, columns: int) -> pm.Model:
    """Linear regression with a free standard deviation of the noise."""
    design, response = simulated_linear(rows, columns)
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, _COEFFICIENT_SD, shape=columns)
        sigma = pm.HalfNormal("sigma", _NOISE_SCALE)
        pm.Normal("y", design @ slope, sigma, observed=response)
    return model


def log_linear(rows: int, columns: int) -> Reference:
    """Normal marginal of the data given sigma, then quadrature over log sigma."""
    design, response = simulated_linear(rows, columns)
    eigenvalue, vectors = np.linalg.eigh(_COEFFICIENT_SD**2 * design.T @ design)
    along = vectors.T @ (_COEFFICIENT_SD * design.T @ response)
    least_squares = np.linalg.lstsq(design, response)[0]
    residual = response - design @ least_squares

    def log_density(log_sigma: Floats) -> Floats:
        variance = np.exp(2 * log_sigma)[..., None]
        # the part outside the column space, then one normal density for each direction in it
        total = -0.5 * (rows - columns) * (LOG_2PI + 2 * log_sigma)
        total = total - 0.5 * (residual @ residual) * np.exp(-2 * log_sigma)
        spread = variance + eigenvalue
        total = total - 0.5 * (LOG_2PI + np.log(spread) + along**2 / eigenvalue / spread).sum(-1)
        sigma = np.exp(log_sigma)
        return total + np.log(2) + log_normal(sigma, 0.0, _NOISE_SCALE) + log_sigma

    middle = 0.5 * np.log(residual @ residual / rows)
    width = 20 / (2 * rows) ** 0.5  # twenty standard deviations of log sigma
    bounds = middle - width, middle + width
    return Reference(log_integral(log_density, bounds, tolerance=1e-7))


def _logistic(
    name: str,
    data_of,
    prior_sd: float,
    source: str,
    *,
    draws: int = 40_000,
    dof: float = 30.0,
    published: float | None = None,
    nuts: Nuts | None = None,
) -> Case:
    return Case(
        name,
        partial(build_logistic, data_of, prior_sd),
        partial(log_logistic, data_of, prior_sd, draws, dof),
        source,
        "importance sampling from a Student-t density at the mode",
        near_gaussian=True,
        published=published,
        nuts=nuts or Nuts(),
    )


_FRIEL_WYSE = "Pima, 532 women, standardised as by Friel and Wyse (2012)"
_SHORT = Nuts(chains=1, tune=300, draws=100)

CASES = (
    _logistic("logistic_3", partial(simulated_logistic, 150, 3), 2.0, "simulated, 150 rows"),
    _logistic(
        "german_credit", data.german_credit, 1.0, "German credit (UCI), 1,000 rows", dof=100.0
    ),
    # variances 1 / 0.01 and 1 of Friel and Wyse (2012)
    *(
        _logistic(
            f"pima_{columns}_sd_{sd:.0f}",
            partial(data.pima, columns == 6),
            sd,
            _FRIEL_WYSE,
            draws=100_000,
            published=published,
        )
        for columns, sd, published in (
            (5, 10.0, -257.2323),
            (6, 10.0, -259.8576),
            (5, 1.0, -247.3033),
            (6, 1.0, -247.5628),
        )
    ),
    _logistic(
        "logistic_50000_x_20",
        partial(simulated_logistic, 50_000, 20),
        1.0,
        "simulated",
        draws=2000,
        dof=100.0,
        nuts=_SHORT,
    ),
    Case(
        "linear_100000_x_30",
        partial(build_linear, 100_000, 30),
        partial(log_linear, 100_000, 30),
        "simulated",
        "normal marginal given sigma, quadrature over log sigma",
        near_gaussian=True,
        nuts=_SHORT,
    ),
)
