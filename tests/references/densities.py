"""References of all kinds, and models, for the tests of their compiled form."""

from dataclasses import replace

import numpy as np

import pm_evidence as pe
from pm_evidence.core.numerics import Pattern
from pm_evidence.core.shape import Shape, SparseShape
from pm_evidence.references.mixture import Stretch, StudentFit, StudentMixture


class InPython:
    """A density of a user's own, without a compiled form."""

    def __init__(self, density):
        self.density = density

    def draw(self, n, rng):
        return self.density.draw(n, rng)

    def log_density(self, x):
        return self.density.log_density(x)


def lower(d, seed=1):
    rng = np.random.default_rng(seed)
    return np.tril(rng.normal(size=(d, d))) + 2.0 * np.eye(d)


def sparse_shape(d, seed=3):
    """A shape in an order of its own, some of whose elements are zero."""
    rng = np.random.default_rng(seed)
    is_used = np.tril(rng.random((d, d)) < 0.6, -1)
    is_used[-1] = True
    pattern = Pattern.of(is_used)
    diagonal, below = rng.uniform(0.5, 2.0, d), rng.normal(size=pattern.row.size)
    return SparseShape(rng.normal(size=d), rng.permutation(d), pattern, diagonal, below)


def references(d):
    """Every kind of density that has a compiled form, in ``d`` dimensions, by name."""
    rng = np.random.default_rng(2)
    dense = StudentFit(Shape(rng.normal(size=d), lower(d)), 5 + 2 * d)
    column = StudentFit(Shape(rng.normal(size=d), rng.uniform(0.5, 2.0, (d, 1))), 3)
    heavy = np.arange(d) % 2 == 0
    stretch = Stretch(heavy, rng.normal(size=d), rng.uniform(0.5, 2.0, d))
    normal = pe.references.Normal(rng.normal(size=d), lower(d) @ lower(d).T)
    student = pe.references.StudentT(rng.normal(size=d), np.ones(d), dof=2.5)
    sparse = StudentFit(sparse_shape(d), 4.0)
    mixed = [dense, replace(column, stretch=stretch), sparse, column]
    return {
        "dense": dense,
        "column": column,
        "stretched": replace(dense, stretch=stretch),
        "mixture": StudentMixture.of(mixed, np.array([0.0, 1.0, -0.5, -2.0])),
        "sparse": sparse,
        "normal": normal,
        "student_t": student,
        "given mixture": pe.references.Mixture([normal, student], [1.0, 2.0]),
    }
