"""Components of a model that can be relabelled, such as those of a mixture of normals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.targets.layout import FlatVariable, shape_of

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Relabelling:
    """All permutations of labels, as linear maps that preserve volumes."""

    names: tuple[str, ...]  # the variables whose components are relabelled together
    maps: Floats  # shape (k!, d, d): a point ``x`` is mapped to ``maps[i] @ x``

    def images(self, x: Floats) -> Floats:
        """Return the images of every row of ``x``, shape ``(k!, n, d)``."""
        images: Floats = x @ self.maps.transpose(0, 2, 1)
        return images

    def shuffled(self, x: Floats, rng: np.random.Generator) -> Floats:
        """Return every row of ``x`` with labels drawn at random, each permutation equally often."""
        n, n_maps = len(x), len(self.maps)
        chosen = (rng.permutation(n) + rng.integers(n_maps)) % n_maps
        images: Floats = np.einsum("nij,nj->ni", self.maps[chosen], x)
        return images


# Numbers of components, the largest first. A density that is averaged over all labellings costs k!
# times as much; beyond 4 components, this is too much.
_COMPONENTS = (4, 3, 2)
# Largest number of choices of variables that are tested for each number of components.
_MOST_CHOICES = 64
# Number of prior draws at which invariance is tested, and the largest relative difference.
_POINTS, _ROUNDING = 5, 1e-9


@dataclass(frozen=True, slots=True)
class _Labelled:
    """A variable, and those of its axes along which its components lie."""

    variable: FlatVariable  # the variable, in unconstrained coordinates
    # One axis, or several with the same labels, as those of a transition matrix
    axes: tuple[int, ...]

    def map_of(self, labels: Sequence[int]) -> Floats:
        """Return the map of a permutation, shape ``(size, size)``.

        An axis that a transform to the simplex has shortened by one holds centred logarithms, of
        which the last is minus the sum of the others.
        """
        shape, k = self.variable.shape, len(labels)
        moved = np.eye(self.variable.size).reshape(shape + shape)
        for axis in self.axes:
            one = np.eye(k)[list(labels)]
            if shape[axis] < k:
                one = one[: k - 1] @ np.vstack([np.eye(k - 1), -np.ones(k - 1)])
            moved = np.moveaxis(np.tensordot(one, moved, (1, axis)), 0, axis)
        return moved.reshape(self.variable.size, self.variable.size)


def find_relabelling(target: Any) -> tuple[Relabelling | None, int]:
    """Return the permutations of components that leave prior and likelihood unchanged.

    Variables with an axis of the same length are tried together, first all of them and then fewer.
    A permutation that changes neither of the two log densities at a few prior draws changes them
    nowhere if they are analytic. What is done with it is right even if it changes them elsewhere.
    """
    possible = {k: list(islice(_choices(target, k), _MOST_CHOICES)) for k in _COMPONENTS}
    if not any(possible.values()):
        return None, 0
    points = target.draw(_POINTS, np.random.SeedSequence(_POINTS)).x
    spent = len(points)
    for k, choices in possible.items():
        exchanged = [_whole_map(target, choice, [1, 0, *range(2, k)]) for choice in choices]
        spent += len(choices)
        for choice, kept in zip(choices, _unchanged(target, points[:1], exchanged), strict=True):
            if not kept:
                continue
            maps = [_whole_map(target, choice, labels) for labels in permutations(range(k))]
            spent += len(maps) * len(points)
            if all(_unchanged(target, points, maps)):
                names = tuple(labelled.variable.name for labelled in choice)
                return Relabelling(names, np.array(maps)), spent
    return None, spent


def _choices(target: Any, k: int) -> Iterator[tuple[_Labelled, ...]]:
    """Return choices of variables with axes for ``k`` components, those of most variables first."""
    options = [
        [
            _Labelled(variable, axes)
            for axes in _axes(shape_of(target.model[variable.name]), variable.shape, k)
        ]
        for variable in target.layout.variables
    ]
    options = [each for each in options if each]
    for n in range(len(options), 0, -1):
        for chosen in combinations(options, n):
            yield from product(*chosen)


def _axes(shape: tuple[int, ...], unconstrained: tuple[int, ...], k: int) -> list[tuple[int, ...]]:
    """Return the axes of a variable that may have ``k`` components: all of them, or each alone."""
    if len(shape) != len(unconstrained):
        return []
    found = [i for i, n in enumerate(shape) if n == k and unconstrained[i] in (k, k - 1)]
    alone: list[tuple[int, ...]] = [(axis,) for axis in found]
    return [tuple(found), *alone] if len(found) > 1 else alone


def _whole_map(target: Any, choice: Sequence[_Labelled], labels: Sequence[int]) -> Floats:
    """Return the map of a permutation for all coordinates, shape ``(d, d)``."""
    whole = np.eye(target.n_dim)
    for labelled in choice:
        place = labelled.variable.positions
        whole[place, place] = labelled.map_of(labels)
    return whole


def _unchanged(target: Any, points: Floats, maps: Sequence[Floats]) -> list[bool]:
    """Return which of the maps change neither log prior nor log likelihood at any of the points."""
    if not maps:
        return []
    before = target.evaluate(points).log_density
    images = np.concatenate([points @ each.T for each in maps])
    after = target.evaluate(images).log_density.reshape(len(maps), len(points), -1)
    same = np.isclose(after, before, rtol=_ROUNDING, atol=_ROUNDING)
    return [bool(each) for each in same.all(axis=(1, 2))]
