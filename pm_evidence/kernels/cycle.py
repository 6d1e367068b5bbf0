"""Kernels made of others: in turn, or where states and data grow; and the default of a target."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, described
from pm_evidence.core.contracts import Kernel, MoveInfo, Tunable, UsesCurvature
from pm_evidence.kernels.discrete import MAX_GIBBS_SUPPORT, DiscreteGibbs, IntegerWalk
from pm_evidence.kernels.hmc import HMC
from pm_evidence.kernels.random_walk import RandomWalk
from pm_evidence.kernels.suitability import check_moves, checked_kernel, moved_by
from pm_evidence.paths.data_points import DataPointsPath, Placed


@dataclass(frozen=True)
class Cycle:
    """Kernels applied in turn; the reversal applies their reversals in the opposite order.

    Parameters
    ----------
    parts : tuple of Kernel
        The kernels, in the order of their application; a part may itself be a cycle.

    Raises
    ------
    ValueError
        If there is no part, or a part is not a kernel object.
    """

    parts: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.parts, tuple | list) or not self.parts:
            raise ValueError(
                f"parts must be a tuple of at least one kernel, got {described(self.parts)}; pass "
                "for example (pe.kernels.HMC(),)."
            )
        parts = (checked_kernel(f"parts[{i}]", part) for i, part in enumerate(self.parts))
        object.__setattr__(self, "parts", tuple(parts))

    def check(self, target: Any) -> NDArray[np.int64]:
        """Return the coordinates that it moves; a part without a method ``check`` moves all.

        Raises
        ------
        ValueError
            If a part does not fit the target.
        """
        everything = np.arange(target.n_dim)
        checks = [getattr(part, "check", None) for part in self.parts]
        moved = [check(target) if callable(check) else everything for check in checks]
        return np.unique(np.concatenate(moved))

    def advance(
        self, path: Any, state: Any, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Any, MoveInfo]:
        """Apply every part once; see ``contracts.Kernel``."""
        infos = []
        for part in self.parts:
            state, info = part.advance(path, state, beta, streams)
            infos.append(info)
        total = MoveInfo(
            acceptance=float(np.mean([info.acceptance for info in infos])),
            n_evaluations=sum(info.n_evaluations for info in infos),
            n_nan=sum(info.n_nan for info in infos),
            parts=tuple(infos),
        )
        return state, total

    def learn(self, path: Any, state: Any) -> Self:
        """Return the cycle with every part learnt from a population."""
        return self._tuned(lambda part: part.learn(path, state))

    def with_curvature(self, path: Any, state: Any, beta: float) -> tuple[Self, int]:
        """Return the cycle whose parts use the curvature where they can; see `UsesCurvature`."""
        found = [
            part.with_curvature(path, state, beta) if isinstance(part, UsesCurvature) else (part, 0)
            for part in self.parts
        ]
        return type(self)(tuple(part for part, _ in found)), sum(spent for _, spent in found)

    def adjust(self, info: MoveInfo) -> Self:
        """Return the cycle with every part adjusted by its own report."""
        pairs = zip(self.parts, info.parts, strict=True)
        return type(self)(
            tuple(part.adjust(own) if isinstance(part, Tunable) else part for part, own in pairs)
        )

    def without_exploration(self) -> Self:
        """Return the cycle of the frozen parts."""
        return self._tuned(lambda part: part.without_exploration())

    def _tuned(self, change: Callable[[Tunable], Any]) -> Self:
        parts = (change(part) if isinstance(part, Tunable) else part for part in self.parts)
        return type(self)(tuple(parts))

    def reversed(self) -> Self:
        """Return the reversed parts in the opposite order."""
        return type(self)(tuple(part.reversed() for part in self.parts[::-1]))

    def settings(self) -> dict[str, float]:
        """Return the settings of all parts."""
        return {key: value for part in self.parts for key, value in part.settings().items()}


KERNELS = ("auto", "hmc", "random_walk")


def choose_kernel(target: Any, kernel: str | Kernel = "auto") -> Kernel:
    """Return a kernel that moves all coordinates of a target."""
    if not isinstance(kernel, str):
        kernel = checked_kernel("kernel", kernel, KERNELS)
        if not isinstance(kernel, HMC | RandomWalk) and not _completed(kernel, target):
            check_moves(kernel, target)
            return kernel
    else:
        check_choice("kernel", kernel, KERNELS)
    wants_gradient = isinstance(kernel, HMC) or kernel == "hmc"
    if wants_gradient and target.differentiable is None:
        raise ValueError(
            "kernel='hmc' needs a gradient, and this model has none; use kernel='random_walk'."
        )
    if not isinstance(kernel, str) and target.continuous.size:
        check_moves(kernel, target, all_of=target.continuous)
    parts: list[Kernel] = []
    if target.continuous.size:
        smooth = kernel != "random_walk" and target.differentiable is not None
        usual = HMC(exploring=True) if smooth else RandomWalk()
        parts.append(usual if isinstance(kernel, str) else kernel)
    small = target.upper - target.lower < MAX_GIBBS_SUPPORT
    if small.any():
        parts.append(
            DiscreteGibbs(target.discrete[small], target.lower[small], target.upper[small])
        )
    if not small.all():
        walked = target.discrete[~small]
        parts.append(IntegerWalk(walked, np.ones(len(walked))))
    return parts[0] if len(parts) == 1 else Cycle(tuple(parts))


def _completed(kernel: Kernel, target: Any) -> bool:
    """Return whether a kernel has to be completed by moves of the discrete coordinates.

    This is so if it moves exactly the continuous coordinates and there are others. A cycle is never
    completed: its parts have to move all coordinates.
    """
    if isinstance(kernel, Cycle):
        return False
    moved = moved_by(kernel, target)
    return bool(
        target.discrete.size
        and target.continuous.size
        and moved is not None
        and np.array_equal(np.sort(moved), target.continuous)
    )


@dataclass(frozen=True)
class Grows:
    """Extends states by one step where the density at ``beta`` needs it, then moves them.

    Parameters
    ----------
    moves : Kernel
        Moves states of a fixed step, and leaves the density of that step invariant.
    backwards : bool
        Whether it is the time reversal: moves states backwards, then leaves out what came last.
    """

    moves: Any
    backwards: bool = False

    def advance(
        self, path: Any, state: Any, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Any, MoveInfo]:
        """Extend every member if it is one step behind, and move it; see ``contracts.Kernel``."""
        if self.backwards:
            state, info = self.moves.reversed().advance(path, state, beta, streams)
            return path.shrunk(state), info
        state = path.reached(state, beta, streams)
        moved: tuple[Any, MoveInfo] = self.moves.advance(path, state, beta, streams)
        return moved

    def reversed(self) -> Self:
        """Return the time reversal."""
        return replace(self, backwards=not self.backwards)

    def settings(self) -> dict[str, float]:
        """Return the settings of the moves."""
        found: dict[str, float] = self.moves.settings()
        return found


@dataclass(frozen=True)
class OnDataPoints:
    """A kernel of a PyMC model, applied to the posterior of a part of the data."""

    kernel: Any  # the kernel for prior times likelihood

    def advance(
        self, path: DataPointsPath, state: Placed, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Placed, MoveInfo]:
        """Move every member once at ``beta``; see ``contracts.Kernel``."""
        new = path.cost_of_place(state, beta)
        state = path.placed(state, beta)
        particles, info = self.kernel.advance(path.at_place(beta), state.particles, 1.0, streams)
        return Placed(particles, beta), replace(info, n_evaluations=info.n_evaluations + new)

    def learn(self, path: DataPointsPath, state: Placed) -> Self:
        """Return the kernel with its shape learnt from a population."""
        place = path.at_place(state.beta)
        return self._tuned(lambda kernel: kernel.learn(place, state.particles))

    def adjust(self, info: MoveInfo) -> Self:
        """Return the kernel with its scales adapted to a report."""
        return self._tuned(lambda kernel: kernel.adjust(info))

    def without_exploration(self) -> Self:
        """Return the kernel as it is used after the pilot."""
        return self._tuned(lambda kernel: kernel.without_exploration())

    def _tuned(self, change: Callable[[Tunable], Any]) -> Self:
        is_tunable = isinstance(self.kernel, Tunable)
        return replace(self, kernel=change(self.kernel)) if is_tunable else self

    def reversed(self) -> Self:
        """Return the time reversal."""
        return replace(self, kernel=self.kernel.reversed())

    def settings(self) -> dict[str, float]:
        """Return the settings of the kernel."""
        found: dict[str, float] = self.kernel.settings()
        return found
