"""The support of variables, as far as it is known before sampling."""

import math
from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from numpy.typing import NDArray
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.transforms import _default_transform
from pymc.logprob.transforms import IntervalTransform, Transform
from pymc.pytensorf import constant_fold
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomGeneratorType

from pm_evidence.targets.layout import Layout

__all__ = ["coordinates_on_support", "discrete_support", "keeps_support"]

Floats = NDArray[np.float64]
_Bounds = tuple[Variable, Variable]

_BOUNDS: dict[type, Callable[..., _Bounds]] = {
    ptr.BernoulliRV: lambda p: (pt.constant(0), pt.constant(1)),
    ptr.CategoricalRV: lambda p: (pt.constant(0), p.shape[-1] - 1),
    ptr.BinomialRV: lambda n, p: (pt.constant(0), n),
    ptr.BetaBinomialRV: lambda n, a, b: (pt.constant(0), n),
    DiscreteUniformRV: lambda lower, upper: (lower, upper),
}


# Distributions of PyMC whose draws may lie where their density is zero, because users define both.
_BY_USERS = ("pymc.distributions.custom", "pymc.distributions.simulator")


def keeps_support(rv: Variable, transform: Transform | None) -> bool:
    """Return whether a transform is known to cover the whole support of a variable.

    Parameters
    ----------
    rv : TensorVariable
        A random variable.
    transform : Transform or None
        Its transform in the model.

    Returns
    -------
    bool
        True if the distribution is one of PyMC's, and the transform the one that PyMC gives it.
    """
    op = rv.owner.op
    module = type(op).__module__
    if not module.startswith(("pymc.distributions.", "pytensor.tensor.random.")):
        return False
    if module.startswith(_BY_USERS):
        return False
    usual = _default_transform(op, rv)
    if transform is usual:
        return True
    if type(transform) is not type(usual):
        return False
    # intervals may have any bounds: those that PyMC computes from the parameters are meant
    if isinstance(transform, IntervalTransform) and isinstance(usual, IntervalTransform):
        given, own = transform.args_fn, usual.args_fn
        return getattr(given, "__code__", given) is getattr(own, "__code__", own)
    return True


def coordinates_on_support(model: pm.Model, layout: Layout) -> NDArray[np.bool_]:
    """Return of which coordinates `keeps_support` holds, shape ``(n_dim,)``."""
    keeps = [keeps_support(rv, model.rvs_to_transforms[rv]) for rv in model.free_RVs]
    return np.repeat(np.array(keeps, dtype=bool), [v.size for v in layout.variables])


def discrete_support(rv: Variable, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Return the least and the greatest value of every element of a discrete variable.

    Parameters
    ----------
    rv : TensorVariable
        A random variable.
    shape : tuple of int
        Its shape.

    Returns
    -------
    lower, upper : ndarray of float64, shape (size,)
        Bounds in C order; infinite where they are unknown or depend on other variables.
    """
    size = math.prod(shape)
    unknown = np.full(size, -np.inf), np.full(size, np.inf)
    op = rv.owner.op
    bounds = next((make for kind, make in _BOUNDS.items() if isinstance(op, kind)), None)
    if bounds is None:
        return unknown
    values = constant_fold(bounds(*op.dist_params(rv.owner)), raise_not_constant=False)
    if any(isinstance(v, Variable) and _is_random(v) for v in values):
        return unknown
    lower, upper = (
        np.broadcast_to(v.eval() if isinstance(v, Variable) else v, shape).ravel().astype(float)
        for v in values
    )
    return lower, upper


def _is_random(variable: Variable) -> bool:
    # symbolic distributions such as pm.Truncated are not a RandomVariable, but hold a generator
    return any(isinstance(v.type, RandomGeneratorType) for v in ancestors([variable]))
