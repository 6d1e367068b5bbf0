"""What is known of a posterior: densities at its peaks and along its ridges."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.relabelling import Relabelling
from pm_evidence.references.mixture import Component, StudentMixture
from pm_evidence.references.relabelled import Relabelled

__all__ = ["Survey"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Survey:
    """What a survey found in addition to the population.

    Parameters
    ----------
    components : list of Component
        Densities at peaks and along ridges.
    log_mass : ndarray
        Approximate log evidence of the region that each of them covers, in nats.
    n_peaks : int
        Number of distinct peaks that ascents ended at.
    unbounded : bool
        Whether the mass along a ridge grows far beyond that at its start and the evidence.
    n_evaluations : int
        Evaluations of the density and of its gradient.
    complete : bool
        Whether the components together approximate the whole posterior, beside which nothing is
        searched for.
    relabelling : Relabelling, optional
        Permutations of components under which the posterior does not change. All components of the
        findings are averaged over them.
    reference : StudentMixture, optional
        What annealing starts from, if the findings are complete: its gradient is known.
    more_peaks : bool
        Whether peaks that were not found are to be expected, because there were ever more.
    """

    components: list[Component] = field(default_factory=list)
    log_mass: Floats = field(default_factory=lambda: np.empty(0))
    n_peaks: int = 0
    unbounded: bool = False
    n_evaluations: int = 0
    complete: bool = False
    relabelling: Relabelling | None = None
    reference: StudentMixture | None = None
    more_peaks: bool = False

    def joined_by(self, other: "Survey") -> "Survey":
        """Return these findings with the components of others."""
        components = [*self.components, *self.relabelled(other.components)]
        return replace(
            self, components=components, log_mass=np.append(self.log_mass, other.log_mass)
        )

    def relabelled(self, fits: Sequence[Component]) -> Sequence[Component]:
        """Return densities averaged over all labellings, if there are such."""
        if self.relabelling is None:
            return fits
        return [Relabelled(fit, self.relabelling) for fit in fits]

    def aligned(self, draws: Floats) -> Floats:
        """Return draws in the labelling of the first component, if there are several labellings."""
        first = self.components[0] if self.components else None
        return first.aligned(draws) if isinstance(first, Relabelled) else draws
