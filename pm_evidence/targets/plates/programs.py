"""Log densities of the elements of a plate at many nodes, and their gradients, by NumPy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import support_point
from pymc.logprob.transforms import LogTransform
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import CauchyRV, LaplaceRV, LogNormalRV, NormalRV, StudentTRV

from pm_evidence.targets.compile.numba_graph import shared_to_inputs
from pm_evidence.targets.compile.numpy_graph import NotBatchedError, numpy_function
from pm_evidence.targets.layout import FlatVariable
from pm_evidence.targets.model.vectorised import quietly
from pm_evidence.targets.plates.degrees import are_quadratic
from pm_evidence.targets.plates.structure import Plate, Structure

Floats = NDArray[np.float64]

# Points and nodes are evaluated in blocks for which the largest result of an operation has at most
# so many numbers, which a processor's cache holds.
_LARGEST = 2**17

# Distributions whose last two parameters are location and scale of the unconstrained value, and
# whether their tails are heavy.
_LOCATION_SCALE: dict[type, bool] = {
    NormalRV: False,
    LogNormalRV: False,
    LaplaceRV: True,
    StudentTRV: True,
    CauchyRV: True,
}


@dataclass(frozen=True, eq=False)
class _Summed:
    """How the numbers of one term are summed over the elements of a plate."""

    label: NDArray[np.int64]  # shape (k,): the element of each number, -1 for none
    shape: tuple[int, ...]  # shape of the term without the axes along which it is summed before

    def add(self, total: Floats, term: Floats) -> None:
        """Add a term, shape ``(n, m, *shape)``, to the sums, shape ``(n, m, n_elements)``."""
        flat = np.broadcast_to(term, (*total.shape[:2], *self.shape)).reshape(*total.shape[:2], -1)
        if self.label.size == total.shape[2] and (self.label == np.arange(self.label.size)).all():
            total += flat
            return
        used = np.flatnonzero(self.label >= 0)
        order = used[np.argsort(self.label[used], kind="stable")]
        unique, start = np.unique(self.label[order], return_index=True)
        total[..., unique] += np.add.reduceat(flat[..., order], start, axis=-1)

    def spread(self, weight: Floats) -> Floats:
        """Return the weight of each number, shape ``(n, m, *shape)``, from those of elements."""
        found = weight[..., self.label]
        if (self.label < 0).any():
            found[..., self.label < 0] = 0.0
        return found.reshape(*weight.shape[:2], *self.shape)


class PlateProgram:
    """The log density of each element of a plate, of values of its coordinates and of globals."""

    def __init__(
        self,
        model: pm.Model,
        structure: Structure,
        plate: Plate,
        first: int,
        fixed: Sequence[Any],
    ) -> None:
        self.plate, self.layout = plate, structure.layout
        self._fixed = [np.asarray(value, float) for value in fixed]
        local = set(structure.local)
        self._is_local = [v.name in local for v in self.layout.variables]
        graphs, self._sums = _terms_of_plate(structure, first, plate.n_elements)
        parts = structure.terms.parts
        of_plate = [
            p for p, v in zip(parts, self.layout.variables, strict=True) if v.name in plate.names
        ]
        self.is_quadratic = are_quadratic(graphs, of_plate)
        self._many = [
            pt.TensorType("float64", shape=(None, None if is_local else 1, *part.type.shape))()
            for part, is_local in zip(parts, self._is_local, strict=True)
        ]
        with quietly():
            by_node = self._batched(parts, graphs)
            self._value, self._arrays = self._program([], by_node)
            weights = [pt.TensorType("float64", shape=g.type.shape)() for g in by_node]
            total = sum((g * w).sum() for g, w in zip(by_node, weights, strict=True))
            globals_ = [
                v for v, is_local in zip(self._many, self._is_local, strict=True) if not is_local
            ]
            slopes = (
                pt.grad(pm.pytensorf.rewrite_pregrad(total), globals_, disconnected_inputs="ignore")
                if globals_
                else []
            )
            self._slope, self._slope_arrays = self._program(weights, slopes)
            self._place(model, structure)
        point = [value[None, None] for value in self._fixed]
        sizes = self._value.sizes(*point, *self._arrays)
        self.n_numbers, self._largest = sum(sizes), max(sizes, default=1)

    def _batched(self, parts: Sequence[Variable], graphs: Sequence[Variable]) -> list[Variable]:
        used = set(ancestors(list(graphs)))
        replaced = {p: m for p, m in zip(parts, self._many, strict=True) if p in used}
        try:
            return list(vectorize_graph(list(graphs), replaced)) if replaced else list(graphs)
        except (NotImplementedError, ValueError, TypeError) as error:
            raise NotBatchedError(str(error)) from error

    def _program(self, weights: list[Variable], graphs: list[Variable]) -> tuple[Any, list[Any]]:
        outputs, data, values = shared_to_inputs(graphs)
        program = numpy_function([*self._many, *weights, *data], outputs)
        return program, [np.asarray(value) for value in values]

    def _place(self, model: pm.Model, structure: Structure) -> None:
        """Make the program of the locations and scales of the priors of the coordinates."""
        self._names = list(dict.fromkeys(self.plate.names))
        graphs, self.is_heavy = list[Variable](), False
        for name in self._names:
            rv = model[name]
            transform, op = model.rvs_to_transforms[rv], rv.owner.op
            fits = transform is None or (
                isinstance(op, LogNormalRV) and isinstance(transform, LogTransform)
            )
            if fits and type(op) in _LOCATION_SCALE:
                graphs += op.dist_params(rv.owner)[-2:]
                self.is_heavy |= _LOCATION_SCALE[type(op)]
            else:
                middle = support_point(rv)
                if transform is not None:
                    middle = transform.forward(middle, *rv.owner.inputs)
                graphs += [middle.astype("float64"), pt.constant(1.0)]
        graphs = structure.terms.of_model(model, [pt.as_tensor(g) for g in graphs])
        self._where, self._where_arrays = self._program(
            [], self._batched(structure.terms.parts, graphs)
        )

    # evaluation -------------------------------------------------------------------------------

    def inputs(self, x: Floats, nodes: Floats | None) -> list[Floats]:
        """Return the values of all free variables."""
        found = list[Floats]()
        for k, (variable, is_local) in enumerate(
            zip(self.layout.variables, self._is_local, strict=True)
        ):
            if not is_local:
                flat = x[:, variable.positions]
                found.append(flat.reshape(len(x), 1, *variable.shape))
            elif nodes is None or variable.name not in self.plate.names:
                found.append(np.broadcast_to(self._fixed[k], (len(x), 1, *variable.shape)))
            else:
                found.append(self._local(variable, k, nodes))
        return found

    def _local(self, variable: FlatVariable, k: int, nodes: Floats) -> Floats:
        n, m = nodes.shape[:2]
        flat = np.empty((n, m, variable.size))
        positions = self.plate.positions - variable.start
        inside = (positions >= 0) & (positions < variable.size)
        if inside.sum() < variable.size:
            flat[:] = self._fixed[k].ravel()
        for c in range(positions.shape[1]):
            own = inside[:, c]
            flat[:, :, positions[own, c]] = nodes[:, :, own, c]
        return flat.reshape(n, m, *variable.shape)

    def values(self, x: Floats, nodes: Floats) -> Floats:
        """Return the log density of every element at nodes, shape ``(n, m, n_elements)``."""
        total = np.empty(nodes.shape[:3])
        for rows, part in self._blocks(*nodes.shape[:2]):
            total[rows, part] = self._values(x[rows], nodes[rows, part])
        return total

    def _blocks(self, n: int, m: int) -> Iterator[tuple[slice, slice]]:
        """Return rows and nodes that are evaluated together."""
        most = max(_LARGEST // self._largest, 1)
        n_rows, n_nodes = max(most // m, 1), min(most, m)
        for k in range(0, n, n_rows):
            for j in range(0, m, n_nodes):
                yield slice(k, k + n_rows), slice(j, j + n_nodes)

    def _values(self, x: Floats, nodes: Floats) -> Floats:
        total = np.zeros(nodes.shape[:3])
        terms = self._value(*self.inputs(x, nodes), *self._arrays)
        with np.errstate(all="ignore"):
            for summed, term in zip(self._sums, terms, strict=True):
                summed.add(total, term)
        total[np.isnan(total)] = -np.inf
        return total

    def gradient(self, x: Floats, nodes: Floats, weight: Floats) -> Floats:
        """Return the weighted sums of the elements' gradients with respect to the globals."""
        gradient = np.zeros((len(x), self.layout.size))
        for rows, part in self._blocks(*nodes.shape[:2]):
            gradient[rows] += self._gradient(x[rows], nodes[rows, part], weight[rows, part])
        return gradient

    def _gradient(self, x: Floats, nodes: Floats, weight: Floats) -> Floats:
        weights = [summed.spread(weight) for summed in self._sums]
        found = self._slope(*self.inputs(x, nodes), *weights, *self._slope_arrays)
        gradient = np.zeros((len(x), self.layout.size))
        variables = [
            v
            for v, is_local in zip(self.layout.variables, self._is_local, strict=True)
            if not is_local
        ]
        for variable, slope in zip(variables, found, strict=True):
            whole = np.broadcast_to(slope, (len(x), 1, *variable.shape))
            gradient[:, variable.positions] = whole.reshape(len(x), -1)
        return gradient

    def places(self, x: Floats) -> tuple[Floats, Floats]:
        """Return location and scale of the prior of the coordinates.

        Both have shape ``(n, n_elements, n_coordinates)``.
        """
        found = self._where(*self.inputs(x, None), *self._where_arrays)
        every = np.zeros((2, len(x), self.layout.size))
        by_name = {v.name: v for v in self.layout.variables}
        for k, value in enumerate(found):
            variable = by_name[self._names[k // 2]]
            value = np.asarray(value, float)
            if value.ndim < 2 or value.ndim == len(variable.shape):  # it depends on no variable
                value = value[(None, None)]
            whole = np.broadcast_to(value, (len(x), 1, *variable.shape))
            every[k % 2][:, variable.positions] = whole.reshape(len(x), -1)
        location, scale = every[..., self.plate.positions]
        return np.where(np.isfinite(location), location, 0.0), scale


def _terms_of_plate(
    structure: Structure, first: int, n: int
) -> tuple[list[Variable], list[_Summed]]:
    """Return the terms with numbers of a plate, summed along axes of one element, and the sums."""
    graphs, sums = list[Variable](), list[_Summed]()
    for term, labels in zip(structure.terms.terms, structure.labels, strict=True):
        own = np.where((labels >= first) & (labels < first + n), labels - first, -1)
        if (own < 0).all():
            continue
        same = [k for k in range(own.ndim) if (own == own.take([0], axis=k)).all()]
        # axes of which all numbers belong to the same elements; those that no element has are left
        graph = term.graph
        if any(s is None for s in graph.type.shape):
            graph = pt.specify_shape(graph, labels.shape)
        for k in reversed(same):
            own = own.take(0, axis=k)
        graphs.append(graph.sum(axis=same) if same else graph)
        sums.append(_Summed(own.ravel(), own.shape))
    return graphs, sums
