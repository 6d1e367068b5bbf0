"""Gaussian process classification."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count, float_array
from pm_evidence.core.contracts import AnnealingSetup, Kernel
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.families.gp_classification.checks import (
    checked_covariance,
    checked_jitter,
    checked_order,
    checked_signs,
    factor_of,
)
from pm_evidence.families.gp_classification.gaussians import Gaussian, tempered_gaussians
from pm_evidence.families.gp_classification.orders import order_of, whitening_of
from pm_evidence.families.gp_classification.propagation import (
    ExpectationPropagation,
    expectation_propagation,
)
from pm_evidence.families.gp_classification.setup import gp_setup
from pm_evidence.families.native import NativeTarget

__all__ = ["GPClassification"]

Floats = NDArray[np.float64]

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
    >>> target = pe.GPClassification(x, x**2 > 1, length_scale=0.8, amplitude=2.0)
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
        matrix[np.diag_indices(len(signs))] += checked_jitter(self.jitter)
        made = {
            "signs": signs,
            "classes": classes,
            "prior_covariance": matrix,
            "order": checked_order(self.order, len(signs)),
        }
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
        return order_of(self.order, self.order_seed, self.noisy_covariance)

    @cached_property
    def whitening(self) -> Floats:
        """Inverse Cholesky factor of `noisy_covariance` in the order of `points`."""
        return whitening_of(self.noisy_covariance, self.points)

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
    def gaussians(self) -> dict[float, Gaussian]:
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
            With ``mean``, ``covariance``, ``log_evidence`` and ``converged``. It is not exact, and
            has no error estimate.
        """
        return self._propagated

    def annealing_setup(self, kernel: str | Kernel) -> AnnealingSetup:
        """Return how the values are annealed; see ``setup.gp_setup``."""
        return gp_setup(self, kernel)

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
