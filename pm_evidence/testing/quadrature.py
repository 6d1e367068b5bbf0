"""Integrals of smooth densities in one to three dimensions, on the log scale."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pm_evidence.core.exceptions import NumericalError

Floats = NDArray[np.float64]

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
