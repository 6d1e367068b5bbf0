"""The contracts are what the package's own objects do, and what samplers ask of others'."""

import inspect
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from pm_evidence.core import contracts
from pm_evidence.families.gaussian.kernel import Autoregression
from pm_evidence.families.gaussian.path import MovingGaussian
from pm_evidence.families.lattice.cluster_kernels import SwendsenWang
from pm_evidence.families.lattice.ising_kernels import SpinHeatBath
from pm_evidence.families.lattice.ising_state import Spins
from pm_evidence.families.lattice.path import LatticePath
from pm_evidence.families.lattice.potts_state import Colours
from pm_evidence.kernels.cycle import Cycle
from pm_evidence.kernels.hmc import HMC
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.kernels.random_walk import RandomWalk
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.targets.points import Particles

OURS = {
    contracts.State: (Particles, Spins, Colours),
    contracts.Path: (GeometricPath, MovingGaussian, LatticePath),
    contracts.Kernel: (
        HMC,
        RandomWalk,
        Cycle,
        PseudoMarginal,
        Autoregression,
        SpinHeatBath,
        SwendsenWang,
    ),
    contracts.StageKernel: (SpinHeatBath,),
}
PAIRS = [(contract, kind) for contract, kinds in OURS.items() for kind in kinds]


@pytest.mark.parametrize(("contract", "kind"), PAIRS, ids=lambda part: part.__name__)
def test_our_own_objects_have_every_method_with_its_parameters(contract, kind):
    """Samplers call by the contract: a parameter of another name fails in the middle of a run."""
    for name, method in vars(contract).items():
        if not inspect.isfunction(method) or name in ("__init__", "__subclasshook__"):
            continue
        assert callable(getattr(kind, name, None)), f"{kind.__name__} lacks {name}"
        wanted = list(inspect.signature(method).parameters)
        found = list(inspect.signature(getattr(kind, name)).parameters)
        assert found[: len(wanted)] == wanted, f"{kind.__name__}.{name}"


def test_kernels_of_many_stages_are_told_by_their_method():
    assert isinstance(SpinHeatBath(), contracts.StageKernel)
    assert not isinstance(HMC(), contracts.StageKernel)


def test_a_plan_has_as_many_stages_as_kernels():
    plan = contracts.Plan(np.array([0.0, 0.5, 1.0]), (HMC(), HMC()))
    assert plan.n_stages == 2 and plan.fit is None and plan.n_evaluations == 0


def test_what_is_reported_cannot_be_changed():
    info = contracts.MoveInfo(0.5, 10)
    assert (info.n_nan, info.reach, info.parts) == (0, 0.0, ())
    with pytest.raises(FrozenInstanceError):
        info.acceptance = 1.0
