"""The exact density and exact draws of ``pm.CAR``, a multivariate normal distribution.

Its density in PyMC leaves out ``1/2 sum(log(W.sum(0))) - n/2 log(2 pi)``, and its random draws have
the covariance ``Q^-2`` in place of ``Q^-1``, where ``Q = tau (diag(W.sum(0)) - alpha W)``.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import CARRV
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT

from pm_evidence.targets.compile.rewrite import rewrite

__all__ = ["missing_constant", "with_exact_car"]


def missing_constant(model: pm.Model, rvs: Iterable[Variable]) -> Variable | None:
    """Return the constant that is missing in the log density of some variables, in nats.

    Parameters
    ----------
    model : pymc.Model
        The model.
    rvs : iterable of TensorVariable
        Variables of the model.

    Returns
    -------
    scalar TensorVariable or None
        A graph of the model's value variables; None if nothing is missing.
    """
    terms = []
    for rv in rvs:
        if not isinstance(rv.owner.op, CARRV):
            continue
        _, _, _, w, *_ = rv.owner.inputs
        degrees = _dense(w).sum(axis=0)
        value = model.rvs_to_values[rv]
        n_vectors = value.size / value.shape[-1]
        each = 0.5 * pt.log(degrees).sum() - 0.5 * np.log(2 * np.pi) * degrees.shape[0]
        terms.append(n_vectors * each)
    return sum(model.replace_rvs_by_values(terms)) if terms else None


def with_exact_car(graphs: Sequence[Variable]) -> list[Variable]:
    """Return graphs in which every CAR is drawn exactly."""
    return rewrite(graphs, _exactly)


def _exactly(node: Any, inputs: list[Variable]) -> tuple[Variable, Variable] | None:
    if not isinstance(node.op, CARRV):
        return None
    *parameters, _ = inputs  # the last says whether W is valid
    successor, draw = _draw(*parameters)
    return successor, node.outputs[1].type.filter_variable(draw, allow_convert=True)


def _draw(
    rng: Variable, size: Variable, mu: Variable, w: Variable, alpha: Variable, tau: Variable
) -> tuple[Variable, Variable]:
    """Return the next generator, and ``mu + L^-T z`` where ``L L^T`` is the precision."""
    w = _dense(w)
    alpha, tau = (pt.squeeze(v) for v in (alpha, tau))
    factor = cholesky(tau * (pt.diag(w.sum(axis=0)) - alpha * w))
    implied = isinstance(size.type, NoneTypeT)
    shape = mu.shape if implied else pt.concatenate([size, mu.shape[-1:]])
    successor, z = pt.random.normal(size=shape, rng=rng, return_next_rng=True)
    rows = z.reshape((-1, mu.shape[-1]))
    solved = solve_triangular(factor.T, rows.T, lower=False).T
    return successor, mu + solved.reshape(shape)


def _dense(w: Variable) -> Variable:
    if not isinstance(w.type, TensorType):
        from pytensor.sparse import dense_from_sparse  # imports SciPy's sparse matrices

        w = dense_from_sparse(w)
    w = pt.cast(w, "float64")
    return w.reshape(w.shape[-2:]) if w.type.ndim > 2 else w
