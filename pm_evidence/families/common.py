"""What native families share: populations in rows, kernels, and what users choose by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count, check_flag, described, whole_array

MOST_SWEEPS = 1_000_000  # larger numbers are mistakes


class Rows:
    """The base of populations whose arrays have one row for each member."""

    # Fields that hold these arrays, tuples of them, or None where they have not been computed
    rows: ClassVar[tuple[str, ...]]

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        return self._with(lambda arrays: arrays[0][index], [self])

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``."""
        return self._with(np.concatenate, [self, *others])

    def _with(self, combine: Callable[[Any], Any], parts: Sequence[Self]) -> Self:
        made = {name: _each(combine, [getattr(part, name) for part in parts]) for name in self.rows}
        return replace(self, **made)  # type: ignore[type-var]


def _each(combine: Callable[[Any], Any], values: Sequence[Any]) -> Any:
    """Combine arrays, or those of tuples one by one; None if one of them is missing."""
    if any(value is None for value in values):
        return None
    if not isinstance(values[0], tuple):
        return combine(values)
    parts = [_each(combine, each) for each in zip(*values, strict=True)]
    return type(values[0])(*parts) if hasattr(values[0], "_fields") else tuple(parts)


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
