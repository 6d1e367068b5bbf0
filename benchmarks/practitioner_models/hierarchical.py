"""Models with group means whose effects integrate out; the scales are left to quadrature."""

from functools import partial

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pm_evidence.testing.systems import LOG_2PI, log_integral, log_normal
from tests.systems.exact import deceptive_systems, exact_systems

from . import data
from .case import Case, Nuts, Reference

__all__ = ["CASES"]

Floats = NDArray[np.float64]

# Scales of the priors of the radon model: mean of all counties, slope, between, within.
_MU_SD, _SLOPE_SD, _BETWEEN, _WITHIN = 5.0, 2.0, 1.0, 2.0


def build_radon(centred: bool) -> pm.Model:
    """Varying intercepts of 85 counties."""
    log_radon, basement, county = data.radon()
    n_counties = int(county.max()) + 1
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, _MU_SD)
        slope = pm.Normal("slope", 0, _SLOPE_SD)
        between = pm.HalfNormal("between", _BETWEEN)
        within = pm.HalfNormal("within", _WITHIN)
        if centred:
            intercept = pm.Normal("intercept", mu, between, shape=n_counties)
        else:
            intercept = mu + between * pm.Normal("z", 0, 1, shape=n_counties)
        pm.Normal("y", intercept[county] + slope * basement, within, observed=log_radon)
    return model


def log_intercepts(
    y: Floats, x: Floats, county: NDArray[np.int64], between: Floats, within: Floats
) -> Floats:
    """Return the log likelihood of both scales, with mean, slope and intercepts integrated out."""
    columns = np.stack([np.ones(y.size), x, y])
    products = columns @ columns.T
    sums = np.stack([np.bincount(county, column) for column in columns])
    size = np.bincount(county)
    prior_precision = np.diag([_MU_SD**-2, _SLOPE_SD**-2])
    between, within = np.broadcast_arrays(between, within)
    # V = within^2 + between^2 inside a county; its inverse by Sherman and Morrison
    of_mean = within[..., None] ** 2 + size * between[..., None] ** 2
    shrunk = between[..., None] ** 2 / of_mean
    weighted = products - np.einsum("aj,bj,...j->...ab", sums, sums, shrunk)
    weighted = weighted / within[..., None, None] ** 2
    precision = weighted[..., :2, :2] + prior_precision
    linear, square = weighted[..., :2, 2], weighted[..., 2, 2]
    fitted = np.linalg.solve(precision, linear[..., None])[..., 0]
    log_det = 2 * (y.size - size.size) * np.log(within) + np.log(of_mean).sum(-1)
    log_det = log_det + np.linalg.slogdet(precision)[1] - np.linalg.slogdet(prior_precision)[1]
    return -0.5 * (y.size * LOG_2PI + log_det + square - (linear * fitted).sum(-1))


def log_radon() -> Reference:
    """Normal marginal of the data given both scales, then quadrature over their logarithms."""
    y, basement, county = data.radon()

    def log_density(log_between: Floats, log_within: Floats) -> Floats:
        between, within = np.exp(log_between), np.exp(log_within)
        total = log_intercepts(y, basement, county, between, within)
        for scale, width in ((between, _BETWEEN), (within, _WITHIN)):
            total = total + np.log(2) + log_normal(scale, 0.0, width) + np.log(scale)
        return total

    return Reference(log_integral(log_density, (-7.0, 1.0), (-0.8, 0.2), tolerance=1e-8))


def build_means_centred() -> pm.Model:
    """The centred form of the system ``many_means``."""
    from tests.systems.deceptive import means_data

    y = means_data()
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfNormal("tau", 2)
        theta = pm.Normal("theta", mu, tau, shape=y.size)
        pm.Normal("y", theta, 1.0, observed=y)
    return model


def system(name: str):
    """Return a system with a known log evidence."""
    return (exact_systems() | deceptive_systems())[name]


def _of_system(
    name: str,
    source: str,
    *,
    known: str | None = None,
    build=None,
    nuts: Nuts | None = None,
    **more,
) -> Case:
    """Make a case from a system; ``build`` is another form of the same model."""
    found = known or name
    return Case(
        name,
        build or (lambda: system(found).build()),
        lambda: Reference(system(found).log_evidence),
        source,
        "normal marginal given the scales, quadrature over these",
        nuts=nuts or Nuts(),
        **more,
    )


def _radon(form: str) -> Case:
    return Case(
        f"radon_{form}",
        partial(build_radon, form == "centred"),
        log_radon,
        "radon in Minnesota (HLMdiag), 919 houses in 85 counties",
        "normal marginal given both scales, quadrature over these",
        form_of="radon",
    )


_SCHOOLS = "eight schools, Rubin (1981)"
_FUNNEL = "simulated, 6 groups of 5"
_LONG = Nuts(chains=1, tune=500, draws=300)

CASES = (
    *(_radon(form) for form in ("centred", "noncentred")),
    *(
        _of_system(f"eight_schools_{prior}_{form}", _SCHOOLS, form_of=f"eight_schools_{prior}")
        for prior in ("half_normal", "half_cauchy")
        for form in ("centred", "noncentred")
    ),
    *(
        _of_system(f"one_way_{form}", _FUNNEL, form_of="one_way")
        for form in ("centred", "noncentred")
    ),
    _of_system(
        "means_1000_centred",
        "simulated",
        known="many_means",
        build=build_means_centred,
        form_of="means_1000",
        nuts=_LONG,
    ),
    _of_system(
        "means_1000_noncentred", "simulated", known="many_means", form_of="means_1000", nuts=_LONG
    ),
)
