"""A Gaussian reference that is annealed to a Gaussian target, where all results are exact."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import (
    check_choice,
    check_finite,
    check_positive,
    described,
    float_array,
    real_number,
)
from pm_evidence.core.contracts import AnnealingSetup, Kernel, Path
from pm_evidence.families.gaussian.kernel import Autoregression
from pm_evidence.families.gaussian.path import (
    GeometricGaussian,
    MomentAveragedGaussian,
    MovingGaussian,
)
from pm_evidence.families.native import NativeTarget, checked_path

__all__ = ["Gaussian"]

Floats = NDArray[np.float64]
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
    >>> target = pe.Gaussian(tau=0.5)
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
        known = isinstance(kernel, Autoregression) or (isinstance(kernel, str) and kernel == "auto")
        if not known:
            raise ValueError(
                f"kernel must be 'auto' for a Gaussian, got {described(kernel)}; set its tau."
            )
        return AnnealingSetup(MovingGaussian(self), Autoregression())

    def with_path(self, setup: AnnealingSetup, path: str | Path) -> AnnealingSetup:
        """Return the setup along a path: ``"auto"``, ``"geometric"`` or ``"moment_average"``."""
        if isinstance(path, str):
            check_choice("path", path, ("auto", *_PATHS))
            return setup if path == "auto" else replace(setup, path=_PATHS[path](self))
        return replace(setup, path=checked_path(path, self))

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
