"""Log densities of the elements of a plate at many nodes, and their gradients, by NumPy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import support_point
from pymc.logprob.transforms import LogTransform
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import CauchyRV, LaplaceRV, LogNormalRV, NormalRV, StudentTRV
from pytensor.tensor.random.op import RandomVariable

from pm_evidence.targets.compile.numba_graph import shared_to_inputs
from pm_evidence.targets.compile.numpy_graph import NotBatchedError, numpy_function
from pm_evidence.targets.layout import FlatVariable
from pm_evidence.targets.model.vectorised import quietly
from pm_evidence.targets.plates.common_nodes import products, with_common_value
from pm_evidence.targets.plates.structure import Plate, Structure
from pm_evidence.targets.plates.terms import are_quadratic

Floats = NDArray[np.float64]

# Points and nodes are evaluated in blocks for which the largest result of an operation has at most
# so many numbers, which a processor's cache holds.
_LARGEST = 2**17
# Elements have nodes in common if their operations then give less than this share of the numbers.
# A product of matrices adds so many numbers in the time in which an operation gives one.
_LESS_WORK, _PER_PRODUCT = 0.25, 8

# Mixtures whose components are mixtures are followed to this depth.
_MOST_NESTED = 8

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
        if self._is_whole and self.label.size == total.shape[2]:
            total += flat
            return
        order, unique, start = self._parts
        total[..., unique] += np.add.reduceat(flat[..., order], start, axis=-1)

    @cached_property
    def _is_whole(self) -> bool:
        """Whether there is one number for each element, in their order."""
        return bool((self.label == np.arange(self.label.size)).all())

    @cached_property
    def _parts(self) -> tuple[NDArray[np.int64], ...]:
        """Numbers sorted by their elements, these elements, and where those of each begin."""
        used = np.flatnonzero(self.label >= 0)
        order = used[np.argsort(self.label[used], kind="stable")]
        unique, start = np.unique(self.label[order], return_index=True)
        return order, unique, start

    def spread(self, weight: Floats) -> Floats:
        """Return the weight of each number, shape ``(n, m, *shape)``, from those of elements."""
        found = weight[..., self.label]
        if (self.label < 0).any():
            found[..., self.label < 0] = 0.0
        return found.reshape(*weight.shape[:2], *self.shape)


@dataclass(frozen=True, eq=False)
class _Matrix:
    """How the values of a function are multiplied and added for every element of a plate."""

    matrix: Floats  # shape (n_elements, k)

    def add(self, total: Floats, term: Floats) -> None:
        """Add a term, shape ``(n, m, k)``, to the sums, shape ``(n, m, n_elements)``."""
        total += term @ self.matrix.T

    def spread(self, weight: Floats) -> Floats:
        """Return the weight of each value, shape ``(n, m, k)``, from those of elements."""
        return weight @ self.matrix


class _Evaluated:
    """The terms of a plate, and their weighted gradients, as functions of many points and nodes."""

    def __init__(
        self,
        parts: Sequence[Variable],
        is_local: Sequence[bool],
        graphs: Sequence[Variable],
        sums: Sequence[Any],
    ) -> None:
        self.sums = sums
        self._many = [
            pt.TensorType("float64", shape=(None, None if own else 1, *part.type.shape))()
            for part, own in zip(parts, is_local, strict=True)
        ]
        by_node = self.batched(parts, graphs)
        self.values, self.arrays = self.program([], by_node)
        weights = [pt.TensorType("float64", shape=g.type.shape)() for g in by_node]
        total = sum((g * w).sum() for g, w in zip(by_node, weights, strict=True))
        globals_ = [v for v, own in zip(self._many, is_local, strict=True) if not own]
        slopes = (
            pt.grad(pm.pytensorf.rewrite_pregrad(total), globals_, disconnected_inputs="ignore")
            if globals_
            else []
        )
        self.slopes, self.slope_arrays = self.program(weights, slopes)
        self.n_numbers, self.largest = 0, 1

    def batched(self, parts: Sequence[Variable], graphs: Sequence[Variable]) -> list[Variable]:
        """Return graphs of many points and nodes."""
        used = set(ancestors(list(graphs)))
        replaced = {p: m for p, m in zip(parts, self._many, strict=True) if p in used}
        try:
            return list(vectorize_graph(list(graphs), replaced)) if replaced else list(graphs)
        except (NotImplementedError, ValueError, TypeError) as error:
            raise NotBatchedError(str(error)) from error

    def program(self, weights: list[Variable], graphs: list[Variable]) -> tuple[Any, list[Any]]:
        """Return a function of points, nodes and weights, and the arrays that it reads."""
        outputs, data, values = shared_to_inputs(graphs)
        program = numpy_function([*self._many, *weights, *data], outputs)
        return program, [np.asarray(value) for value in values]

    def measure(self, inputs: Sequence[Any]) -> None:
        """Count the numbers that the operations give at one node of one point."""
        sizes = self.values.sizes(*inputs, *self.arrays)
        self.n_numbers, self.largest = sum(sizes), max(sizes, default=1)


def _without_draws(graph: Variable) -> Variable:
    """Return a graph in which draws, as of components of a mixture, are their support points."""
    for _ in range(_MOST_NESTED):
        nodes = {v.owner for v in ancestors([graph]) if v.owner is not None}
        drawn = [n.default_output() for n in nodes if isinstance(n.op, RandomVariable)]
        if not drawn:
            break
        points = {v: support_point(v).astype(v.dtype) for v in drawn}
        graph = clone_replace(graph, points, rebuild_strict=False)
    return graph


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
        graphs, labels = _terms_of_plate(structure, first, plate.n_elements)
        parts = structure.terms.parts
        of_plate = [
            p for p, v in zip(parts, self.layout.variables, strict=True) if v.name in plate.names
        ]
        sums, summed = _by_element(graphs, labels)
        # whether the density of each element is normal
        self.is_normal = are_quadratic(summed, of_plate)
        with quietly():
            self._each = _Evaluated(parts, self._is_local, summed, sums)
            self._place(model, structure)
            self._each.measure([value[None, None] for value in self._fixed])
            self._common = self._with_common_nodes(parts, graphs, labels)

    def _with_common_nodes(
        self, parts: Sequence[Variable], graphs: Sequence[Variable], labels: Sequence[Any]
    ) -> _Evaluated | None:
        """Return the program for nodes that all elements have in common, if it does less work."""
        sizes = [v.size for v in self.layout.variables if v.name in self.plate.names]
        if self.plate.positions.shape[1] != 1 or sizes != [self.plate.n_elements]:
            return None
        (k,) = (k for k, v in enumerate(self.layout.variables) if v.name in self.plate.names)
        try:
            single, graphs = with_common_value(graphs, parts[k])
            parts = [single if j == k else part for j, part in enumerate(parts)]
            found = [
                each
                for graph, label in zip(graphs, labels, strict=True)
                for each in products(graph, parts, label, self.plate.n_elements)
            ]
            every = np.concatenate([matrix for matrix, _ in found], axis=1)
            _, first, same = np.unique(every, axis=0, return_index=True, return_inverse=True)
            self.first, self.same = first, np.ravel(same)
            sums = [_Matrix(matrix[first]) for matrix, _ in found]
            evaluated = _Evaluated(parts, self._is_local, [f for _, f in found], sums)
            point = [value[None, None] for value in self._fixed]
            point[k] = point[k].ravel()[:1].reshape(single.type.shape)[None, None]
            evaluated.measure(point)
            if not self._agrees(evaluated, point[k].reshape(1, 1, 1, 1)):
                return None
        except (NotBatchedError, NotImplementedError, ValueError, TypeError, IndexError):
            return None  # as for elements that are taken one by one, such as ``mu[1]``
        evaluated.n_numbers += sum(each.matrix.size for each in sums) // _PER_PRODUCT
        return evaluated if evaluated.n_numbers < _LESS_WORK * self._each.n_numbers else None

    def _agrees(self, common: _Evaluated, node: Floats) -> bool:
        """Return whether the densities of all elements at a common node are their own ones."""
        x = np.zeros((1, self.layout.size))
        for variable, value in zip(self.layout.variables, self._fixed, strict=True):
            x[:, variable.positions] = value.reshape(1, -1)
        apart = self._values(self._each, x, np.repeat(node, self.plate.n_elements, axis=2))
        together = self._values(common, x, node)[..., self.same]
        is_known = ~np.isnan(together)  # others are never taken from the common program
        return bool(np.allclose(together[is_known], apart[is_known], 1e-6, 1e-6))

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
        graphs = [_without_draws(graph) for graph in graphs]
        batched = self._each.batched(structure.terms.parts, graphs)
        self._where, self._where_arrays = self._each.program([], batched)

    # evaluation -------------------------------------------------------------------------------

    @property
    def has_common_nodes(self) -> bool:
        """Whether densities cost much less at nodes that all elements have in common."""
        return self._common is not None

    @property
    def n_numbers(self) -> int:
        """How many numbers the operations of all elements give at one node of one point."""
        return (self._common or self._each).n_numbers

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

    @cached_property
    def _is_variable(self) -> bool:
        """Whether the elements are those of a single variable, in their order."""
        (variable, *others) = [v for v in self.layout.variables if v.name in self.plate.names]
        own = variable.start + np.arange(variable.size)
        return not others and np.array_equal(self.plate.positions, own[:, None])

    def _local(self, variable: FlatVariable, k: int, nodes: Floats) -> Floats:
        n, m, n_elements = nodes.shape[:3]
        if n_elements < self.plate.n_elements:  # one node for all
            return nodes.reshape(n, m, *[1] * len(variable.shape))
        if self._is_variable:
            return nodes.reshape(n, m, *variable.shape)
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
        """Return the log density of every element at nodes, shape ``(n, m, n_elements)``.

        Of nodes with shape ``(n, m, 1, 1)``, which all elements have in common, it is that of the
        distinct elements, ``first``.
        """
        if nodes.shape[2] == self.plate.n_elements or self._common is None:
            total = self._values(self._each, x, nodes)
        else:
            total = self._values(self._common, x, nodes)
            if (unknown := np.isnan(total).any(axis=(1, 2))).any():
                shape = (int(unknown.sum()), nodes.shape[1], self.plate.n_elements, 1)
                every = np.broadcast_to(nodes[unknown], shape)
                total[unknown] = self._values(self._each, x[unknown], every)[..., self.first]
        total[np.isnan(total)] = -np.inf
        return total

    def _values(self, evaluated: _Evaluated, x: Floats, nodes: Floats) -> Floats:
        n_elements = self.plate.n_elements if evaluated is self._each else self.first.size
        total = np.zeros((*nodes.shape[:2], n_elements))
        for rows, part in _blocks(nodes, evaluated.largest):
            terms = evaluated.values(*self.inputs(x[rows], nodes[rows, part]), *evaluated.arrays)
            with np.errstate(all="ignore"):
                for summed, term in zip(evaluated.sums, terms, strict=True):
                    summed.add(total[rows, part], term)
        return total

    def gradient(self, x: Floats, nodes: Floats, weight: Floats) -> Floats:
        """Return the weighted sums of the elements' gradients with respect to the globals.

        Of common nodes, the weights are those of distinct elements.
        """
        if nodes.shape[2] == self.plate.n_elements or self._common is None:
            return self._gradient(self._each, x, nodes, weight)
        gradient = self._gradient(self._common, x, nodes, weight)
        if (wrong := ~np.isfinite(gradient).all(axis=1)).any():
            # some nodes have no weight and a density without derivatives
            every = np.zeros((int(wrong.sum()), nodes.shape[1], self.plate.n_elements))
            every[..., self.first] = weight[wrong]
            best = np.take_along_axis(nodes[wrong, :, 0, 0], every.argmax(axis=1), axis=1)
            nodes = np.where(every > 0.0, nodes[wrong, :, :, 0], best[:, None])[..., None]
            gradient[wrong] = self._gradient(self._each, x[wrong], nodes, every)
        return gradient

    def _gradient(self, evaluated: _Evaluated, x: Floats, nodes: Floats, weight: Floats) -> Floats:
        gradient = np.zeros((len(x), self.layout.size))
        variables = [
            v
            for v, is_local in zip(self.layout.variables, self._is_local, strict=True)
            if not is_local
        ]
        for rows, part in _blocks(nodes, evaluated.largest):
            weights = [summed.spread(weight[rows, part]) for summed in evaluated.sums]
            inputs = self.inputs(x[rows], nodes[rows, part])
            found = evaluated.slopes(*inputs, *weights, *evaluated.slope_arrays)
            for variable, slope in zip(variables, found, strict=True):
                n = len(gradient[rows])
                whole = np.broadcast_to(slope, (n, 1, *variable.shape))
                gradient[rows, variable.positions] += whole.reshape(n, -1)
        return gradient

    def places(self, x: Floats) -> tuple[Floats, Floats]:
        """Return location and scale of the prior of the coordinates.

        Both have shape ``(n, n_elements, n_coordinates)``.
        """
        found = self._where(*self.inputs(x, None), *self._where_arrays)
        if self._is_variable:
            location, scale = (self._of_variable(value, x, self._names[0]) for value in found)
            return np.where(np.isfinite(location), location, 0.0)[..., None], scale[..., None]
        every = np.zeros((2, len(x), self.layout.size))
        by_name = {v.name: v for v in self.layout.variables}
        for k, value in enumerate(found):
            name = self._names[k // 2]
            every[k % 2][:, by_name[name].positions] = self._of_variable(value, x, name)
        location, scale = every[..., self.plate.positions]
        return np.where(np.isfinite(location), location, 0.0), scale

    def _of_variable(self, value: Any, x: Floats, name: str) -> Floats:
        """Return a number for each element of a variable at each point, shape ``(n, size)``."""
        (shape,) = [v.shape for v in self.layout.variables if v.name == name]
        value = np.asarray(value, float)
        if value.ndim < 2 or value.ndim == len(shape):  # it depends on no variable
            value = value[(None, None)]
        whole: Floats = np.broadcast_to(value, (len(x), 1, *shape)).reshape(len(x), -1)
        return whole


def _blocks(nodes: Floats, largest: int) -> Iterator[tuple[slice, slice]]:
    """Return rows and nodes that are evaluated together."""
    (n, m), most = nodes.shape[:2], max(_LARGEST // largest, 1)
    n_rows, n_nodes = max(most // m, 1), min(most, m)
    for k in range(0, n, n_rows):
        for j in range(0, m, n_nodes):
            yield slice(k, k + n_rows), slice(j, j + n_nodes)


def _terms_of_plate(
    structure: Structure, first: int, n: int
) -> tuple[list[Variable], list[NDArray[np.int64]]]:
    """Return the terms with numbers of a plate, and the element of each number, -1 for none."""
    graphs, found = list[Variable](), list[NDArray[np.int64]]()
    for term, labels in zip(structure.terms.terms, structure.labels, strict=True):
        own = np.where((labels >= first) & (labels < first + n), labels - first, -1)
        if (own < 0).all():
            continue
        graph = term.graph
        if any(s is None for s in graph.type.shape):
            graph = pt.specify_shape(graph, labels.shape)
        graphs.append(graph)
        found.append(own)
    return graphs, found


def _by_element(
    graphs: Sequence[Variable], labels: Sequence[NDArray[np.int64]]
) -> tuple[list[_Summed], list[Variable]]:
    """Return how terms are summed, and the terms summed along axes of one element before."""
    sums, summed = list[_Summed](), list[Variable]()
    for graph, own in zip(graphs, labels, strict=True):
        # axes of which all numbers belong to the same elements; those that no element has are left
        same = [k for k in range(own.ndim) if (own == own.take([0], axis=k)).all()]
        for k in reversed(same):
            own = np.take(own, 0, axis=k)
        summed.append(graph.sum(axis=same) if same else graph)
        sums.append(_Summed(own.ravel(), own.shape))
    return sums, summed
