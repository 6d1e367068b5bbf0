"""Mixtures of normal distributions with conjugate priors, and checks of what users pass."""

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import (
    check_choice,
    check_count,
    check_finite,
    check_positive,
    float_array,
)
from pm_evidence.core.contracts import AnnealingSetup, Kernel, Path
from pm_evidence.families.common import checked_order, chosen_kernel
from pm_evidence.families.mixture.gibbs import MixtureGibbs, Prior
from pm_evidence.families.mixture.path import DataAnnealingPath
from pm_evidence.families.native import NativeTarget, along
from pm_evidence.kernels.growing import Grows

Floats = NDArray[np.float64]


_LARGEST = 1e50  # squares of data, and sums of them, are far from overflow
# Draws of the inverse gamma distribution overflow for smaller shapes.
_LEAST_ALPHA, _LEAST_CONCENTRATION, _LARGEST_SHAPE = 0.1, 1e-3, 1e8
_UNIT_SUM = 1e-6


def checked_data(y: Any) -> Floats:
    """Return data points as float64."""
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


def checked_draws(
    name: str, draws: Any, n_components: int, n_variances: int, n_points: int
) -> Floats:
    """Return parameters and components of points, shape ``(n, n_dim)``, as float64."""
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
    for rule, good in {
        "finite means": np.isfinite(mean),
        "finite variances above 0": (variance > 0.0) & np.isfinite(variance),
        "weights of at least 0": weight >= 0.0,
        "weights that sum to 1": np.abs(weight.sum(axis=1, keepdims=True) - 1.0) < _UNIT_SUM,
        f"components from 0 to {n_components - 1}": np.isin(component, np.arange(n_components)),
    }.items():
        if not good.all():
            row = int(np.argmin(good.all(axis=1)))
            raise ValueError(
                f"{name} must hold {rule}, got other values in row {row}; look for NaN, and for "
                "columns in another order."
            )
    return found


# Bounds of the parameters of the prior.
_BOUNDS = {
    "mean_sigma": (1.0 / _LARGEST, _LARGEST),
    "variance_alpha": (_LEAST_ALPHA, _LARGEST_SHAPE),
    "variance_beta": (1.0 / _LARGEST, _LARGEST),
    "weights_a": (_LEAST_CONCENTRATION, _LARGEST_SHAPE),
}
_MOST_COMPONENTS = 100  # their numbers are bytes
_MOST_SEED = 2**63
_PATHS = 256


