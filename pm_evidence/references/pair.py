"""Two models as one target: the posterior of the first is the reference for that of the second."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.references.alignment import Alignment
from pm_evidence.references.linking import LinkingDensity
from pm_evidence.references.pair_density import Side, pair_density
from pm_evidence.targets.compile.density import CompiledDensity, log_densities
from pm_evidence.targets.pair_layout import PairLayout
from pm_evidence.targets.points import Particles

__all__ = ["PairTarget"]

Floats = NDArray[np.float64]


class PairTarget:
    """Two models whose two log densities are ``log f_a`` and ``log f_b - log f_a``.

    ``f`` is prior times likelihood of a model, times the linking density of the coordinates that
    only the other model has. Both are densities of all coordinates, and their integrals are the
    evidences of the models. Shared coordinates are those of the first model; an affine map gives
    those of the second one, which aligns the two posteriors (targeted free energy perturbation,
    Jarzynski 2002; warp bridges, Meng and Schilling 2002).

    Parameters
    ----------
    models : sequence of two PyMCTarget
        The models ``a`` and ``b``; all their coordinates are continuous.
    layout : PairLayout
        Their coordinates.
    linking : sequence of two LinkingDensity
        Density, under each model, of the coordinates that only the other one has.
    alignment : Alignment
        Maps the shared coordinates of the first model to those of the second.
    """

    def __init__(
        self,
        models: Sequence[Any],
        layout: PairLayout,
        linking: Sequence[LinkingDensity],
        alignment: Alignment,
    ) -> None:
        self.models, self.layout, self.linking = tuple(models), layout, tuple(linking)
        self.alignment = alignment
        self.n_dim = layout.n_dim
        self.continuous, self.discrete = np.arange(self.n_dim), np.array([], np.int64)
        self.lower = self.upper = np.empty(0)
        self.period = layout.period

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.models, self.layout, self.linking, self.alignment)

    @cached_property
    def density(self) -> CompiledDensity:
        """Both log densities, without gradients."""
        return self._both([model.density for model in self.models])

    @cached_property
    def differentiable(self) -> CompiledDensity | None:
        """Both log densities with gradients; None if a model has none."""
        densities = [model.differentiable for model in self.models]
        return None if None in densities else self._both(densities)

    def _both(self, densities: Sequence[Any]) -> CompiledDensity:
        nothing = np.array([], np.int64), Alignment.of("none", *np.empty((2, 0, 0)))
        maps = nothing, (self.layout.aligned_of(1), self.alignment)
        facts = zip(densities, self.layout.of_model, self.models, self.linking, maps, strict=True)
        sides = [
            Side(density, positions, model.log_order_mass, linking, *mapped)
            for density, positions, model, linking, mapped in facts
        ]
        return pair_density(sides, self.n_dim)

    def evaluate(self, x: Floats) -> Particles:
        """Return the points ``x``, shape ``(n, n_dim)``, with both log densities."""
        return Particles(x, log_densities(self, x), None)

    def completed(self, x: Floats, side: int, rng: np.random.Generator) -> Floats:
        """Return points of one model as points of both.

        Parameters
        ----------
        x : ndarray, shape (n, d)
            Points in the coordinates of the model.
        side : int
            0 for the first model, 1 for the second.
        rng : numpy.random.Generator
            Draws the coordinates that the model lacks, from their linking density.
        """
        points = np.zeros((len(x), self.n_dim))
        points[:, self.layout.of_model[side]] = x
        if side == 1:
            aligned = self.layout.aligned
            points[:, aligned] = self.alignment.back(points[:, aligned])
        self.linking[side].draw_into(points, rng)
        return points

    def wrap(self, x: Floats) -> Floats:
        """Return ``x`` with circular coordinates brought back to one period."""
        circular = self.period > 0
        if circular.any():
            x[:, circular] -= self.period[circular] * np.round(
                x[:, circular] / self.period[circular]
            )
        return x
