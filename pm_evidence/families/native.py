"""What a target that is no PyMC model says of itself."""

from typing import Any

from numpy.typing import NDArray

__all__ = ["NativeTarget"]


class NativeTarget:
    """Base of targets with kernels of their own; nothing is observed unless they say so."""

    n_dim: int
    log_prior_mass = 0.0

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
