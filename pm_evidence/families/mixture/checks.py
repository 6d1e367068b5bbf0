"""Checks of what users hand over to a mixture."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import (
    check_choice,
    check_finite,
    check_positive,
    described,
    float_array,
    whole_array,
)

__all__ = ["checked_data", "checked_draws", "checked_order", "checked_prior"]

Floats = NDArray[np.float64]

_LARGEST = 1e50  # squares of data, and sums of them, are far from overflow
# Draws of the inverse gamma distribution overflow for smaller shapes.
_LEAST_ALPHA, _LEAST_CONCENTRATION, _LARGEST_SHAPE = 0.1, 1e-3, 1e8
_UNIT_SUM = 1e-6


def checked_data(y: Any) -> Floats:
    """Return data points as float64.

    Raises
    ------
    ValueError
        If they are not one row of finite numbers.
    """
    found = float_array("y", y)
    if found.ndim != 1 or not found.size:
        raise ValueError(
            "y must be one row of data points, shape (n_points,) with at least one of them, got "
            f"shape {found.shape}; a mixture is univariate."
        )
    if not (np.abs(found) <= _LARGEST).all():
        wrong = found[~(np.abs(found) <= _LARGEST)][0]
        raise ValueError(
            f"y must hold finite numbers of at most {_LARGEST:g} in size, got {wrong}; leave out "
            "missing points, or choose other units."
        )
    return found


def checked_prior(
    mean_mu: Any, mean_sigma: Any, variance_alpha: Any, variance_beta: Any, weights_a: Any
) -> tuple[float, ...]:
    """Return the parameters of the prior as floats, in the order of the arguments.

    Raises
    ------
    ValueError
        If they are not finite, not positive where they have to be, or beyond what can be computed.
    """
    found = [check_finite("mean_mu", mean_mu, 0.0)]
    for name, value, least, most in (
        ("mean_sigma", mean_sigma, 1.0 / _LARGEST, _LARGEST),
        ("variance_alpha", variance_alpha, _LEAST_ALPHA, _LARGEST_SHAPE),
        ("variance_beta", variance_beta, 1.0 / _LARGEST, _LARGEST),
        ("weights_a", weights_a, _LEAST_CONCENTRATION, _LARGEST_SHAPE),
    ):
        number = check_positive(name, value)
        if not least <= number <= most:
            raise ValueError(
                f"{name} must be from {least:g} to {most:g}, got {number:g}; choose another prior, "
                "or other units."
            )
        found.append(number)
    if abs(found[0]) > _LARGEST:
        raise ValueError(
            f"mean_mu must be at most {_LARGEST:g} in size, got {found[0]:g}; choose other units."
        )
    return tuple(found)


def checked_order(order: Any, n_points: int) -> str | NDArray[np.int64]:
    """Return the name of an order of the points, or the order.

    Raises
    ------
    ValueError
        If the name is unknown, or the order does not name every point once.
    """
    if isinstance(order, str):
        return check_choice("order", order, ("random", "given"))
    found = whole_array("order", order)
    if found.shape != (n_points,) or not np.array_equal(np.sort(found), np.arange(n_points)):
        raise ValueError(
            f"order must name each of the {n_points} points once, by indices from 0 to "
            f"{n_points - 1}, got {described(order)}; pass 'random', 'given', or numpy.argsort of "
            "something."
        )
    return found


def checked_draws(
    name: str, draws: Any, n_components: int, n_variances: int, n_points: int
) -> Floats:
    """Return parameters and components of points, shape ``(n, n_dim)``, as float64.

    Raises
    ------
    ValueError
        If there are none, or their shape or values are not those of draws.
    """
    found = float_array(name, draws)
    n_dim = 2 * n_components + n_variances + n_points
    if found.ndim != 2 or found.shape[1] != n_dim or not len(found):
        raise ValueError(
            f"{name} must have the shape (n, {n_dim}): {n_components} means, {n_variances} "
            f"variances, {n_components} weights and {n_points} components in every row, got "
            f"{found.shape}; put them side by side in this order."
        )
    ends = np.cumsum([n_components, n_variances, n_components])
    mean, variance, weight, component = np.split(found, ends, axis=1)
    for rule, good in (
        ("finite means", np.isfinite(mean)),
        ("finite variances above 0", (variance > 0.0) & np.isfinite(variance)),
        ("weights of at least 0", weight >= 0.0),
        ("weights that sum to 1", np.abs(weight.sum(axis=1, keepdims=True) - 1.0) < _UNIT_SUM),
        (
            f"components from 0 to {n_components - 1}",
            np.isin(component, np.arange(n_components)),
        ),
    ):
        if not good.all():
            row = int(np.argmin(good.all(axis=1)))
            raise ValueError(
                f"{name} must hold {rule}, got other values in row {row}; look for NaN, and for "
                "columns in another order."
            )
    return found
