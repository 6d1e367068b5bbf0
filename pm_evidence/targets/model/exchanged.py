"""Targets of a model that share compiled code and differ in arrays that this code reads."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

from numpy.typing import NDArray

from pm_evidence.targets.compile.densities import Density
from pm_evidence.targets.layout import FlatVariable
from pm_evidence.targets.model.target import PyMCTarget

__all__ = ["ExchangedTarget"]

_COMPILED = ("density", "differentiable", "_graphs")


class ExchangedTarget(PyMCTarget):
    """A model whose compiled densities read arrays that can be exchanged without compiling again.

    The graphs of a derived class hold ``_arrays`` as shared variables, one for each.
    """

    # not known, because the arrays are not those of the graphs
    is_log_concave = False

    @property
    def hyperparameters(self) -> tuple[FlatVariable, ...] | None:
        """Always None: not known, for the same reason."""
        return None

    _base: Self | None = None
    _arrays: Sequence[NDArray[Any]]

    @cached_property
    def density(self) -> Density:
        """Log prior and log likelihood, without gradients."""
        if self._base is None:
            return self._compiled(self.graphs(), None)
        return self._base.density.reading(self._exchanged())

    @cached_property
    def differentiable(self) -> Density | None:
        """Log prior and log likelihood with gradients; None if there is no gradient."""
        if self._base is None:
            found: Density | None = PyMCTarget.differentiable.func(self)  # type: ignore[attr-defined]
            return found
        compiled = self._base.differentiable
        return None if compiled is None else compiled.reading(self._exchanged())

    def _exchanged(self) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        assert self._base is not None
        return list(zip(self._base._arrays, self._arrays, strict=True))

    def _copy(self) -> Self:
        """Return a target with the code of this one, whose arrays are still to be exchanged."""
        copy = object.__new__(type(self))
        vars(copy).update({k: v for k, v in vars(self).items() if k not in _COMPILED})
        copy._base = self._base or self
        return copy
