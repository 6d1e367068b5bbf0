"""A Gaussian reference that is annealed to a Gaussian target, where all results are exact."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import (
    check_finite,
    check_positive,
    described,
    float_array,
    real_number,
)
from pm_evidence.core.contracts import AnnealingSetup, Kernel, MoveInfo, Path
from pm_evidence.core.random import fill_normal, normals, streams
from pm_evidence.families.native import NativeKernel, NativeTarget, along, chosen_kernel
from pm_evidence.targets.layout import Points

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MovingGaussian:
    """``log f_beta(x) = -(x - mean(beta))**2 / (2 sd(beta)**2)``, where both are linear in beta."""

    target: Any  # defines the Gaussians at both ends

    def moments(self, beta: float) -> tuple[float, float, float, float]:
        """Return mean and standard deviation at an inverse temperature, and their derivatives."""
        ends = self.target
        slopes = ends.mean - ends.start_mean, ends.sd - ends.start_sd
        return ends.mean_at(beta), ends.sd_at(beta), *slopes

    def draw(self, n: int, seed: np.random.SeedSequence) -> Points:
        """Return ``n`` independent draws from the reference."""
        x = np.empty(n)
        fill_normal(streams(seed, 1)[0], x)
        mean, sd, _, _ = self.moments(0.0)
        return Points(mean + sd * x[:, None])

    def at(self, draws: Floats) -> Points:
        """Return the population at some points, shape ``(n, 1)``."""
        return Points(np.array(draws, dtype=float))

    def log_ratio(self, state: Points, start: float, stop: float) -> Floats:
        """Return the change of the log density between two inverse temperatures."""
        return self._log_density(state, stop) - self._log_density(state, start)

    def energy(self, state: Points, beta: float) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        mean, sd, mean_slope, sd_slope = self.moments(beta)
        residual = state.x[:, 0] - mean
        energy: Floats = -residual * (mean_slope + residual * sd_slope / sd) / sd**2
        return energy

    def _log_density(self, state: Points, beta: float) -> Floats:
        mean, sd, _, _ = self.moments(beta)
        log_density: Floats = -0.5 * ((state.x[:, 0] - mean) / sd) ** 2
        return log_density

    def order(self, state: Points) -> NDArray[np.int64]:
        """Return the order of the points on the line."""
        return np.argsort(state.x[:, 0])


@dataclass(frozen=True, slots=True)
class GeometricGaussian(MovingGaussian):
    """Gaussians whose log densities are linear in beta."""

    def moments(self, beta: float) -> tuple[float, float, float, float]:
        """Return mean and standard deviation at an inverse temperature, and their derivatives."""
        ends = self.target
        first, last = ends.start_sd**-2, ends.sd**-2
        start, stop = first * ends.start_mean, last * ends.mean
        # precision, and precision times mean, are linear in beta
        slope, product_slope = last - first, stop - start
        precision, product = first + beta * slope, start + beta * product_slope
        mean_slope = (product_slope - product / precision * slope) / precision
        sd = float(precision**-0.5)
        return product / precision, sd, mean_slope, -0.5 * slope * precision**-1.5

    def energy(self, state: Points, beta: float) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        # the density at beta is not that of `MovingGaussian`, but a constant times it
        energy: Floats = self._log_density(state, 0.0) - self._log_density(state, 1.0)
        return energy

    def log_ratio(self, state: Points, start: float, stop: float) -> Floats:
        """Return the change of the log density between two inverse temperatures."""
        ratio: Floats = (start - stop) * self.energy(state, start)
        return ratio


@dataclass(frozen=True, slots=True)
class MomentAveragedGaussian(MovingGaussian):
    """Gaussians whose first and second moments are linear in beta.

    Grosse, Maddison and Salakhutdinov (2013). Between distant ends they are wide, so that they
    overlap with both.
    """

    def moments(self, beta: float) -> tuple[float, float, float, float]:
        """Return mean and standard deviation at an inverse temperature, and their derivatives."""
        ends = self.target
        first, last, shift = ends.start_sd**2, ends.sd**2, ends.mean - ends.start_mean
        variance = first + beta * (last - first) + beta * (1.0 - beta) * shift**2
        slope = last - first + (1.0 - 2.0 * beta) * shift**2
        return ends.mean_at(beta), float(variance**0.5), shift, 0.5 * slope * variance**-0.5


@dataclass(frozen=True)
class Autoregression(NativeKernel):
    """``x -> mean + tau (x - mean) + sqrt(1 - tau**2) sd noise``, which satisfies detailed balance.

    Habeck (2017), section 4. The path defines mean and standard deviation, the target ``tau``.
    """

    def advance(
        self, path: Any, state: Points, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Points, MoveInfo]:
        """Move every member once; see ``contracts.Kernel``."""
        tau, (mean, sd) = path.target.tau_at(beta), path.moments(beta)[:2]
        noise = normals(streams, 1)
        x = mean + tau * (state.x - mean) + np.sqrt(1.0 - tau**2) * sd * noise
        return Points(x), MoveInfo(1.0, len(state))


_PATHS = {"geometric": GeometricGaussian, "moment_average": MomentAveragedGaussian}
_LARGEST = 1e100  # its square is far from overflow


@dataclass(frozen=True)
class Gaussian(NativeTarget):
    """A Gaussian reference that moves and narrows to a Gaussian target (Habeck 2017, section 4).

    Mean and standard deviation are linear functions of ``beta``. Two other paths are arguments of
    `sample_evidence`: with ``path="geometric"`` the log density is linear in ``beta`` instead, and
    with ``path="moment_average"`` the first two moments are. The kernel is an autoregression that
    leaves each intermediate Gaussian invariant.

    Parameters
    ----------
    start_mean, start_sd : float
        Mean and standard deviation of the reference.
    mean, sd : float
        Mean and standard deviation of the target.
    tau : float or tuple of two floats
        Correlation of a state with the one before: with 0 states are independent, and near 1 they
        hardly move. Two values are those at the reference and at the target, and are interpolated
        linearly.

    Notes
    -----
    Unnormalised densities are ``exp(-(x - mean)**2 / (2 * sd**2))``, so log Z is
    ``log(sd / start_sd)``: -log 10 by default.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> target = pe.mixtures.Gaussian(tau=0.5)
    >>> dt = pe.sample_evidence(target, random_seed=1, progressbar=False)
    >>> abs(pe.log_evidence(dt).value - target.log_evidence) < 0.1
    True
    """

    start_mean: float = 20.0
    start_sd: float = 10.0
    mean: float = 0.0
    sd: float = 1.0
    tau: float | tuple[float, float] = 0.5
    n_dim = 1

    def __post_init__(self) -> None:
        for name in ("start_mean", "mean"):
            check_finite(name, getattr(self, name), 0.0)
        for name in ("start_sd", "sd"):
            check_positive(name, getattr(self, name))
        for name in ("start_mean", "mean", "start_sd", "sd"):
            value = abs(float(getattr(self, name)))
            if value > _LARGEST or (name.endswith("sd") and value < 1.0 / _LARGEST):
                raise ValueError(
                    f"{name} must have a square that a float can hold, from {1.0 / _LARGEST:g} to "
                    f"{_LARGEST:g} in size, got {value:g}; choose other units."
                )
        ends = self.tau if isinstance(self.tau, tuple) else (self.tau, self.tau)
        numbers = [real_number(end) for end in ends]
        if len(ends) != 2 or not all(end is not None and 0.0 <= end < 1.0 for end in numbers):
            raise ValueError(
                f"tau must be a number from 0 to below 1, or two of them, got "
                f"{described(self.tau)}; try 0.5."
            )

    @property
    def log_evidence(self) -> float:
        """Exact log Z in nats."""
        return float(np.log(self.sd / self.start_sd))

    def mean_at(self, beta: float) -> float:
        """Return the mean at an inverse temperature."""
        return self.start_mean + beta * (self.mean - self.start_mean)

    def sd_at(self, beta: float) -> float:
        """Return the standard deviation at an inverse temperature."""
        return self.start_sd + beta * (self.sd - self.start_sd)

    def tau_at(self, beta: float) -> float:
        """Return the kernel's correlation at an inverse temperature."""
        ends = np.broadcast_to(np.asarray(self.tau, dtype=float), 2)
        return float(ends[0] + beta * (ends[1] - ends[0]))

    def annealing_setup(self, kernel: str | Kernel) -> AnnealingSetup:
        """Return the path of Gaussians and its exact kernel.

        Raises
        ------
        ValueError
            If another kernel is requested.
        """
        chosen = chosen_kernel(kernel, {"autoregression": Autoregression}, "a Gaussian")
        return AnnealingSetup(MovingGaussian(self), chosen)

    def with_path(self, setup: AnnealingSetup, path: str | Path) -> AnnealingSetup:
        """Return the setup along a path: ``"auto"``, ``"geometric"`` or ``"moment_average"``."""
        return along(setup, path, self, _PATHS)

    def check(self, draws: NDArray[Any], name: str = "draws") -> NDArray[Any]:
        """Return points, shape ``(n,)``, as draws, shape ``(n, 1)``."""
        points = float_array(name, draws)
        if points.ndim != 1 or not points.size or not np.isfinite(points).all():
            raise ValueError(
                f"{name} must be finite numbers in one row, got shape {points.shape}; look for NaN."
            )
        return points[:, None]

    def posterior(self, draws: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the variable ``x``, shape ``(n,)``."""
        return {"x": draws[:, 0]}
