"""Gaussian process classification: the target, its checks and how it is annealed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf

from pm_evidence.core.checks import (
    check_choice,
    check_count,
    check_finite,
    check_positive,
    described,
    float_array,
    plain_array,
)
from pm_evidence.core.contracts import AnnealingSetup, Kernel
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.families.gp_classification.latent import LatentHMC, LatentPath, RiemannianHMC
from pm_evidence.families.gp_classification.noisy import DataPointPath, SliceGibbs
from pm_evidence.families.gp_classification.propagation import (
    ExpectationPropagation,
    GaussianApproximation,
    expectation_propagation,
    tempered_gaussians,
)
from pm_evidence.families.native import NativeTarget, checked_order, chosen_kernel, order_of
from pm_evidence.kernels.cycle import Grows

Floats = NDArray[np.float64]


def squared_exponential(inputs: Floats, length_scale: float, amplitude: float) -> Floats:
    """Return ``amplitude**2 * exp(-|x - x'|**2 / (2 length_scale**2))`` for all pairs of inputs."""
    scaled = inputs / length_scale
    # inner products of centred inputs lose fewer digits
    scaled = scaled - scaled.mean(axis=0)
    squares = np.einsum("ij,ij->i", scaled, scaled)
    distances = squares[:, None] + squares - 2.0 * (scaled @ scaled.T)
    np.maximum(distances, 0.0, out=distances)
    np.fill_diagonal(distances, 0.0)
    covariance: Floats = amplitude**2 * np.exp(-0.5 * distances)
    return 0.5 * (covariance + covariance.T)


ORDERS = ("random", "informative", "given")
# Difference of mirrored entries of a covariance matrix that rounding explains, over the largest.
_ASYMMETRY = 1e-8
_SHOWN = 4  # labels in a message
_LARGEST = 1e100  # variance: products of a few of them are far from overflow


def checked_signs(labels: Any) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """Return the labels as signs, and the two classes in the order -1, +1."""
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
    """Return the covariance matrix of the latent values, shape ``(n, n)``."""
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
    _check_entries("inputs", points, "leave this data point out, or fill it")
    return points


def _check_entries(name: str, values: Floats, remedy: str) -> None:
    if not np.isfinite(values).all():
        row, column = (int(k) for k in np.argwhere(~np.isfinite(values))[0])
        raise ValueError(
            f"{name} must be finite, got {name}[{row}, {column}]={values[row, column]}; {remedy}."
        )


def _checked_matrix(covariance: Any, n: int) -> Floats:
    matrix = float_array("covariance", covariance)
    if matrix.shape != (n, n):
        raise ValueError(
            f"covariance must have one row and column for each of the {n} labels, got shape "
            f"{matrix.shape}; pass a matrix of shape ({n}, {n})."
        )
    _check_entries("covariance", matrix, "look for inputs that are missing or far too large")
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


def factor_of(matrix: Floats, what: str, remedy: str) -> Floats:
    """Return the lower Cholesky factor of a covariance matrix."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError as error:
        least = float(np.linalg.eigvalsh(matrix)[0])
        raise ValueError(
            f"{what} must be positive definite, got a matrix with the eigenvalue {least:.3g}; "
            f"{remedy}."
        ) from error


def greedy_order(covariance: Floats) -> NDArray[np.int64]:
    """Return the points so that each has the largest variance given those before it.

    This is the order of the pivots of a Cholesky factorisation. Ties, as the first point of a
    stationary process, are broken by the smallest index. Points of which nothing is left to know
    come last, in the order of the data.
    """
    _, pivots, rank, _ = dpstrf(covariance, lower=1)
    order = pivots.astype(np.int64) - 1
    order[rank:].sort()
    return order


_KERNELS: Mapping[str, type[Any]] = {"hmc": LatentHMC, "riemannian_hmc": RiemannianHMC}
_PILOT, _PATHS = 128, 64
REPRESENTATIONS = {"sequence": "arm", "latent": "ais"}
REFERENCES = ("prior", "ep")


@dataclass(frozen=True, eq=False, repr=False)
class GPClassification(NativeTarget):
    """Classification of two classes by a Gaussian process with mean zero and the probit link.

    The latent values ``x`` have the distribution ``N(0, K)``, and a data point has the label ``y``
    (-1 or +1) with probability ``Phi(y x)``. The log evidence is the log probability of all labels.

    Parameters
    ----------
    inputs : array_like, shape (n, n_features) or (n,), or None
        Inputs of the data points. None if ``covariance`` is a matrix.
    labels : array_like, shape (n,)
        Labels of two classes, such as -1 and 1, 0 and 1, or two strings. The class that comes last
        in sorted order is +1.
    length_scale, amplitude : float
        Parameters ``l`` and ``s`` of ``K = s**2 exp(-|a - b|**2 / (2 l**2))`` for inputs ``a`` and
        ``b``.
    covariance : "squared_exponential", array_like of shape (n, n), or callable
        The covariance function; the matrix ``K`` itself; or a function of the inputs, shape
        ``(n, n_features)``, that returns it, such as a kernel of scikit-learn.
    representation : {"sequence", "latent"}
        ``"sequence"``: data points are added one by one to values ``z`` that are the latent ones
        with standard normal noise, of which the labels are the signs (Fraccaro, Paquet and Winther
        2016, Eq. 10); ``method="auto"`` is then ``"arm"``. ``"latent"``: the latent values of all
        data points are annealed (their Eq. 11 and 12), and ``method="auto"`` is ``"ais"``.
    order : {"informative", "random", "given"} or array_like of ints, shape (n,)
        The order in which a sequence adds the data points. ``"informative"`` takes the point next
        whose value has the largest variance given those before it, ``"random"`` a random order.
        ``"given"`` takes the data as they are; if they are sorted by class, that leads far astray.
    order_seed : int
        Seed of the random order; it is part of the target, and not of a run.
    reference : {"prior", "ep"}
        What latent values are annealed from: the prior, or the Gaussian approximation to the
        posterior that expectation propagation finds.
    jitter : float
        What is added to the diagonal of ``K``. It changes the model, and is 0 unless given.

    Raises
    ------
    ValueError
        If inputs, labels or covariance are of the wrong shape, hold NaN, or are not of two
        classes; if ``K`` plus 1 on its diagonal (for latent values, ``K`` itself) is not positive
        definite; or if another argument is unknown.

    Notes
    -----
    A step of a sequence from ``k`` data points to ``k + 1`` costs of the order of ``k**2``
    operations for every particle.

    Examples
    --------
    >>> import numpy as np, pm_evidence as pe
    >>> x = np.linspace(-2, 2, 12)
    >>> target = pe.gp.GPClassification(x, x**2 > 1, length_scale=0.8, amplitude=2.0)
    >>> found = target.expectation_propagation()
    >>> found.converged
    True
    """

    inputs: Any
    labels: Any
    length_scale: float = field(default=1.0, kw_only=True)
    amplitude: float = field(default=1.0, kw_only=True)
    covariance: Any = field(default="squared_exponential", kw_only=True)
    representation: str = field(default="sequence", kw_only=True)
    order: Any = field(default="informative", kw_only=True)
    order_seed: int = field(default=0, kw_only=True)
    reference: str = field(default="prior", kw_only=True)
    jitter: float = field(default=0.0, kw_only=True)
    signs: NDArray[np.int8] = field(init=False)
    classes: NDArray[Any] = field(init=False)
    prior_covariance: Floats = field(init=False)

    def __post_init__(self) -> None:
        check_choice("representation", self.representation, REPRESENTATIONS)
        check_choice("reference", self.reference, REFERENCES)
        check_count("order_seed", self.order_seed, 0)
        signs, classes = checked_signs(self.labels)
        matrix = checked_covariance(
            self.inputs, self.covariance, self.length_scale, self.amplitude, len(signs)
        )
        if check_finite("jitter", self.jitter, 0.0) < 0.0:
            raise ValueError(
                f"jitter must not be negative, got {self.jitter}; leave it out, or name one."
            )
        matrix[np.diag_indices(len(signs))] += self.jitter
        order = checked_order("order", self.order, len(signs), "data points", ORDERS)
        made = {"signs": signs, "classes": classes, "prior_covariance": matrix, "order": order}
        for name, value in made.items():
            object.__setattr__(self, name, value)
        _ = self.whitening if self.representation == "sequence" else self.factor

    def __repr__(self) -> str:
        return f"GPClassification({self.n_dim} points, representation={self.representation!r})"

    @property
    def n_dim(self) -> int:  # type: ignore[override]
        """Number of data points."""
        return len(self.signs)

    @property
    def method(self) -> str:  # type: ignore[override]
        """Method that ``method="auto"`` stands for."""
        return REPRESENTATIONS[self.representation]

    @property
    def variables(self) -> tuple[str, ...]:  # type: ignore[override]
        """Name of what is annealed: ``z`` of a sequence, ``x`` of latent values."""
        return ("z",) if self.representation == "sequence" else ("x",)

    @property
    def noisy_covariance(self) -> Floats:
        """Prior covariance of the values whose signs are the labels, shape ``(n, n)``."""
        return self.prior_covariance + np.eye(self.n_dim)

    @cached_property
    def points(self) -> NDArray[np.int64]:
        """The data points in the order in which a sequence adds them, shape ``(n,)``."""
        informative = partial(greedy_order, self.noisy_covariance)
        return order_of(self.order, self.n_dim, self.order_seed, informative=informative)

    @cached_property
    def whitening(self) -> Floats:
        """Inverse lower Cholesky factor of `noisy_covariance` in the order of `points`.

        Its leading ``k`` rows and columns are those of the first ``k`` points alone, so that all
        conditional distributions of later points given earlier ones can be read from its rows.
        """
        factor = factor_of(
            self.noisy_covariance[np.ix_(self.points, self.points)],
            "covariance with 1 added to its diagonal",
            "pass a covariance without negative eigenvalues, or name a jitter",
        )
        return np.tril(np.linalg.solve(factor, np.eye(len(factor))))

    @cached_property
    def factor(self) -> Floats:
        """Lower Cholesky factor of the prior covariance ``K``, shape ``(n, n)``."""
        return factor_of(
            self.prior_covariance,
            "covariance",
            "pass jitter=1e-6 times its diagonal, which changes the model, or representation="
            "'sequence', which needs no factor of it",
        )

    @cached_property
    def _propagated(self) -> ExpectationPropagation:
        return expectation_propagation(self.prior_covariance, self.signs)

    @cached_property
    def gaussians(self) -> dict[float, GaussianApproximation]:
        """Gaussians near the prior times powers of the likelihood, by the power."""
        found = self.expectation_propagation()
        if not found.converged:
            raise NumericalError(
                "expectation propagation must converge for representation='latent', got no fixed "
                f"point in {found.n_sweeps} sweeps; use representation='sequence', which does not "
                "need it."
            )
        return tempered_gaussians(
            self.prior_covariance, self.factor, self.signs, found, self.reference == "prior"
        )

    def near_posterior(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` draws of latent values from the approximation to their posterior."""
        near = self.gaussians[1.0]
        draws: Floats = near.mean + rng.standard_normal((n, self.n_dim)) @ near.root.T
        return draws

    def expectation_propagation(self) -> ExpectationPropagation:
        """Return the Gaussian approximation to the posterior of ``x``, and its log evidence.

        Returns
        -------
        ExpectationPropagation
            With ``mean``, ``covariance``, ``log_evidence``, its second-order correction
            ``second_order``, and ``converged``. It is not exact, and has no error estimate.
        """
        return self._propagated

    def annealing_setup(self, kernel: str | Kernel) -> AnnealingSetup:
        """Return path, kernel and number of stages.

        Raises
        ------
        ValueError
            If the kernel does not suit the representation.
        """
        what = f"representation={self.representation!r}"
        if self.representation == "sequence":
            moves = chosen_kernel(kernel, {"slice_gibbs": SliceGibbs}, what)
            path = DataPointPath(self)
            return AnnealingSetup(path, Grows(moves), n_stages=self.n_dim, stepwise=True)
        chosen = chosen_kernel(kernel, _KERNELS, what)
        _ = self.gaussians  # before several threads ask for it
        # a pilot finds the schedule: from the prior, the first steps are millions of times smaller
        # than the last ones
        return AnnealingSetup(
            LatentPath(self), chosen, n_pilot=_PILOT, n_paths=_PATHS, starts=self.near_posterior
        )

    def check(self, draws: NDArray[Any], name: str = "draws") -> Floats:
        """Return values, shape ``(n, n_points)``, after checking them.

        Raises
        ------
        ValueError
            If they are not finite numbers of this shape, or the signs of noisy values are not
            those of the labels.
        """
        points = super().check(float_array(name, draws), name)
        if self.representation == "sequence" and (np.sign(points) != self.signs).any():
            row, column = (int(k) for k in np.argwhere(np.sign(points) != self.signs)[0])
            raise ValueError(
                f"{name} must have the signs of the labels, got {name}[{row}, {column}]="
                f"{points[row, column]:.3g} for the label {self.signs[column]:+d}; pass values of "
                "this target."
            )
        return points

    def posterior(self, draws: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the values by name, each of shape ``(n, n_points)``."""
        return {self.variables[0]: draws}

    def observed_data(self) -> dict[str, NDArray[Any]]:
        """Return the labels as -1 and +1."""
        return {"y": self.signs}

    def constant_data(self) -> dict[str, NDArray[Any]]:
        """Return the prior covariance, and the order of a sequence."""
        data: dict[str, NDArray[Any]] = {"covariance": self.prior_covariance}
        return data | ({"order": self.points} if self.representation == "sequence" else {})

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the numbers of the data points, and the names of the dimensions."""
        dims = {self.variables[0]: ["point"], "y": ["point"], "covariance": ["point", "point_"]}
        if self.representation == "sequence":
            dims["order"] = ["step"]
        return {"point": np.arange(self.n_dim), "point_": np.arange(self.n_dim)}, dims
