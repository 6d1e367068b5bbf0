"""Checks of what users pass for Gaussian process classification."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import (
    check_choice,
    check_finite,
    check_positive,
    described,
    float_array,
    plain_array,
    whole_array,
)
from pm_evidence.families.gp_classification.covariance import squared_exponential

__all__ = [
    "checked_covariance",
    "checked_jitter",
    "checked_order",
    "checked_signs",
    "factor_of",
]

Floats = NDArray[np.float64]

ORDERS = ("random", "informative", "given")
# Difference of mirrored entries of a covariance matrix that rounding explains, over the largest.
_ASYMMETRY = 1e-8
_SHOWN = 4  # labels in a message
_LARGEST = 1e100  # variance: products of a few of them are far from overflow


def checked_signs(labels: Any) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """Return the labels as signs, and the two classes in the order -1, +1.

    Parameters
    ----------
    labels : array_like, shape (n,)
        Two classes of any kind that can be sorted.

    Returns
    -------
    signs : ndarray of int8, shape (n,)
        -1 for the class that comes first in sorted order, +1 for the other.
    classes : ndarray, shape (2,)
        The classes.

    Raises
    ------
    ValueError
        If there are missing labels, or not exactly two classes.
    """
    given = plain_array("labels", labels)
    if given.ndim != 1 or not given.size:
        raise ValueError(
            f"labels must have one entry for each data point, got shape {given.shape}; pass an "
            "array of shape (n,)."
        )
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        k = int(np.flatnonzero(~np.isfinite(given))[0])
        raise ValueError(
            f"labels must not be missing, got labels[{k}]={given[k]}; leave this data point out."
        )
    if given.dtype.kind not in "biufUS":
        raise ValueError(
            f"labels must be numbers, truth values or strings, got {described(given)}; convert "
            "them."
        )
    classes = np.unique(given)
    if len(classes) != 2:
        shown = ", ".join(str(c) for c in classes[:_SHOWN]) + (
            ", ..." if len(classes) > _SHOWN else ""
        )
        remedy = "classify one class against the rest" if len(classes) > 2 else "add the other one"
        raise ValueError(
            f"labels must be of exactly two classes, got {len(classes)} ({shown}); {remedy}."
        )
    return np.where(given == classes[1], 1, -1).astype(np.int8), classes


def checked_covariance(
    inputs: Any, covariance: Any, length_scale: Any, amplitude: Any, n: int
) -> Floats:
    """Return the covariance matrix of the latent values, shape ``(n, n)``.

    Parameters
    ----------
    inputs : array_like, shape (n, n_features) or (n,), or None
        Inputs of the data points; None if ``covariance`` is a matrix.
    covariance : str, callable or array_like
        ``"squared_exponential"``, a function of the inputs, or the matrix itself.
    length_scale, amplitude : float
        Parameters of the squared exponential.
    n : int
        Number of labels.

    Raises
    ------
    ValueError
        If inputs or the matrix are of the wrong shape, hold NaN or infinities, or the matrix is
        not symmetric.
    """
    if not isinstance(covariance, str) and not callable(covariance):
        if inputs is not None:
            raise ValueError(
                "inputs must be None if covariance is a matrix, got both; leave one of them out."
            )
        return _checked_matrix(covariance, n)
    points = _checked_inputs(inputs, n)
    if callable(covariance):
        return _checked_matrix(_called(covariance, points), n)
    check_choice("covariance", covariance, ("squared_exponential",))
    scale, deviation = (
        check_positive(name, value)
        for name, value in (("length_scale", length_scale), ("amplitude", amplitude))
    )
    if deviation > _LARGEST**0.5:
        raise ValueError(
            f"amplitude must be at most {_LARGEST**0.5:g}, got {deviation:g}; the probit link "
            "hardly changes beyond an amplitude of 100."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return _checked_matrix(squared_exponential(points, scale, deviation), n)


def _called(covariance: Callable[[Floats], Any], points: Floats) -> Any:
    """Return the matrix of a function of the inputs."""
    try:
        return covariance(points)
    except Exception as error:
        raise ValueError(
            f"covariance must be a function of the inputs, an array of shape {points.shape}, which "
            f"raised {type(error).__name__}: {error}; pass for example a kernel of scikit-learn."
        ) from error


def _checked_inputs(inputs: Any, n: int) -> Floats:
    points = float_array("inputs", inputs)
    if points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2 or len(points) != n or not points.shape[1]:
        raise ValueError(
            f"inputs must have one row for each of the {n} labels, got shape {points.shape}; pass "
            "an array of shape (n, n_features)."
        )
    if not np.isfinite(points).all():
        row, column = (int(k) for k in np.argwhere(~np.isfinite(points))[0])
        raise ValueError(
            f"inputs must be finite, got inputs[{row}, {column}]={points[row, column]}; leave this "
            "data point out, or fill it."
        )
    return points


def _checked_matrix(covariance: Any, n: int) -> Floats:
    matrix = float_array("covariance", covariance)
    if matrix.shape != (n, n):
        raise ValueError(
            f"covariance must have one row and column for each of the {n} labels, got shape "
            f"{matrix.shape}; pass a matrix of shape ({n}, {n})."
        )
    if not np.isfinite(matrix).all():
        row, column = (int(k) for k in np.argwhere(~np.isfinite(matrix))[0])
        raise ValueError(
            f"covariance must be finite, got covariance[{row}, {column}]={matrix[row, column]}; "
            "look for inputs that are missing or far too large."
        )
    if np.abs(matrix).max() > _LARGEST:
        raise ValueError(
            f"covariance must have entries of at most {_LARGEST:g} in size, got "
            f"{np.abs(matrix).max():.3g}; use a smaller amplitude."
        )
    if np.abs(matrix - matrix.T).max() > _ASYMMETRY * np.abs(matrix).max():
        raise ValueError(
            "covariance must be symmetric, got entries that differ from their mirror images by "
            f"{np.abs(matrix - matrix.T).max():.3g}; pass (covariance + covariance.T) / 2 if they "
            "should not."
        )
    return 0.5 * (matrix + matrix.T)


def checked_jitter(jitter: Any) -> float:
    """Return the number that is added to the diagonal of the covariance.

    Raises
    ------
    ValueError
        If it is negative or not finite.
    """
    number = check_finite("jitter", jitter, 0.0)
    if number < 0.0:
        raise ValueError(f"jitter must not be negative, got {number:g}; leave it out.")
    return number


def checked_order(order: Any, n: int) -> str | NDArray[np.int64]:
    """Return the order in which data points are added: a name, or the points themselves.

    Raises
    ------
    ValueError
        If the name is unknown, or an array is not a permutation of the data points.
    """
    if isinstance(order, str):
        return check_choice("order", order, ORDERS)
    given = whole_array("order", order)
    if given.shape != (n,) or not np.array_equal(np.sort(given), np.arange(n)):
        raise ValueError(
            f"order must name each of the {n} data points once, by numbers from 0 to {n - 1}, got "
            f"{described(given)}; pass a permutation, or 'random'."
        )
    return given


def factor_of(matrix: Floats, what: str, remedy: str) -> Floats:
    """Return the lower Cholesky factor of a covariance matrix.

    Parameters
    ----------
    matrix : ndarray, shape (n, n)
        The matrix.
    what, remedy : str
        What the matrix is, and what to do if it has no factor, for the message.

    Raises
    ------
    ValueError
        If the matrix is not positive definite.
    """
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError as error:
        least = float(np.linalg.eigvalsh(matrix)[0])
        raise ValueError(
            f"{what} must be positive definite, got a matrix with the eigenvalue {least:.3g}; "
            f"{remedy}."
        ) from error
