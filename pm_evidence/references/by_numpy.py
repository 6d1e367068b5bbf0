"""A reference and a model in one density that NumPy evaluates; for numba see ``compiled``."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from pm_evidence.references.packed import Component, Packed, unpacked
from pm_evidence.targets.compile.numpy_density import NumpyDensity

__all__ = ["annealed_from_by_numpy"]

Floats = NDArray[np.float64]

# Whitening matrices of more rows than this are kept sparse where most of their elements are zero.
_DENSE = 200


def annealed_from_by_numpy(
    model: NumpyDensity, packed: Packed, log_mass: float, prior_share: float
) -> NumpyDensity:
    """Return ``(log reference, log target - log reference)`` as a density that NumPy evaluates.

    Parameters
    ----------
    model : NumpyDensity
        Log prior and log likelihood.
    packed : Packed
        The reference of some coordinates.
    log_mass : float
        Log of the mass of the prior of ``model``, in nats, which is taken off the log target.
    prior_share : float
        Share of the prior in the reference, from 0 to 1.
    """
    mixture = _Mixture.of(packed)
    of_fit = np.log1p(-prior_share)
    of_prior = np.log(prior_share) if prior_share > 0.0 else -np.inf

    def annealed(x: Floats, arrays: Any, with_gradient: bool) -> tuple[Floats, Floats | None]:
        values, gradient = model.function(x, arrays, with_gradient)
        with np.errstate(all="ignore"):
            log_fit, slope = mixture.evaluate(x[:, packed.positions], with_gradient)
            first, second = log_fit + of_fit, values[:, 0] - log_mass + of_prior
            log_reference = np.logaddexp(first, second)
            log_target = values.sum(axis=1) - log_mass
            densities = np.stack([log_reference, log_target - log_reference], axis=1)
            if gradient is None:
                return densities, None
            share = np.where(second == -np.inf, 0.0, np.exp(second - log_reference))[:, None]
            both = gradient.sum(axis=1)
            of_reference = np.where(share > 0.0, share * gradient[:, 0], 0.0)
            of_reference[:, packed.positions] += (1.0 - share) * slope
            return densities, np.stack([of_reference, both - of_reference], axis=1)

    return replace(model, function=annealed)


@dataclass(frozen=True, slots=True)
class _Mixture:
    """A mixture of Student-t densities, evaluated at the rows of an array."""

    constant: float
    components: list[Component]
    whitening: list[Any]

    @classmethod
    def of(cls, packed: Packed) -> "_Mixture":
        """Return the mixture that an array of numbers describes."""
        constant, components = unpacked(packed)
        return cls(constant, components, [_whitening(part) for part in components])

    def evaluate(self, x: Floats, with_gradient: bool) -> tuple[Floats, Floats]:
        """Return log densities, shape ``(n,)``, and their gradients, shape ``(n, d)``."""
        if not self.components:
            return np.full(len(x), self.constant), np.zeros(x.shape)
        parts = [
            _component(part, matrix, x, with_gradient)
            for part, matrix in zip(self.components, self.whitening, strict=True)
        ]
        log_parts = np.array([log_part for log_part, _ in parts])
        total = np.logaddexp.reduce(log_parts, axis=0)
        slope = np.zeros(x.shape)
        if with_gradient:
            share = np.exp(log_parts - np.where(total == -np.inf, 0.0, total))
            for weight, (_, own) in zip(share, parts, strict=True):
                slope += np.where(weight[:, None] > 0.0, weight[:, None] * own, 0.0)
        return self.constant + total, slope


def _component(
    part: Component, whitening: Any, x: Floats, with_gradient: bool
) -> tuple[Floats, Floats]:
    """Return the log density of one component and its gradient at the rows of ``x``."""
    heavy = part.scale > 0.0
    value, log_density = x, np.full(len(x), part.log_peak)
    if heavy.any():
        far = (x[:, heavy] - part.centre[heavy]) / part.scale[heavy]
        long = np.hypot(1.0, far)
        value = x.copy()
        value[:, heavy] = np.arcsinh(far)
        log_density -= np.log(long).sum(axis=1)
    whitened = (value - part.location) @ whitening
    squares = (whitened**2).sum(axis=1)
    if part.dof == np.inf:
        log_density, pull = log_density - 0.5 * squares, np.ones(len(x))
    else:
        power = part.dof + x.shape[1]
        log_density -= 0.5 * power * np.log1p(squares / part.dof)
        pull = power / (part.dof + squares)
    if not with_gradient:
        return log_density, x
    slope = -pull[:, None] * (whitened @ whitening.T)
    if heavy.any():
        slope[:, heavy] = (slope[:, heavy] - far / long) / (part.scale[heavy] * long)
    return log_density, slope


def _whitening(part: Component) -> Any:
    """Return the matrix that deviations from the location, as rows, are multiplied by."""
    d = part.location.size
    if part.sparse is None:
        if part.factor.ndim == 1:
            return (
                np.diag(1.0 / part.factor)
                if d <= _DENSE
                else scipy.sparse.csr_array(np.diag(1 / part.factor))
            )
        return scipy.linalg.solve_triangular(part.factor, np.eye(d), lower=True).T
    order, row, column, diagonal, below = part.sparse
    rows = np.concatenate([order, order[row]])
    columns = np.concatenate([np.arange(d), column])
    matrix = scipy.sparse.csr_array(
        (np.concatenate([diagonal, below]), (rows, columns)), shape=(d, d)
    )
    return matrix.toarray() if d <= _DENSE else matrix
