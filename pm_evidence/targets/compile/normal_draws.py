"""Normal draws that compiled code takes directly from our own streams."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.random.op import RNGConsumerOp

from pm_evidence.core.codegen.native import view_address
from pm_evidence.core.codegen.numba import cgutils, intrinsic, nb, njit, types
from pm_evidence.core.random import fill_normal
from pm_evidence.targets.compile.implementations import implement_by
from pm_evidence.targets.compile.rewrite import rewrite

__all__ = ["with_fast_normals"]


class StandardNormals(RNGConsumerOp):
    """A vector of standard normal draws; its generator has to be that of ``calls``.

    It advances the stream in place, which is safe if every generator is used only once.
    """

    __props__ = ()

    def make_node(self, rng: Variable, n: Variable) -> Apply:
        """Return the node that draws ``n`` of them."""
        return Apply(self, [rng, n], [rng.type(), pt.dvector()])

    def update(self, node: Apply) -> dict[Variable, Variable]:
        """Return the generator that replaces the one before the draws."""
        return {node.inputs[0]: node.outputs[0]}

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Draw."""
        rng, n = inputs
        outputs[0][0], outputs[1][0] = rng, rng.standard_normal(n)


def with_fast_normals(graphs: Sequence[Variable]) -> list[Variable]:
    """Return graphs whose normal and multivariate normal draws are scaled standard normals.

    A covariance that is the same for all particles is then decomposed only once.
    """
    implement_by(StandardNormals, _standard_normals, version=1)

    def scaled(node: Any, inputs: list[Variable]) -> tuple[Variable, Variable] | None:
        if not isinstance(node.op, NormalRV | MvNormalRV):
            return None
        successor, drawn = _scaled(node.op, *inputs)
        drawn = pt.cast(drawn, node.outputs[1].dtype)
        return successor, node.outputs[1].type.filter_variable(drawn, allow_convert=True)

    return rewrite(graphs, scaled)


def _scaled(
    op: Any, rng: Variable, size: Variable, mean: Variable, scale: Variable
) -> tuple[Variable, Variable]:
    shape = op._infer_shape(size, (mean, scale))
    n = pt.as_tensor(1, dtype="int64")
    for length in shape:
        n = n * length
    successor, z = StandardNormals()(rng, pt.cast(n, "int64"))
    z = z if len(shape) == 1 else z.reshape(shape)
    if isinstance(op, NormalRV):
        return successor, mean + scale * z
    factor = cholesky(scale)
    # elementwise, so that the sum of a draw does not depend on how many are drawn
    return successor, mean + (factor * z[..., None, :]).sum(axis=-1)


@intrinsic
def _state_address(typingctx: Any, generator: Any) -> Any:
    signature = types.int64(generator)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0])
        bits_type = types.NumPyRandomBitGeneratorType("bit_generator")
        bits = cgutils.create_struct_proxy(bits_type)(context, builder, value=whole.bit_generator)
        return bits.state_address

    return signature, codegen


@njit(cache=False)
def _standard_normals(generator: Any, n: Any) -> Any:
    out = np.empty(n.item())
    fill_normal(nb.carray(view_address(_state_address(generator)), (4,), nb.uint64), out)
    return generator, out