@dataclass(frozen=True, eq=False, repr=False)
class GaussianMixture(NativeTarget):
    """A mixture of univariate normal distributions, annealed by adding data points one by one.

    The prior is ``mean_j ~ Normal(mean_mu, mean_sigma)``, ``variance_j ~
    InverseGamma(variance_alpha, variance_beta)`` and ``weights ~ Dirichlet(weights_a)``, all
    independent, with the parameters of ``pm.Normal``, ``pm.InverseGamma`` and ``pm.Dirichlet``.
    The log evidence is the log of the marginal density of the data. It counts all labellings of
    the components, so that nothing has to be added for label switching.

    Parameters
    ----------
    y : array_like, shape (n_points,)
        Data points.
    n_components : int
        Number of components, up to 100.
    mean_mu, mean_sigma : float
        Mean and standard deviation of the prior of the means.
    variance_alpha, variance_beta : float
        Shape and scale of the inverse gamma prior of the variances (not of standard deviations).
    weights_a : float
        Concentration of the symmetric Dirichlet prior of the weights.
    variances : {"unequal", "equal"}
        Whether every component has a variance of its own, or all share one.
    order : {"random", "given"} or array_like of int, shape (n_points,)
        Order in which points are added: shuffled, as they are given, or by their indices. The log
        evidence does not depend on it, but its error does.
    order_seed : int
        Seed of the random order.

    Raises
    ------
    ValueError
        If data are not finite numbers in one row, a parameter of the prior is out of range, or the
        order does not name every point once.

    Notes
    -----
    Habeck (2017), section 6.4: the density after ``n`` stages is that of the first ``n`` points,
    so that the number of stages is the number of points. Forward paths add a point and draw the
    components of the points and the parameters in turn (Gibbs sampling); reverse paths
    (``method="ais"``) remove the points in the opposite order. Unlike in the paper, means and
    weights are integrated out of the weight of a new point; see `DataAnnealingPath`. With the usual
    method, resample-move, the error is smaller than that of independent paths.

    Examples
    --------
    >>> import numpy as np, pm_evidence as pe
    >>> y = np.array([-2.1, -1.9, -1.6, 1.5, 1.8, 2.3])
    >>> target = pe.mixtures.GaussianMixture(
    ...     y, 2, mean_mu=0, mean_sigma=3, variance_alpha=2, variance_beta=0.5
    ... )
    >>> dt = pe.sample_evidence(target, random_seed=1, progressbar=False)
    >>> pe.log_evidence(dt).status
    'ok'
    """

    y: ArrayLike
    n_components: int
    _: KW_ONLY
    mean_mu: float
    mean_sigma: float
    variance_alpha: float
    variance_beta: float
    weights_a: float = 1.0
    variances: str = "unequal"
    order: str | ArrayLike = "random"
    order_seed: int = 0
    method = "resample_move"
    variables = ("mean", "variance", "weight", "component")

    def __post_init__(self) -> None:
        object.__setattr__(self, "y", checked_data(self.y))
        check_count("n_components", self.n_components, 1, _MOST_COMPONENTS)
        object.__setattr__(self, "mean_mu", check_finite("mean_mu", self.mean_mu, 0.0))
        if abs(self.mean_mu) > _LARGEST:
            raise ValueError(
                f"mean_mu must be at most {_LARGEST:g} in size, got {self.mean_mu:g}; choose other "
                "units."
            )
        for name, (least, most) in _BOUNDS.items():
            number = check_positive(name, getattr(self, name))
            if not least <= number <= most:
                raise ValueError(
                    f"{name} must be from {least:g} to {most:g}, got {number:g}; choose another "
                    "prior, or other units."
                )
            object.__setattr__(self, name, number)
        check_choice("variances", self.variances, ("unequal", "equal"))
        order = checked_order("order", self.order, self.n_points, "points", ("random", "given"))
        object.__setattr__(self, "order", order)
        check_count("order_seed", self.order_seed, 0, _MOST_SEED)

    def __repr__(self) -> str:
        return f"GaussianMixture({self.n_points} points, {self.n_components} components)"

    @property
    def n_points(self) -> int:
        """Number of data points."""
        return len(np.asarray(self.y))

    @property
    def n_variances(self) -> int:
        """Number of variances: one for each component, or one in all."""
        return 1 if self.variances == "equal" else self.n_components

    @property
    def n_dim(self) -> int:  # type: ignore[override]
        """Number of means, variances and weights, and of components of points."""
        return 2 * self.n_components + self.n_variances + self.n_points

    @cached_property
    def point_order(self) -> NDArray[np.int64]:
        """Indices of the points in the order in which they are added."""
        if not isinstance(self.order, str):
            return np.asarray(self.order, np.int64)
        if self.order == "given":
            return np.arange(self.n_points)
        return np.random.default_rng(self.order_seed).permutation(self.n_points)

    @property
    def prior(self) -> Prior:
        """The prior, as compiled code reads it."""
        return Prior(
            self.mean_mu,
            self.mean_sigma**-2,
            self.variance_alpha,
            self.variance_beta,
            self.weights_a,
        )

    def annealing_setup(self, kernel: str | Kernel) -> AnnealingSetup:
        """Return the path along which points are added, and Gibbs sampling.

        Raises
        ------
        ValueError
            If another kernel is requested.
        """
        moves = chosen_kernel(kernel, {"gibbs": MixtureGibbs}, "a mixture")
        grows: Any = Grows(moves)  # its reversal is of another class
        return AnnealingSetup(
            DataAnnealingPath(self), grows, n_stages=self.n_points, n_paths=_PATHS, stepwise=True
        )

    def with_path(self, setup: AnnealingSetup, path: str | Path) -> AnnealingSetup:
        """Return the setup along a path: ``"auto"`` or ``"data"``, or a path object."""
        return along(setup, path, self, {"data": None})

    def check(self, draws: NDArray[Any], name: str = "draws") -> Floats:
        """Return draws, shape ``(n, n_dim)``; see ``checks.checked_draws``."""
        return checked_draws(name, draws, self.n_components, self.n_variances, self.n_points)

    def posterior(self, draws: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return means, variances, weights, and the component of each point.

        Their shapes are ``(n, n_components)``, ``(n, n_variances)``, ``(n, n_components)`` and
        ``(n, n_points)``.
        """
        ends = np.cumsum([self.n_components, self.n_variances, self.n_components])
        parts = dict(zip(self.variables, np.split(draws, ends, axis=1), strict=True))
        return parts | {"component": parts["component"].astype(np.int64)}

    def observed_data(self) -> dict[str, NDArray[Any]]:
        """Return the data points ``y``."""
        return {"y": np.asarray(self.y)}

    def constant_data(self) -> dict[str, NDArray[Any]]:
        """Return the parameters of the prior."""
        return {name: np.array(getattr(self, name)) for name in ("mean_mu", *_BOUNDS)}

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the numbers of the components and of the points, and names of dimensions."""
        coords = {"part": np.arange(self.n_components), "point": np.arange(self.n_points)}
        shared = self.variances == "equal"
        dims = {"mean": ["part"], "weight": ["part"], "component": ["point"], "y": ["point"]}
        return coords, dims if shared else dims | {"variance": ["part"]}
