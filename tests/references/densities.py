"""References of all kinds, and models, for the tests of their compiled form."""

import numpy as np

import pm_evidence as pe
from pm_evidence.core.shape import Shape
from pm_evidence.references.fitted import StudentFit
from pm_evidence.references.mixture import StudentMixture
from pm_evidence.references.stretched import Stretch, StretchedFit


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


def references(d):
    """Every kind of density that has a compiled form, in ``d`` dimensions, by name."""
    rng = np.random.default_rng(2)
    dense = StudentFit(Shape(rng.normal(size=d), lower(d)), 5 + 2 * d)
    column = StudentFit(Shape(rng.normal(size=d), rng.uniform(0.5, 2.0, (d, 1))), 3)
    heavy = np.arange(d) % 2 == 0
    stretch = Stretch(heavy, rng.normal(size=d), rng.uniform(0.5, 2.0, d))
    normal = pe.references.Normal(rng.normal(size=d), lower(d) @ lower(d).T)
    student = pe.references.StudentT(rng.normal(size=d), np.ones(d), dof=2.5)
    mixed = [dense, StretchedFit(column, stretch), column]
    return {
        "dense": dense,
        "column": column,
        "stretched": StretchedFit(dense, stretch),
        "mixture": StudentMixture.of(mixed, np.array([0.0, 1.0, -2.0])),
        "normal": normal,
        "student_t": student,
        "given mixture": pe.references.Mixture([normal, student], [1.0, 2.0]),
    }
