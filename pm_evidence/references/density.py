"""A reference and a model in one density: by NumPy, around what evaluates the model."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from pm_evidence.core.checks import described
from pm_evidence.core.shape import SparseShape
from pm_evidence.references.given import Mixture, Normal, StudentT
from pm_evidence.references.mixture import StudentFit, StudentMixture
from pm_evidence.targets.compile.numba_density import write_densities
from pm_evidence.targets.compile.numpy_density import NumpyDensity

Floats = NDArray[np.float64]
# Log densities of a reference at points, shape ``(n,)``, and gradients if asked for
type LogReference = Callable[[Floats, bool], tuple[Floats, Floats | None]]

# In more dimensions whitening matrices are kept sparse where most of their elements are zero.
_DENSE = 200
# Most numbers of all components for the points that are evaluated together.
_MOST_NUMBERS = 2**22
_TRIALS = 100


def components_of(reference: Any) -> list[tuple[StudentFit, float]] | None:
    """Return the components of a reference with their log weights, or None if it is a user's.

    Models without coordinates of which it could be a density have no reference, and no components.
    """
    if reference is None:
        return []
    fit = reference.fitted if isinstance(reference, Normal | StudentT | Mixture) else reference
    mixture = fit if isinstance(fit, StudentMixture) else StudentMixture((fit,), np.zeros(1))
    parts = [part for part in mixture.components if isinstance(part, StudentFit)]
    if len(parts) < len(mixture.components):
        return None
    return list(zip(parts, map(float, mixture.log_weight), strict=True))


def annealed_from(
    model: Any, name: str, log_reference: LogReference, prior_share: float, *, n_rows: int
) -> NumpyDensity:
    """Return ``(log reference, log target - log reference)``, a density of populations.

    ``name`` is that of the model's own density, with or without gradients. A share of the reference
    is the prior, normalised by the mass of ordered transforms. ``n_rows`` points are evaluated
    together, or fewer if the model needs it.
    """
    of_model, log_mass = getattr(model, name), model.log_order_mass
    with np.errstate(divide="ignore"):
        of_fit, of_prior = np.log1p(-prior_share), np.log(prior_share)

    def annealed(x: Floats, arrays: Any, with_gradient: bool) -> tuple[Floats, Floats | None]:
        values = np.empty((len(x), 2))
        gradient = np.empty((len(x), 2, x.shape[1])) if with_gradient else None
        write_densities(model, name, x, values, *([] if gradient is None else [gradient]))
        log_fit, slope = log_reference(x, with_gradient)
        with np.errstate(all="ignore"):
            first, second = log_fit + of_fit, values[:, 0] - log_mass + of_prior
            log_start = np.logaddexp(first, second)
            log_target = values.sum(axis=1) - log_mass
            densities = np.stack([log_start, log_target - log_start], axis=1)
            if gradient is None or slope is None:
                return densities, None
            share = np.where(second == -np.inf, 0.0, np.exp(second - log_start))[:, None]
            prior = np.where(share > 0.0, share * gradient[:, 0], 0.0)
            of_start, both = prior + (1.0 - share) * slope, gradient.sum(axis=1)
            return densities, np.stack([of_start, both - of_start], axis=1)

    together = min(getattr(of_model, "n_rows", sys.maxsize), n_rows)
    return NumpyDensity(
        annealed, model.n_dim, (), of_model.has_gradient, together, slow_ops=of_model.slow_ops
    )


def log_reference(
    reference: Any, positions: NDArray[np.int64], of_others: Callable[[Floats], Any]
) -> tuple[LogReference, int]:
    """Return a reference of some coordinates of points, and how many points to take together.

    ``of_others`` gives the log density of the other coordinates, which has no gradient.
    """
    components = components_of(reference)
    mixture = MixtureDensity.of(components) if components else None

    def log_density(x: Floats, with_gradient: bool) -> tuple[Floats, Floats | None]:
        value, slope = np.zeros(len(x)), np.zeros(x.shape) if with_gradient else None
        if components is None:
            value = _called(reference, x[:, positions])
        elif mixture is not None:
            value, own = mixture(x[:, positions], with_gradient)
            if slope is not None:
                slope[:, positions] = own
        return value + of_others(x), slope

    return log_density, _MOST_NUMBERS if mixture is None else mixture.n_rows


def _called(reference: Any, x: Floats) -> Floats:
    """Return log densities by a user's object.

    An exception counts as a density of NaN: the proposal is rejected, and the run warns of it.
    """
    try:
        return np.asarray(reference.log_density(x), float)
    except Exception:
        if len(x) == 1:
            return np.array([np.nan])
        return np.concatenate([_called(reference, row[None]) for row in x])


def check_reference(reference: Any, d: int) -> None:
    """Raise an error unless an object draws and has a log density in ``d`` coordinates."""
    x = np.asarray(reference.draw(_TRIALS, np.random.default_rng(0)))
    if x.shape != (_TRIALS, d) or x.dtype.kind not in "iuf" or not np.isfinite(x).all():
        raise ValueError(
            f"reference.draw(n, rng) must return finite draws of shape (n, {d}), one column for "
            f"each continuous coordinate that is not circular, got {described(x)} for n={_TRIALS};"
            " correct its draw."
        )
    values = np.asarray(reference.log_density(x.astype(float)))
    if values.shape != (_TRIALS,) or not np.isfinite(values).all():
        raise ValueError(
            f"reference.log_density(x) must return a finite number for each of its own draws, got "
            f"{described(values)} for {_TRIALS} draws; return the normalised log density of every "
            "row of x in nats."
        )


@dataclass(frozen=True, eq=False)
class MixtureDensity:
    """The log density of a mixture of K Student-t densities, and its gradient, at many points."""

    log_peak: Floats  # shape (K, 1): log weight and log density at the location
    dof: Floats  # shape (K, 1): degrees of freedom
    location: Floats  # shape (K, 1, d)
    # shape (K, 1, d): centre and scale of coordinates that are stretched, which are 0 for others
    stretch: tuple[Floats, Floats] | None
    whitening: Any  # what deviations from the locations are multiplied by, see `_whitening`

    @classmethod
    def of(cls, components: Sequence[tuple[StudentFit, float]]) -> Self:
        """Return the density of components with their log weights."""
        parts, log_weight = zip(*components, strict=True)
        location = np.array([part.shape.mean for part in parts])[:, None]
        centre, scale = np.zeros((2, *location.shape))
        for k, part in enumerate(parts):
            if part.stretch is not None:
                heavy = part.stretch.heavy
                centre[k, 0, heavy] = part.stretch.centre[heavy]
                scale[k, 0, heavy] = part.stretch.scale[heavy]
        constant = np.array([part.log_constant for part in parts])
        volume = np.log(np.where(scale > 0.0, scale, 1.0)).sum(axis=2)
        log_peak = (np.array(log_weight) + constant)[:, None] - volume
        dof = np.array([[part.dof] for part in parts])
        stretch = (centre, scale) if (scale > 0.0).any() else None
        return cls(log_peak, dof, location, stretch, _whitening(parts, location.shape[2]))

    @property
    def n_rows(self) -> int:
        """How many points may be evaluated together."""
        return max(_MOST_NUMBERS // max(self.location.size, 1), 1)

    def __call__(self, x: Floats, with_gradient: bool) -> tuple[Floats, Floats | None]:
        """Return log densities at ``x`` of shape ``(n, d)``, and gradients if asked for."""
        with np.errstate(all="ignore"):
            return self._evaluated(x, with_gradient)

    def _evaluated(self, x: Floats, with_gradient: bool) -> tuple[Floats, Floats | None]:
        d, value, log_parts = x.shape[1], x, self.log_peak
        if self.stretch is not None:
            centre, scale = self.stretch
            is_stretched = scale > 0.0
            length = np.where(is_stretched, scale, 1.0)
            far = np.where(is_stretched, (x - centre) / length, 0.0)
            long = np.hypot(1.0, far)
            value = np.where(is_stretched, np.arcsinh(far), x)
            log_parts = log_parts - np.log(long).sum(axis=2)
        whitened = _times(value - self.location, self.whitening)
        squares = (whitened**2).sum(axis=2)
        is_normal = np.isinf(self.dof)
        finite = np.where(is_normal, 1.0, self.dof)
        student = 0.5 * (finite + d) * np.log1p(squares / finite)
        log_parts = log_parts - np.where(is_normal, 0.5 * squares, student)
        total = np.logaddexp.reduce(log_parts, axis=0)
        if not with_gradient:
            return total, None
        pull = np.where(is_normal, 1.0, (finite + d) / (finite + squares))
        slope = -pull[:, :, None] * _times(whitened, self.whitening, transposed=True)
        if self.stretch is not None:
            slope = np.where(is_stretched, (slope - far / long) / (length * long), slope)
        share = np.exp(log_parts - np.where(total == -np.inf, 0.0, total))[:, :, None]
        return total, np.where(share > 0.0, share * slope, 0.0).sum(axis=0)


def _whitening(parts: Sequence[StudentFit], d: int) -> Any:
    """Return what deviations from the locations, as rows, are multiplied by.

    These are matrices, shape ``(K, d, d)``; or, if most elements are zero, one sparse matrix of
    ``K d`` rows with them along its diagonal.
    """
    found = []
    for part in parts:
        shape = part.shape
        if isinstance(shape, SparseShape):
            pattern = shape.pattern
            rows = np.concatenate([shape.order, shape.order[pattern.row]])
            columns = np.concatenate([np.arange(d), pattern.column])
            found.append((rows, columns, np.concatenate([shape.diagonal, shape.below])))
        elif shape.is_dense and d > 1:
            inverse = scipy.linalg.solve_triangular(shape.factor, np.eye(d), lower=True).T
            rows, columns = np.triu_indices(d)
            found.append((rows, columns, inverse[rows, columns]))
        else:
            found.append((np.arange(d), np.arange(d), 1.0 / shape.factor[:, 0]))
    if d <= _DENSE or sum(each[0].size for each in found) > len(parts) * d * d // 4:
        matrices = np.zeros((len(parts), d, d))
        for matrix, (rows, columns, elements) in zip(matrices, found, strict=True):
            matrix[rows, columns] = elements
        return matrices
    rows, columns = (np.concatenate([k * d + e[i] for k, e in enumerate(found)]) for i in (0, 1))
    elements = np.concatenate([each for _, _, each in found])
    return scipy.sparse.csr_array((elements, (rows, columns)), shape=(len(parts) * d,) * 2)


def _times(rows: Floats, whitening: Any, *, transposed: bool = False) -> Floats:
    """Return rows of all components, shape ``(K, n, d)``, times their whitening matrices."""
    if whitening.ndim == 3:
        return np.asarray(rows @ (whitening.swapaxes(1, 2) if transposed else whitening))
    n_parts, n, d = rows.shape
    together = rows.swapaxes(0, 1).reshape(n, n_parts * d)
    found = together @ (whitening.T if transposed else whitening)
    return np.asarray(found.reshape(n, n_parts, d).swapaxes(0, 1))
