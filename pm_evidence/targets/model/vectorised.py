"""Functions of many draws at once, from graphs of one draw, without warnings of PyMC's."""

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph


@contextmanager
def quietly() -> Iterator[None]:
    """Silence warnings of libraries about their own code, and of overflows in a density.

    A density that overflows is minus infinity, or NaN, which is counted and reported. Users cannot
    act on deprecation warnings that libraries cause themselves, or on warnings about parts of a
    graph that run in Python where speed does not matter. Warnings of other modules are shown.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        for category in (FutureWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", category=category, module=r"(pytensor|pymc)\.")
        warnings.filterwarnings("ignore", message="Numba will use object mode")
        warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
        yield


def vectorised(
    inputs: Sequence[Variable], outputs: Sequence[Variable], others: Sequence[Variable] = ()
) -> Any:
    """Return one function for all draws, or None for a graph that cannot be vectorised."""
    # pt.tensor refuses names that NumPy cannot parse as a dtype, such as Bambi's "1|group"
    batched = [pt.TensorType(v.dtype, shape=(None, *v.type.shape))(name=v.name) for v in inputs]
    try:
        graphs = vectorize_graph(list(outputs), dict(zip(inputs, batched, strict=True)))
        arguments = [*batched, *others]
        return pm.compile(arguments, graphs, mode="FAST_COMPILE", on_unused_input="ignore")
    except (NotImplementedError, ValueError, TypeError):
        return None


class RowFunction:
    """A function of many draws, which are evaluated together where PyTensor can do so."""

    def __init__(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        others: Sequence[Variable],
        *,
        compared: bool = False,
    ) -> None:
        self._compared = compared  # whether the first draw is compared with that draw alone
        self._lock = threading.Lock()  # a function of PyTensor must not be called by two threads
        self._ndim = [variable.type.ndim for variable in outputs]
        arguments = [*inputs, *others]
        with quietly():
            self._single = pm.compile(
                arguments, list(outputs), mode="FAST_COMPILE", on_unused_input="ignore"
            )
            self._batched = vectorised(inputs, outputs, others)

    def __call__(
        self, inputs: Sequence[NDArray[Any]], others: Sequence[NDArray[Any]]
    ) -> list[NDArray[Any]]:
        """Return every output for every draw, each of shape ``(n, ...)``."""
        n = len(inputs[0])
        if not n:
            return [np.empty((0,) + (1,) * ndim) for ndim in self._ndim]
        with self._lock, quietly():
            if self._batched is not None:
                try:
                    found = self._batched(*inputs, *others)
                    whole = [self._of_rows(v, d, n) for v, d in zip(found, self._ndim, strict=True)]
                    if not self._compared or self._is_right(inputs, others, whole):
                        return whole
                except (ValueError, TypeError, IndexError, NotImplementedError):
                    pass
            rows = [self._single(*row, *others) for row in zip(*inputs, strict=True)]
        return [np.stack(column) for column in zip(*rows, strict=True)]

    def _is_right(self, inputs: Any, others: Any, found: Sequence[NDArray[Any]]) -> bool:
        first = self._single(*(value[0] for value in inputs), *others)
        pairs = zip(first, found, strict=True)
        return all(np.allclose(many[0], one, rtol=1e-8, equal_nan=True) for one, many in pairs)

    @staticmethod
    def _of_rows(value: NDArray[Any], ndim: int, n: int) -> NDArray[Any]:
        """Return an output with a leading dimension of draws, also if it is the same for all."""
        value = np.asarray(value)
        if value.ndim == ndim:
            value = value[None]
        return value if len(value) == n else np.broadcast_to(value, (n, *value.shape[1:]))
