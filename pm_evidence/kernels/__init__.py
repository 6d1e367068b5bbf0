"""Moves of a whole population that leave a density of the path invariant."""

from typing import TYPE_CHECKING

from pm_evidence.core.lazy import names_from

if TYPE_CHECKING:  # they are imported when they are asked for
    from pm_evidence.families.gp_classification.latent import LatentHMC, RiemannianHMC
    from pm_evidence.families.lattice.ising import SpinMetropolis
    from pm_evidence.families.lattice.potts import ColourMetropolis
    from pm_evidence.families.rbm.gibbs import BlockGibbs
    from pm_evidence.kernels.cycle import Cycle
    from pm_evidence.kernels.discrete import DiscreteGibbs, IntegerWalk
    from pm_evidence.kernels.hmc import HMC
    from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
    from pm_evidence.kernels.random_walk import RandomWalk

__all__ = [
    "HMC",
    "BlockGibbs",
    "ColourMetropolis",
    "Cycle",
    "DiscreteGibbs",
    "IntegerWalk",
    "LatentHMC",
    "PseudoMarginal",
    "RandomWalk",
    "RiemannianHMC",
    "SpinMetropolis",
]

__getattr__, __dir__ = names_from(
    __name__,
    {
        "BlockGibbs": "pm_evidence.families.rbm.gibbs",
        "ColourMetropolis": "pm_evidence.families.lattice.potts",
        "Cycle": "pm_evidence.kernels.cycle",
        "DiscreteGibbs": "pm_evidence.kernels.discrete",
        "HMC": "pm_evidence.kernels.hmc",
        "IntegerWalk": "pm_evidence.kernels.discrete",
        "LatentHMC": "pm_evidence.families.gp_classification.latent",
        "PseudoMarginal": "pm_evidence.kernels.pseudo_marginal",
        "RandomWalk": "pm_evidence.kernels.random_walk",
        "RiemannianHMC": "pm_evidence.families.gp_classification.latent",
        "SpinMetropolis": "pm_evidence.families.lattice.ising",
    },
)
