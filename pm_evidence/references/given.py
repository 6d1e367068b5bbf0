"""Densities that users write down for annealing to start from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_positive, described, float_array
from pm_evidence.core.shape import Shape
from pm_evidence.references.mixture import StudentFit, StudentMixture

Floats = NDArray[np.float64]

# Two entries of a covariance that should be equal may differ by rounding, relative to its scales.
_ASYMMETRY = 1e-8


class _Given:
    """A density whose ``fitted`` attribute draws and evaluates."""

    fitted: StudentFit | StudentMixture

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent draws, shape ``(n, d)``."""
        return self.fitted.draw(n, rng)

    def log_density(self, x: Floats) -> Floats:
        """Return the log density of every row of ``x``, shape ``(n,)``, in nats."""
        return self.fitted.log_density(x)


@dataclass(frozen=True, eq=False)
class Normal(_Given):
    """A multivariate normal density that annealing may start from.

    It is a density of the unconstrained values of a model's continuous variables, in the order of
    ``model.free_RVs``; circular variables are left out.

    Parameters
    ----------
    mean : array_like, shape (d,)
        Means.
    covariance : array_like, shape (d, d) or (d,)
        Covariance matrix, or the variances if there is no correlation.

    Raises
    ------
    ValueError
        If the shapes do not fit, a number is not finite, or the covariance is not symmetric and
        positive definite.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    >>> reference = pe.references.Normal([1.0], [0.5])
    >>> dt = pe.sample_evidence(model, reference=reference, random_seed=1, progressbar=False)
    >>> pe.log_evidence(dt).status
    'ok'
    """

    mean: Floats
    covariance: Floats
    fitted: StudentFit = field(init=False, repr=False)

    def __post_init__(self) -> None:
        shape = _shape("covariance", self.mean, self.covariance)
        object.__setattr__(self, "fitted", StudentFit(shape, inf))


@dataclass(frozen=True, eq=False)
class StudentT(_Given):
    """A multivariate Student-t density that annealing may start from.

    It is a density of the same coordinates as `Normal`.

    Parameters
    ----------
    mean : array_like, shape (d,)
        Location.
    scale : array_like, shape (d, d) or (d,)
        Scale matrix, which is the covariance times ``(dof - 2) / dof`` where that exists, or its
        diagonal.
    dof : float
        Degrees of freedom.

    Raises
    ------
    ValueError
        If the shapes do not fit, a number is not finite, the scale matrix is not symmetric and
        positive definite, or ``dof`` is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> import pm_evidence as pe
    >>> reference = pe.references.StudentT([0.0, 1.0], np.eye(2), dof=4)
    >>> reference.log_density(np.array([[0.0, 1.0]])).round(4)
    array([-1.8379])
    """

    mean: Floats
    scale: Floats
    dof: float = 5.0
    fitted: StudentFit = field(init=False, repr=False)

    def __post_init__(self) -> None:
        dof = check_positive("dof", self.dof)
        shape = _shape("scale", self.mean, self.scale)
        object.__setattr__(self, "fitted", StudentFit(shape, dof))


@dataclass(frozen=True, eq=False)
class Mixture(_Given):
    """A mixture of `Normal` and `StudentT` densities that annealing may start from.

    Parameters
    ----------
    components : sequence of Normal or StudentT
        The components, all of the same dimension.
    weights : array_like, shape (n_components,), optional
        Their probabilities up to a factor; equal if left out.

    Raises
    ------
    ValueError, TypeError
        If there is no component, one is of another kind or dimension, or the weights are not
        positive numbers, one for each component.

    Examples
    --------
    >>> import numpy as np
    >>> import pm_evidence as pe
    >>> sides = [pe.references.Normal([place], [1.0]) for place in (-3.0, 3.0)]
    >>> reference = pe.references.Mixture(sides)
    >>> reference.log_density(np.array([[3.0]])).round(4)
    array([-1.6121])
    """

    components: Sequence[Normal | StudentT]
    weights: Floats | None = None
    fitted: StudentMixture = field(init=False, repr=False)

    def __post_init__(self) -> None:
        components = self.components
        if not isinstance(components, list | tuple) or not components:
            raise ValueError(
                f"components must be a list of densities, got {described(components)}; pass for "
                "example [pe.references.Normal([0.0], [1.0])]."
            )
        remedy = "pass pe.references.Normal or pe.references.StudentT"
        for i, part in enumerate(components):
            if not isinstance(part, Normal | StudentT):
                raise TypeError(
                    f"components[{i}] must be a density, got {described(part)}; {remedy}."
                )
        sizes = [part.fitted.shape.mean.size for part in components]
        if len(set(sizes)) > 1:
            raise ValueError(
                f"components must have the same dimension, got {sizes}; correct their means."
            )
        n = len(components)
        weights = np.ones(n) if self.weights is None else float_array("weights", self.weights)
        if weights.shape != (n,) or not (np.isfinite(weights) & (weights > 0.0)).all():
            raise ValueError(
                f"weights must be {n} finite numbers above 0, one for each component, got "
                f"{described(self.weights)}; leave weights out for equal ones."
            )
        mixture = StudentMixture.of([part.fitted for part in components], np.log(weights))
        object.__setattr__(self, "fitted", mixture)


def _shape(name: str, mean: Any, matrix: Any) -> Shape:
    """Return the checked location and lower factor of a density."""
    location = _finite("mean", mean)
    if location.ndim != 1 or not location.size:
        raise ValueError(
            f"mean must be a row of at least one number, got shape {location.shape}; pass for "
            "example [0.0]."
        )
    d, square = location.size, _finite(name, matrix)
    if square.shape == (d,):
        if not (square > 0.0).all():
            raise ValueError(
                f"{name} must have diagonal entries above 0, got {square.min():g}; pass variances."
            )
        return Shape(location, np.sqrt(square)[:, None])
    if square.shape != (d, d):
        raise ValueError(
            f"{name} must have shape ({d}, {d}) or ({d},), as mean has {d} entries, got shape "
            f"{square.shape}; pass one row and column for each entry of mean."
        )
    scales = np.sqrt(np.abs(np.diag(square)))
    if (np.abs(square - square.T) > _ASYMMETRY * np.outer(scales, scales)).any():
        raise ValueError(f"{name} must be symmetric, got a matrix that is not; average it with .T.")
    try:
        return Shape(location, np.linalg.cholesky(square))
    except np.linalg.LinAlgError as error:
        least = float(np.linalg.eigvalsh(square).min())
        raise ValueError(
            f"{name} must be positive definite, got a least eigenvalue of {least:.3g}; add a "
            "small multiple of the identity, or leave out coordinates that others determine."
        ) from error


def _finite(name: str, values: Any) -> Floats:
    found = float_array(name, values)
    if not np.isfinite(found).all():
        raise ValueError(
            f"{name} must be finite, got {found[~np.isfinite(found)][0]}; pass numbers."
        )
    return found
