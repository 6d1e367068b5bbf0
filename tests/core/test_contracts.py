"""The contracts are what the package's own objects do, and what samplers ask of others'."""

import inspect

from pm_evidence.core import contracts
from pm_evidence.core.contracts import FindsSteps, Growing, Reseedable
from pm_evidence.families.gaussian.target import Autoregression, Gaussian, MovingGaussian
from pm_evidence.families.lattice.cluster_kernels import SwendsenWang
from pm_evidence.families.lattice.ising import SpinHeatBath, Spins
from pm_evidence.families.lattice.path import LatticePath
from pm_evidence.families.lattice.potts import Colours
from pm_evidence.families.lattice.target import Ising, Potts
from pm_evidence.families.rbm.gibbs import BlockGibbs, UnitMetropolis
from pm_evidence.families.rbm.unit_path import UnitByUnitPath
from pm_evidence.kernels.cycle import Cycle
from pm_evidence.kernels.hmc import HMC
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.kernels.random_walk import RandomWalk
from pm_evidence.paths.data_points import DataPointsPath
from pm_evidence.paths.geometric import EstimatedPath, GeometricPath
from pm_evidence.targets.layout import Particles
from pm_evidence.targets.model.target import PyMCTarget
from tests.paths.chain import ChainPath, chain

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


def test_kernels_are_told_by_their_methods():
    """Tempering refuses some, and a pilot tunes those that learn."""
    assert isinstance(SpinHeatBath(), contracts.BatchedKernel)
    assert not isinstance(HMC(), contracts.BatchedKernel)
    assert isinstance(BlockGibbs(), contracts.PerMemberKernel)
    assert not isinstance(SpinHeatBath(), contracts.PerMemberKernel)
    assert isinstance(HMC(), contracts.Tunable)
    assert not isinstance(SpinHeatBath(), contracts.Tunable)


def test_paths_on_which_something_is_added_say_what_they_can_do():
    """Samplers ask by these contracts: a path that lacks a method would be treated as another."""
    for path, expected in (
        (GeometricPath(None), ()),
        (DataPointsPath(None), (FindsSteps, Growing)),
        (ChainPath(chain()), (Growing,)),
    ):
        found = tuple(kind for kind in (FindsSteps, Growing, Reseedable) if isinstance(path, kind))
        assert found == expected, path
    assert hasattr(UnitByUnitPath, "reseeded")
    assert hasattr(UnitByUnitPath, "can_reseed")
