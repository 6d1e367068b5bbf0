"""Many draws at once of Cholesky factors with an LKJ prior.

PyMC draws the rows of a factor in a loop, one factor after the other: 20,000 of them take as long
as all the rest of an evidence.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random.op import RandomVariable

from pm_evidence.targets.compile.rewrite import rewrite
from pm_evidence.targets.model.upstream import LKJCholeskyCovRV

Floats = NDArray[np.float64]


class _PackedFactorRV(RandomVariable):
    """Factors of covariances, packed by rows, from ``eta`` and standard deviations.

    The squared length of the first ``i`` elements of row ``i`` of the factor of the correlations
    has a beta distribution, and their direction is uniform (Lewandowski, Kurowicka and Joe 2009,
    the onion method).
    """

    name = "packed_factor"
    signature = "(),(n)->(m)"
    dtype = "float64"

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> Any:
        n = dist_params[1].type.shape[-1]
        return (n * (n + 1) // 2,)

    @classmethod
    def rng_fn(cls, rng: np.random.Generator, eta: Floats, sd: Floats, size: Any) -> Floats:
        """Return factors, shape ``(*size, n (n + 1) / 2)``."""
        n = sd.shape[-1]
        shape = np.broadcast_shapes(eta.shape, sd.shape[:-1]) if size is None else tuple(size)
        factor = np.zeros((*shape, n, n))
        factor[..., 0, 0] = 1.0
        for i in range(1, n):
            square = rng.beta(0.5 * i, eta + 0.5 * (n - 1 - i), shape)[..., None]
            along = rng.standard_normal((*shape, i))
            along /= np.linalg.norm(along, axis=-1, keepdims=True)
            factor[..., i, :i] = np.sqrt(square) * along
            factor[..., i, i] = np.sqrt(1.0 - square[..., 0])
        return (sd[..., None] * factor)[(..., *np.tril_indices(n))]


_packed_factor = _PackedFactorRV()


def with_factors_at_once(graphs: Sequence[Variable]) -> list[Variable]:
    """Return graphs in which Cholesky factors with an LKJ prior can be drawn many at once."""
    return rewrite(graphs, _at_once)


def _at_once(node: Any, inputs: list[Variable]) -> tuple[Variable, Variable] | None:
    if not isinstance(node.op, LKJCholeskyCovRV):
        return None
    rng, n, eta, sd = inputs
    if not isinstance(n, Constant):
        return None
    known = sd.type.clone(shape=(*sd.type.shape[:-1], int(n.data)))
    successor, draw = _packed_factor.make_node(rng, None, eta, known.filter_variable(sd)).outputs
    return successor, node.outputs[1].type.filter_variable(draw, allow_convert=True)
