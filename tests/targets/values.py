"""Targets for tests of values, which cost a part of what it takes to compile a target."""

from collections.abc import Callable
from functools import cached_property
from typing import Any
from unittest import mock

import numpy as np
import pymc as pm
from pytensor.compile.mode import Mode, get_mode

from pm_evidence.targets.model import prior
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.targets.model.vectorised import quietly, vectorised

__all__ = ["evaluated_in_python", "in_python", "without_gradients"]


def without_gradients(target: PyMCTarget) -> PyMCTarget:
    """Return the target, which then computes log densities by its function without gradients."""
    vars(target)["differentiable"] = None
    return target


def in_python(
    model: pm.Model,
    make: Callable[..., PyMCTarget] = PyMCTarget,
    *,
    rewritten: bool = False,
    **options: Any,
) -> PyMCTarget:
    """Return a target that is drawn and evaluated by PyTensor in Python: no machine code is made.

    Parameters
    ----------
    model : pymc.Model
        The model.
    make : callable
        Makes the target from the model and ``options``.
    rewritten : bool
        Evaluate the graphs that machine code is made of, one point after the other, instead of the
        plain ones. Rewrites may lose digits or gain them.

    Targets in other coordinates, which share compiled code with this one, are no such targets.
    """
    with mock.patch.object(prior._OneByOne, "compiled", property(lambda drawn: drawn.first)):
        target = make(model, **options)
    drawn = target._prior._one_by_one
    if drawn is not None:
        vars(drawn)["compiled"] = drawn.first
    return evaluated_in_python(target, rewritten=rewritten)


def evaluated_in_python(target: PyMCTarget, *, rewritten: bool = False) -> PyMCTarget:
    """Return the target, whose draws are left as they are; see ``in_python``."""
    vars(target)["density"] = _PythonDensity(target, rewritten)
    return without_gradients(target)


class _PythonDensity:
    """Log densities as a ``CompiledDensity`` has them."""

    has_gradient, slow_ops = False, ()

    def __init__(self, target: PyMCTarget, rewritten: bool) -> None:
        self._target, self._rewritten = target, rewritten

    @cached_property
    def _function(self) -> Callable[..., Any]:
        graphs = self._target.graphs()
        with quietly():
            together = None if self._rewritten else vectorised(graphs.parts, graphs.log_density)
        if together is not None:
            return lambda parts: together(*parts)
        mode = (
            Mode("py", get_mode("NUMBA").provided_optimizer) if self._rewritten else "FAST_COMPILE"
        )
        with quietly():
            one = pm.compile(graphs.parts, graphs.log_density, mode=mode, on_unused_input="ignore")
        return lambda parts: np.array([one(*row) for row in zip(*parts, strict=True)]).T

    def values(self, x: np.ndarray) -> np.ndarray:
        if not len(x):
            return np.empty((0, 2))
        variables = self._target.model.value_vars
        parts = zip(self._target.layout.split(x), variables, strict=True)
        with quietly():
            found = self._function([part.astype(value.dtype) for part, value in parts])
        return np.stack([np.broadcast_to(term, len(x)) for term in found], axis=1).astype(float)

    def write(self, x: np.ndarray, log_density: np.ndarray) -> None:
        log_density[:] = self.values(x)
