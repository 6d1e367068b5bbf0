"""Compilation of the joint density of data and effects for importance sampling."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.utils import CheckParameterValue
from pytensor.gradient import NullTypeGradError, jacobian
from pytensor.graph.basic import Variable
from pytensor.tensor.basic import MakeVector, ScalarFromTensor
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import All

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.calls import CompiledCall, compile_call
from pm_evidence.targets.compile.parameters_only import split_parameters_only
from pm_evidence.targets.compile.precision import in_double_precision
from pm_evidence.targets.compile.rewrite import rewrite
from pm_evidence.targets.model.gamma_ratios import with_gamma_ratios

__all__ = ["GroupDensity", "compile_groups"]

# Up to this dimension the rows of the Hessian are separate graphs, which PyTensor optimises best.
_MOST_ROWS = 3


@dataclass(frozen=True)
class GroupDensity:
    """Joint log densities of data and effects, of all groups, in machine code.

    Parameters
    ----------
    parameters : CompiledCall
        Maps the flat vector to the parameters of the other functions, and to the starting point of
        Newton's method.
    derivatives : CompiledCall
        Maps effects and parameters to log densities, gradients and Hessians.
    values : CompiledCall
        Maps effects and parameters to log densities.
    n_parameters, n_groups, n_effect_dim : int
        Sizes.
    """

    parameters: CompiledCall
    derivatives: CompiledCall
    values: CompiledCall
    n_parameters: int
    n_groups: int
    n_effect_dim: int

    @property
    def addresses(self) -> NDArray[np.int64]:
        """Addresses of the three functions."""
        return np.array([call.address for call in self._calls])

    def frames(self) -> tuple[NDArray[np.int64], ...]:
        """Return frames for the three functions."""
        return tuple(call.frame() for call in self._calls)

    @property
    def _calls(self) -> tuple[CompiledCall, ...]:
        return self.parameters, self.derivatives, self.values

    @property
    def slow_ops(self) -> tuple[str, ...]:
        """Operations that run in Python."""
        return tuple(sorted({name for call in self._calls for name in call.slow_ops}))


def compile_groups(
    x: Variable,
    z: Variable,
    log_prior: Variable,
    log_likelihood: Variable,
    start: Variable,
) -> GroupDensity:
    """Compile the densities of groups as functions of parameters and effects.

    Parameters
    ----------
    x : TensorVariable, shape (n_dim,)
        Flat vector of the free variables.
    z : TensorVariable, shape (n_groups, n_effect_dim)
        Effects, on the unconstrained scale.
    log_prior, log_likelihood : TensorVariable, shape (n_groups,)
        Log density of each group's effect, and of its data given the effect, in nats.
    start : TensorVariable, shape (n_groups, n_effect_dim)
        Starting point of Newton's method.

    Raises
    ------
    ModelError
        If the densities have no second derivatives.
    """
    n_groups, n_dim = z.type.shape
    joint, parameters, precomputed = _split(log_prior + log_likelihood, z)
    (start,) = in_double_precision([start])
    gradient, hessian = _derivatives(joint, z)
    return GroupDensity(
        compile_call([x], [precomputed, pt.specify_shape(start, (n_groups, n_dim))]),
        compile_call([z, parameters], [joint, gradient, hessian]),
        compile_call([z, parameters], [joint]),
        parameters.type.shape[0],
        n_groups,
        n_dim,
    )


def _split(joint: Variable, z: Variable) -> tuple[Variable, Variable, Variable]:
    joint = in_double_precision(with_gamma_ratios(_check_each([joint], z)))
    (joint,), parameters, precomputed = split_parameters_only(joint, [z])
    precomputed = pt.specify_shape(precomputed, parameters.type.shape)
    return pt.specify_shape(joint, (z.type.shape[0],)), parameters, precomputed


def _derivatives(joint: Variable, z: Variable) -> tuple[Variable, Variable]:
    """Return gradients ``(n_groups, n_dim)`` and Hessians ``(n_dim, n_groups, n_dim)``.

    A group depends only on its own effect, so derivatives of sums over groups are those of groups.
    """
    n_groups, n_dim = z.type.shape
    try:
        smooth = pm.pytensorf.rewrite_pregrad(joint.sum())
        gradient = pt.grad(smooth, z, disconnected_inputs="ignore")
        columns = gradient.sum(axis=0)
        if n_dim <= _MOST_ROWS:
            rows = [pt.grad(columns[k], z, disconnected_inputs="ignore") for k in range(n_dim)]
            hessian = pt.stack(rows)
        else:
            hessian = jacobian(columns, z, vectorize=True, disconnected_inputs="ignore")
    except (NotImplementedError, NullTypeGradError) as error:
        raise ModelError(
            "effects and emission must have log densities with second derivatives with respect "
            f"to the effects, but: {error}. Write the effects as ordinary variables of the model, "
            "or use pe.StateSpace, which needs no derivatives."
        ) from error
    return (
        pt.specify_shape(gradient, (n_groups, n_dim)),
        pt.specify_shape(hessian, (n_dim, n_groups, n_dim)),
    )


def _check_each(graphs: Sequence[Variable], z: Variable) -> list[Variable]:
    """Make checks of parameters that depend on effects apply to each element by itself.

    PyMC makes the whole density ``-inf`` if any element has parameters out of range. Here a
    particle of one group must not change the weights of other groups.
    """
    varying = {z}

    def by_element(node: Any, inputs: list[Variable]) -> list[Variable] | None:
        if not varying.intersection(node.inputs):
            return None
        varying.update(node.outputs)
        if not (isinstance(node.op, CheckParameterValue) and node.op.can_be_replaced_by_ninf):
            return None
        expression, *checks = inputs
        for condition in (c for check in checks for c in _conditions(check)):
            extra = range(expression.type.ndim, condition.type.ndim)
            fulfilled = condition.all(axis=tuple(extra)) if extra else condition
            expression = pt.switch(fulfilled, expression, -np.inf)
        return [expression]

    return rewrite(graphs, by_element)


def _conditions(check: Variable) -> Iterator[Variable]:
    """Yield the elementwise conditions that a check reduces to one truth value."""
    node: Any = check.owner
    if node is not None and isinstance(node.op, All | MakeVector | ScalarFromTensor):
        for v in node.inputs:
            yield from _conditions(v)
    elif node is not None and isinstance(node.op, DimShuffle) and node.inputs[0].type.ndim == 0:
        yield from _conditions(node.inputs[0])
    else:
        yield check
