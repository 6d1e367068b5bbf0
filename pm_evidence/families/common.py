"""What native families share: populations in rows, kernels, and what users choose by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from pm_evidence.core.checks import check_choice, check_count, check_flag, described, whole_array

MOST_SWEEPS = 1_000_000  # larger numbers are mistakes


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
