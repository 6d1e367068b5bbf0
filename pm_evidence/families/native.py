"""The base of targets that are no PyMC model."""

from typing import Any, ClassVar

from numpy.typing import NDArray

from pm_evidence.core.contracts import AnnealingSetup, Kernel

__all__ = ["NativeTarget"]


class NativeTarget:
    """A target with a path and kernels of its own.

    Derive from it, and give ``n_dim``, `annealing_setup`, `check` and `posterior`; the other
    methods have defaults that say nothing of the target.

    Attributes
    ----------
    n_dim : int
        Number of coordinates of a state.
    method : str
        What ``method="auto"`` stands for: ``"ais"``, as native kernels move independent chains
        faster than resampling keeps up with, or ``"smc"``.
    log_prior_mass : float
        Log of the mass of the reference inside of constraints, in nats.
    """

    n_dim: int
    method: ClassVar[str] = "ais"
    log_prior_mass: float = 0.0

    def annealing_setup(self, kernel: str | Kernel) -> AnnealingSetup:
        """Return path, kernel and defaults, given the user's ``kernel`` (``"auto"`` by default).

        Raises
        ------
        ValueError
            If the kernel does not suit the target.
        """
        raise NotImplementedError

    def check(self, draws: NDArray[Any], name: str = "draws") -> NDArray[Any]:
        """Return states that a user gives as ``name``, as draws of shape ``(n, ...)``.

        Raises
        ------
        ValueError
            If there is none, or they have another shape or values that no state has.
        """
        raise NotImplementedError

    def posterior(self, draws: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return variables by name, each of shape ``(n, ...)``, at draws of shape ``(n, ...)``."""
        raise NotImplementedError

    def sample_stats(self, draws: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return facts about each draw by name, each of shape ``(n,)``."""
        return {}

    def observed_data(self) -> dict[str, NDArray[Any]]:
        """Return observed data by name."""
        return {}

    def constant_data(self) -> dict[str, NDArray[Any]]:
        """Return parameters of the target by name."""
        return {}

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return coordinates, and the names of each variable's dimensions."""
        return {}, {}
