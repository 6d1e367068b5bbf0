"""What native families share: targets, paths, kernels, and what users choose by name."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from pm_evidence.core.checks import (
    check_choice,
    check_count,
    check_flag,
    described,
    float_array,
    missing_members,
    whole_array,
)
from pm_evidence.core.contracts import AnnealingSetup, Kernel, MoveInfo, Path
from pm_evidence.targets.model.cache import target_of

MOST_SWEEPS = 1_000_000  # larger numbers are mistakes


class NativeTarget(ABC):
    """A target with a path and kernels of its own.

    Derive from it and define ``n_dim`` and `annealing_setup`. The other methods have defaults: a
    draw is a row of ``n_dim`` numbers, which the posterior holds as the variable ``x``.

    Attributes
    ----------
    n_dim : int
        Number of coordinates of a state.
    method : str
        Method that ``method="auto"`` stands for, such as ``"ais"`` or ``"smc"``. The default is
        ``"ais"``, because native kernels are so fast that resampling would take longer than the
        moves.
    growing_path : str, optional
        Name of the path that ``path="auto"`` stands for in resample-move; the usual path if left
        out.
    log_prior_mass : float
        Log of the mass of the reference within the constraints, in nats.
    variables : tuple of str
        Names of the variables of `posterior` that together are a state, in the order of its
        coordinates.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> isinstance(pe.mixtures.Gaussian(), pe.extending.NativeTarget)
    True
    """

    n_dim: int
    method: ClassVar[str] = "ais"
    log_prior_mass: float = 0.0
    variables: tuple[str, ...] = ("x",)
    _constants: ClassVar[tuple[str, ...]] = ()  # attributes that `constant_data` returns

    @abstractmethod
    def annealing_setup(self, kernel: str | Kernel) -> AnnealingSetup:
        """Return path, kernel and defaults for the user's ``kernel`` (``"auto"`` by default).

        Raises
        ------
        ValueError
            If the kernel does not suit the target.
        """

    def with_path(self, setup: AnnealingSetup, path: str | Path) -> AnnealingSetup:
        """Return the setup along the path that the user asks for.

        By default this is the path of `annealing_setup` for the names ``"auto"`` and
        ``"geometric"``, and otherwise a path object for this target.

        Raises
        ------
        ValueError
            If the target has no such path.
        TypeError
            If it is no path.
        """
        return along(setup, path, self, {"geometric": None})

    def check(self, draws: NDArray[Any], name: str = "draws") -> NDArray[Any]:
        """Return states given by the user as draws of shape ``(n, ...)``, after checking them.

        They have the form of the variable ``x`` of `posterior`; ``name`` is that of the argument.

        Raises
        ------
        ValueError
            If there are no states, or their shape or values are not those of states.
        """
        points = float_array(name, draws)
        if points.shape[1:] != (self.n_dim,) or not len(points) or not np.isfinite(points).all():
            raise ValueError(
                f"{name} must hold at least one row of {self.n_dim} finite numbers, got shape "
                f"{points.shape}; reshape them, and look for NaN."
            )
        return points

    def posterior(self, draws: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return variables by name, each of shape ``(n, ...)``, at draws of shape ``(n, ...)``."""
        return {"x": draws}

    def sample_stats(self, draws: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return facts about each draw by name, each of shape ``(n,)``."""
        return {}

    def observed_data(self) -> dict[str, NDArray[Any]]:
        """Return observed data by name."""
        return {}

    def constant_data(self) -> dict[str, NDArray[Any]]:
        """Return parameters of the target by name."""
        return {name: np.asarray(getattr(self, name)) for name in getattr(self, "_constants", ())}

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return coordinates, and the names of each variable's dimensions."""
        return {}, {}


def checked_path(path: Any, target: Any) -> Path:
    """Return a path object that a user passes for a target."""
    missing = missing_members(path, Path)
    if isinstance(path, type) or missing:
        some = not isinstance(path, type) and len(missing) < len(missing_members(None, Path))
        lacks = f" without {', '.join(missing)}" if some else ""
        raise TypeError(
            f"path must be a name or a path object, got {described(path)}{lacks}; leave it out for "
            "the usual path."
        )
    if getattr(path, "target", target) != target:
        raise ValueError(
            f"path must belong to the target that is annealed, {target!r}, got a path of "
            f"{path.target!r}; make it with this target."
        )
    checked: Path = path
    return checked


def along(
    setup: AnnealingSetup, path: str | Path, target: Any, named: Mapping[str, Any]
) -> AnnealingSetup:
    """Return the setup along a path by name (None is the usual one), or along a path object."""
    if not isinstance(path, str):
        return replace(setup, path=checked_path(path, target))
    check_choice("path", path, ("auto", *named))
    make = named.get(path)
    return setup if make is None else replace(setup, path=make(target))


def is_native(target: Any) -> bool:
    """Return whether an object is a target with its own path, and not a model."""
    return not isinstance(target, type) and callable(getattr(target, "annealing_setup", None))


def checked_native(target: Any) -> NativeTarget:
    """Return a target with its own path, after checking that nothing is missing."""
    missing = missing_members(target, NativeTarget)
    if missing:
        raise TypeError(
            f"target must have the attributes and methods of pe.extending.NativeTarget, got "
            f"{described(target)} without {', '.join(missing)}; derive its class from "
            "pe.extending.NativeTarget, and define what has no default there."
        )
    check_count("target.n_dim", target.n_dim, 1)
    check_choice("target.method", target.method, ("ais", "smc", "resample_move", "arm"))
    checked: NativeTarget = target
    return checked


class ModelTarget(NativeTarget):
    """A PyMC model that is annealed along the path of a derived class.

    Derive from it and define `annealing_setup`.

    Parameters
    ----------
    model : pymc.Model
        The model; it is compiled here.

    Attributes
    ----------
    compiled : object
        The compiled model: ``draw(n, seed)`` returns prior draws, and ``evaluate(x)`` returns the
        points ``x``, shape ``(n, n_dim)``, with their log densities. ``continuous`` and
        ``discrete`` are the positions of the continuous and discrete coordinates.
    """

    method: ClassVar[str] = "smc"

    def __init__(self, model: Any) -> None:
        self.compiled = target_of(model)
        self.n_dim = self.compiled.n_dim

    @property
    def log_prior_mass(self) -> float:  # type: ignore[override]
        """Log of the prior mass within the constraints, in nats."""
        return self.compiled.log_prior_mass

    def posterior(self, draws: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[Any]]:
        """Return free variables and deterministics by name, each of shape ``(n, ...)``."""
        return self.compiled.posterior(draws)

    def sample_stats(self, draws: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[Any]]:
        """Return ``lp``, the log posterior density up to the evidence, shape ``(n,)``."""
        return self.compiled.sample_stats(draws)

    def observed_data(self) -> dict[str, npt.NDArray[Any]]:
        """Return the observed data by name."""
        return self.compiled.observed_data()

    def constant_data(self) -> dict[str, npt.NDArray[Any]]:
        """Return ``pm.Data`` that are not observed, by name."""
        return self.compiled.constant_data()

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model's coordinates and the dimensions of its variables."""
        return self.compiled.coords_and_dims()


class LinearPath:
    """The base of paths whose log densities are linear in beta.

    For the populations that a kernel visited in ``m`` stages, inverse temperatures have shape
    ``(m, 1)``, and energies and log ratios have shape ``(m, n)``.
    """

    energy: Any  # function of a population and an inverse temperature: minus the slope, in nats

    def log_ratio(self, state: Any, start: Any, stop: Any) -> Any:
        """Return the change of the log density between two inverse temperatures."""
        return (start - stop) * self.energy(state, start)

    def weigh(self, visited: Any, start: Any, stop: Any) -> tuple[Any, Any]:
        """Return ``energy`` at ``start`` and ``log_ratio``, which costs less than two calls."""
        energy = self.energy(visited, start)
        return energy, (start - stop) * energy

    def order(self, state: Any) -> NDArray[np.int64]:
        """Return the order of the energies."""
        return np.argsort(self.energy(state, 1.0), kind="stable")


@dataclass(frozen=True)
class NativeKernel:
    """The base of kernels that satisfy detailed balance, or that opposite visits reverse."""

    def reversed(self) -> Self:
        """Return the kernel that visits the parts in the opposite order, if they have one."""
        if not hasattr(self, "backwards"):
            return self
        turned: Self = replace(self, **{"backwards": not self.backwards})
        return turned

    def settings(self) -> dict[str, float]:
        """Return the fields that are numbers."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        kinds = (int, float, np.number)
        return {
            k: float(v)
            for k, v in found.items()
            if isinstance(v, kinds) and v is not True and v is not False
        }


@dataclass(frozen=True)
class SweepKernel(NativeKernel):
    """The base of kernels that visit all parts of a state ``n_sweeps`` times."""

    n_sweeps: int = 1

    def __post_init__(self) -> None:
        check_count("n_sweeps", self.n_sweeps, 1, MOST_SWEEPS)
        check_flag("backwards", getattr(self, "backwards", False))


@dataclass(frozen=True)
class OrderedKernel(SweepKernel):
    """The base of kernels that visit the parts in an order, or in the opposite one."""

    backwards: bool = False


class Batched:
    """The base of kernels that move through many stages in one call of compiled code."""

    advance_many: Any  # see ``contracts.BatchedKernel``

    def advance(
        self, path: Any, state: Any, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Any, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        return self.once(path, state, np.array([beta]), streams)

    def once(self, path: Any, state: Any, beta: Any, streams: Any) -> tuple[Any, MoveInfo]:
        """Move through one stage, and leave the population that is given as it is."""
        batch = self.advance_many(path, state.copy(), beta, streams)
        return batch.state, MoveInfo(float(batch.acceptance[0]), batch.n_evaluations)


def chosen_kernel(kernel: Any, named: Mapping[str, Callable[..., Any]], what: str) -> Any:
    """Return the kernel that a user names or passes; the first one of a target is the default."""
    if isinstance(kernel, str):
        check_choice("kernel", kernel, ("auto", *named))
        return named[next(iter(named)) if kernel == "auto" else kernel]()
    kinds: Any = tuple(named.values())
    if not isinstance(kernel, kinds):
        raise ValueError(
            f"kernel must be one of auto, {', '.join(named)}, or such a kernel object, for {what}, "
            f"got {described(kernel)}; leave it out."
        )
    return kernel


def checked_order(name: str, order: Any, n: int, what: str, choices: Sequence[str]) -> Any:
    """Return the name of an order, or an order of ``n`` parts by their indices."""
    if isinstance(order, str):
        return check_choice(name, order, choices)
    found = whole_array(name, order)
    if found.shape != (n,) or not np.array_equal(np.sort(found), np.arange(n)):
        raise ValueError(
            f"{name} must name each of the {n} {what} once, by indices from 0 to {n - 1}, got "
            f"{described(order)}; pass a permutation, or {' or '.join(map(repr, choices))}."
        )
    return found


def order_of(
    order: Any, n: int, seed: int = 0, **named: Callable[[], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return the indices of ``n`` parts in an order by its name, or as they are given."""
    if not isinstance(order, str):
        return np.asarray(order, np.int64)
    if order == "random":
        return np.random.default_rng(seed).permutation(n)
    return np.arange(n) if order == "given" else named[order]()
