"""The contracts are what the package's own objects do, and what samplers ask of others'."""

import inspect

from pm_evidence.core import contracts
from pm_evidence.families.gaussian import Autoregression, Gaussian, MovingGaussian
from pm_evidence.families.lattice.ising import SpinHeatBath, Spins
from pm_evidence.families.lattice.lattice import LatticePath
from pm_evidence.families.lattice.potts import Colours
from pm_evidence.families.lattice.target import Ising, Potts, SwendsenWang
from pm_evidence.families.rbm.gibbs import BlockGibbs, UnitMetropolis
from pm_evidence.kernels.cycle import Cycle
from pm_evidence.kernels.hmc import HMC
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.kernels.random_walk import RandomWalk
from pm_evidence.paths.geometric import EstimatedPath, GeometricPath
from pm_evidence.targets.layout import Particles
from pm_evidence.targets.model.target import PyMCTarget

TUNED = (HMC, RandomWalk, Cycle, PseudoMarginal)
OURS = {
    contracts.State: (Particles, Spins, Colours),
    contracts.Path: (GeometricPath, EstimatedPath, MovingGaussian, LatticePath),
    contracts.Kernel: (*TUNED, Autoregression, SpinHeatBath, SwendsenWang),
    contracts.Tunable: TUNED,
    contracts.BatchedKernel: (SpinHeatBath, BlockGibbs),
    contracts.PerMemberKernel: (BlockGibbs, UnitMetropolis),
    contracts.Bridgeable: (EstimatedPath,),
    contracts.HasPosterior: (GeometricPath,),
    contracts.Target: (Gaussian, Ising, Potts, PyMCTarget),
}
PAIRS = [(contract, kind) for contract, kinds in OURS.items() for kind in kinds]


def test_our_own_objects_have_every_method_with_its_parameters():
    """Samplers call by the contract: a parameter of another name fails in the middle of a run."""
    for contract, kind in PAIRS:
        for name, method in vars(contract).items():
            if not inspect.isfunction(method) or name in ("__init__", "__subclasshook__"):
                continue
            assert callable(getattr(kind, name, None)), f"{kind.__name__} lacks {name}"
            wanted = list(inspect.signature(method).parameters)
            found = list(inspect.signature(getattr(kind, name)).parameters)
            assert found[: len(wanted)] == wanted, f"{kind.__name__}.{name}"
