"""Likelihoods of rows of data that stay on the workers of a Dask cluster.

The log likelihood is an operation of the model whose arguments are parameters. Each worker
evaluates it for the rows that it holds, for a whole population at once, and sends a sum and its
derivatives; these are added up in the order of the rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from hashlib import sha256
from math import prod
from threading import Lock
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, toposort
from pytensor.printing import debugprint

from pm_evidence.core.checks import described
from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.rows import keep_freed_memory, one_blas_thread
from pm_evidence.targets.compile.numpy_graph import batched, numpy_function
from pm_evidence.targets.compile.numpy_ops import Form, of_matrices
from pm_evidence.targets.compile.numpy_rows import RowProgram
from pm_evidence.targets.compile.rewrite import evaluated_shapes

Arrays = list[NDArray[Any]]

# Number of rows, beside those with the largest and smallest numbers of each column, that stand for
# all rows where properties of the likelihood are looked for.
_STAND_INS = 1000


@dataclass(eq=False)
class RowLikelihood:
    """The log likelihood of some rows and its derivatives, for many points at once."""

    parts: list[Variable]  # the parameters
    data: list[Variable]
    total: Variable  # the sum over rows
    _programs: dict[int, Any] = field(default_factory=dict)
    _making: Any = field(default_factory=Lock)

    def __reduce__(self) -> Any:
        """Pickle the graph alone; workers make programs of their own."""
        return type(self), (self.parts, self.data, self.total)

    @property
    def digest(self) -> str:
        """A digest of the function, which is the same in all processes."""
        found = sha256(debugprint([self.total], print_type=True, file="str").encode())
        for node in toposort([self.total]):
            for each in node.inputs:
                if isinstance(each, Constant | SharedVariable):
                    found.update(repr(each.type).encode())
                    value = each.data if isinstance(each, Constant) else each.get_value()
                    is_array = isinstance(value, np.ndarray)
                    found.update(value.tobytes() if is_array else repr(value).encode())
        return found.hexdigest()[:16]

    def sums(self, points: Arrays, rows: Sequence[Any], with_gradient: bool) -> Arrays:
        """Return log likelihoods, shape ``(n,)``, and derivatives, shape ``(n, ...)`` each."""
        arrays = [
            np.asarray(each, like.type.dtype) for each, like in zip(rows, self.data, strict=True)
        ]
        with one_blas_thread():
            found = self._program(arrays)(*points, *arrays, n_results=None if with_gradient else 1)
        shapes = [(), *(part.type.shape for part in self.parts)][: len(found)]
        n = len(points[0])
        return [
            np.ascontiguousarray(np.broadcast_to(each, (n, *shape)))
            for each, shape in zip(found, shapes, strict=True)
        ]

    def _program(self, arrays: Arrays) -> Any:
        n_rows = len(arrays[0])
        with self._making:
            if n_rows not in self._programs:
                smooth = pm.pytensorf.rewrite_pregrad(self.total)
                slopes = pt.grad(smooth, self.parts, disconnected_inputs="ignore")
                many, graphs = batched(self.parts, [self.total, *slopes])
                program = numpy_function([*many, *self.data], graphs)
                points = [np.zeros((2, *part.type.shape)) for part in self.parts]
                by_rows = RowProgram.of(program, points, arrays, n_densities=1)
                self._programs[n_rows] = program if by_rows is None else by_rows
            return self._programs[n_rows]


def _sums(likelihood: RowLikelihood, points: Arrays, with_gradient: bool, *rows: Any) -> Arrays:
    """Return the sums over the rows that a worker holds."""
    keep_freed_memory()
    return likelihood.sums(points, rows, with_gradient)


@dataclass(eq=False)
class RowsOnWorkers:
    """A likelihood, and the rows that workers hold."""

    likelihood: RowLikelihood
    client: Any
    sent: Any  # the likelihood on the workers
    chunks: list[tuple[Any, ...]]  # futures of rows of each array
    n_rows: int
    stand_ins: Arrays  # some rows
    name: str  # which tells this likelihood of these data from others

    @property
    def n_numbers(self) -> int:
        """How many numbers of data an evaluation reads."""
        return self.n_rows * sum(prod(each.shape[1:]) for each in self.stand_ins)

    def sums(self, points: Arrays, with_gradient: bool) -> Arrays:
        """Return the sums over all rows."""
        same = ([each] * len(self.chunks) for each in (self.sent, points, with_gradient))
        rows = zip(*self.chunks, strict=True)
        found = self.client.gather(self.client.map(_sums, *same, *rows, pure=False))
        return [reduce(np.add, each) for each in zip(*found, strict=True)]


class SumOverRows(Op):
    """The log likelihood of rows on workers, and its derivatives with respect to each input."""

    __props__ = ("name", "with_gradient")

    def __init__(self, rows: RowsOnWorkers, with_gradient: bool = False) -> None:
        self.rows, self.name, self.with_gradient = rows, rows.name, with_gradient

    def __reduce__(self) -> Any:
        raise ModelError(
            "a model whose rows are on workers stays in the process that made it. Leave executor "
            "out of pe.sample_evidence, which divides the rows; set cores=1 in pm.sample."
        )

    @property
    def sum_with_gradient(self) -> bool:
        """Whether it gives the gradient too, by which NumPy's programs know the operation."""
        return self.with_gradient

    @property
    def n_numbers(self) -> int:
        """How many numbers of data an evaluation reads."""
        return self.rows.n_numbers

    def make_node(self, *inputs: Any) -> Apply:
        """Return the operation on parameters."""
        parts = self.rows.likelihood.parts
        found = [pt.as_tensor(x).astype(p.type.dtype) for x, p in zip(inputs, parts, strict=True)]
        slopes = [x.type() for x in found] if self.with_gradient else []
        return Apply(self, found, [pt.dscalar(), *slopes])

    def infer_shape(self, node: Any, shapes: Any) -> Any:
        """Return the shapes of the results."""
        return [(), *(shapes if self.with_gradient else [])]

    def perform(self, node: Any, inputs: Any, output_storage: Any) -> None:
        """Evaluate one point."""
        found = self.rows.sums([x[None] for x in map(np.asarray, inputs)], self.with_gradient)
        for storage, value in zip(output_storage, found, strict=True):
            storage[0] = np.asarray(value[0])

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Return derivatives; there are no second ones."""
        if self.with_gradient:
            raise NotImplementedError("second derivatives of rows on workers are not known")
        _, *slopes = SumOverRows(self.rows, True)(*inputs)
        return [cotangents[0] * slope for slope in slopes]


def _form(op: SumOverRows, node: Any) -> Form:
    """Return the form for many points."""

    def of_points(*inputs: Any) -> Any:
        n = max(len(x) for x in inputs)
        points = [np.ascontiguousarray(np.broadcast_to(x, (n, *x.shape[1:]))) for x in inputs]
        found = op.rows.sums(points, op.with_gradient)
        return found if op.with_gradient else found[0]

    return of_points


def rows_on_workers(
    name: str,
    log_density: Callable[..., Any],
    data: Any | Sequence[Any],
    *,
    client: Any,
) -> Variable:
    """Add a likelihood of rows that stay on the workers of a Dask cluster to the open model.

    Only parameters and sums travel. A call of ``pe.sample_evidence(model)`` in the process that
    made the model evaluates whole populations on the workers, on as many islands at a time as it
    has ``cores``. Results do not depend on which worker holds which rows, but, in the last digits,
    on how the rows are divided into chunks.

    Parameters
    ----------
    name : str
        Name of the term, which is a ``pm.Potential``.
    log_density : callable
        Function of symbolic arrays, one for each array of data, that returns the log density of
        each row in nats, or their sum, as PyTensor expression. It may use random variables of the
        model, as in ``lambda x, y: pm.logp(pm.Normal.dist(x @ slopes, noise), y)``.
    data : dask.array.Array or sequence of these
        Arrays of one or two axes, whose first axis counts rows. They have the same chunks of rows,
        at least one for each worker, and all columns of a row are in one chunk.
    client : distributed.Client
        Client of the cluster. The workers need pm_evidence and the same versions of PyMC, PyTensor
        and NumPy.

    Returns
    -------
    TensorVariable
        The log likelihood, shape ``()``.

    Raises
    ------
    ValueError
        If the chunks differ, an array has missing values, or the log density is not a sum over
        rows, such as an average.
    TypeError
        If data are no Dask arrays, or the log density depends on no random variable of the model.
    """
    model = pm.modelcontext(None)
    arrays: list[Any] = [data] if hasattr(data, "to_delayed") else list(data)
    _check_chunks(arrays)
    inputs = [
        pt.TensorType(np.dtype(x.dtype).name, shape=(None, *x.shape[1:]))(f"{name}_{k}")
        for k, x in enumerate(arrays)
    ]
    graph = pt.as_tensor(log_density(*inputs)).sum()
    free = set(model.basic_RVs)
    used = [v for v in ancestors([graph], blockers=free) if v in free]
    if not used:
        raise TypeError(
            "log_density must depend on a random variable of the model, got an expression of "
            f"{sorted(str(v) for v in explicit_graph_inputs([graph]))}; use the variables that "
            "are defined above it in the model."
        )
    discrete = [rv.name for rv in used if np.dtype(rv.dtype).kind != "f"]
    if discrete:
        raise TypeError(
            f"log_density must depend on continuous variables alone, got {', '.join(discrete)}; "
            "sum discrete variables out, for example by pm.Mixture."
        )
    shapes = evaluated_shapes(used)
    parts = [
        pt.TensorType(rv.dtype, shape)(rv.name) for rv, shape in zip(used, shapes, strict=True)
    ]
    graph = clone_replace(graph, dict(zip(used, parts, strict=True)), rebuild_strict=False)
    likelihood = RowLikelihood(parts, inputs, graph)
    stand_ins = _stand_ins(name, arrays, client)
    _check_is_sum(likelihood, pm.draw(used, 2, random_seed=1, mode="FAST_COMPILE"), stand_ins)
    chunks = [client.compute(x.to_delayed().ravel().tolist()) for x in arrays]
    rows = RowsOnWorkers(
        likelihood,
        client,
        client.scatter(likelihood, broadcast=True),
        list(zip(*chunks, strict=True)),
        len(arrays[0]),
        stand_ins,
        " ".join((name, likelihood.digest, *(x.name for x in arrays))),
    )
    return pm.Potential(name, SumOverRows(rows)(*used))


def _check_chunks(arrays: Sequence[Any]) -> None:
    """Raise an error unless arrays are divided into the same rows."""
    for x in arrays:
        if not hasattr(x, "to_delayed") or getattr(x, "ndim", 0) not in (1, 2):
            raise TypeError(
                f"data must be Dask arrays of one or two axes, got {described(x)}; make one by "
                "dask.array.from_array(x, chunks=(rows, -1))."
            )
    if any(np.isnan(n) for x in arrays for n in x.chunks[0]):
        raise ValueError(
            "data must have chunks of known sizes, got unknown ones; call "
            "x.compute_chunk_sizes() first."
        )
    rows = {tuple(x.chunks[0]) for x in arrays}
    if len(rows) != 1 or any(n != 1 for x in arrays for n in x.numblocks[1:]):
        raise ValueError(
            "data must have the same chunks of rows, with all columns of a row in one chunk, got "
            f"{[x.chunks for x in arrays]}; use x.rechunk((rows, -1)) for each of them."
        )


def _stand_ins(name: str, arrays: Sequence[Any], client: Any) -> Arrays:
    """Return some rows: the first ones, and those with extreme numbers in some column."""
    floats = [x for x in arrays if np.dtype(x.dtype).kind == "f"]
    asked = [np.isnan(x).any() for x in floats]
    asked += [found for x in arrays for found in (x.argmin(axis=0), x.argmax(axis=0))]
    found = client.gather(client.compute(asked))
    if any(found[: len(floats)]):
        raise ValueError(
            f"data of {name!r} must not have missing values, got NaN; leave out rows with NaN."
        )
    extreme = np.unique(np.concatenate([np.atleast_1d(each) for each in found[len(floats) :]]))
    rows = np.union1d(np.arange(min(_STAND_INS, len(arrays[0]))), extreme)
    return [np.asarray(x) for x in client.gather(client.compute([x[rows] for x in arrays]))]


def _check_is_sum(likelihood: RowLikelihood, draws: Sequence[Any], rows: Arrays) -> None:
    """Raise a ValueError if the sums of two halves of some rows are not the sum of all."""
    points, half = [np.asarray(each) for each in draws], len(rows[0]) // 2
    if not half:
        return
    parts = rows, [each[:half] for each in rows], [each[half:] for each in rows]
    whole, one, two = (likelihood.sums(points, part, with_gradient=False)[0] for part in parts)
    if not np.allclose(whole, one + two, rtol=1e-6, equal_nan=True):
        raise ValueError(
            f"log_density must be a sum over rows, but that of {len(rows[0])} rows is "
            f"{whole[0]:.6g}, and those of two halves of them are {one[0]:.6g} and {two[0]:.6g}; "
            "return the log density of each row, which depends on no other row."
        )


of_matrices(SumOverRows, _form)
