"""What users are told about models that numba compiles slowly, or evaluates in Python."""

import logging
from collections.abc import Sequence

from pytensor.compile.ops import FromFunctionOp
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort

__all__ = ["offer_jax"]

_log = logging.getLogger("pymc.pm_evidence")

# Compilation counts as slow if it takes more seconds than this: most models take 5 to 25.
_SLOW = 30.0


def offer_jax(slow_ops: Sequence[str], graphs: Sequence[Variable], seconds: float) -> None:
    """Say what is slow about a compiled model, and whether JAX may do better.

    Parameters
    ----------
    slow_ops : sequence of str
        Operations without a numba implementation.
    graphs : sequence of TensorVariable
        The log densities.
    seconds : float
        Duration of the compilation.
    """
    if slow_ops:
        offer = " PyTensor may have code of it for JAX: try backend='jax'."
        _log.warning(
            "There is no numba implementation of %s: this part of the model runs in Python, "
            "which is correct but slow.%s",
            ", ".join(slow_ops),
            offer if _of_pytensor(slow_ops, graphs) else "",
        )
    elif seconds > _SLOW:
        _log.info(
            "Compiling the model with numba took %.0f s. JAX may compile it faster: backend='jax'.",
            seconds,
        )


def _of_pytensor(names: Sequence[str], graphs: Sequence[Variable]) -> bool:
    """Return whether an operation of these names is PyTensor's own, and not one of the user's.

    Whether it is in the table for JAX is not looked up, because this would import JAX.
    """
    ops = (node.op for node in io_toposort([], list(graphs)))
    return any(
        str(op) in names
        and type(op).__module__.startswith("pytensor.")
        and not isinstance(op, FromFunctionOp)
        for op in ops
    )
