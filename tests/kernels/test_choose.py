"""The kernel that a model gets: one that cannot move a coordinate would leave it at its prior."""

from types import SimpleNamespace

import numpy as np
import pytest

from pm_evidence.kernels.cycle import Cycle, choose_kernel
from pm_evidence.kernels.discrete import MAX_GIBBS_SUPPORT, DiscreteGibbs, IntegerWalk
from pm_evidence.kernels.hmc import HMC
from pm_evidence.kernels.random_walk import RandomWalk
from tests.kernels.exact import gaussian, mixed, table


def target(n_continuous, *bounds, gradient=True):
    """Continuous coordinates first, then discrete ones with the given bounds."""
    lower, upper = np.array(bounds, dtype=float).reshape(-1, 2).T
    return SimpleNamespace(
        continuous=np.arange(n_continuous),
        discrete=np.arange(n_continuous, n_continuous + len(bounds)),
        lower=lower,
        upper=upper,
        differentiable=object() if gradient and n_continuous else None,
    )


def kinds(kernel):
    if isinstance(kernel, Cycle):
        return [type(part) for part in kernel.parts]
    return [type(kernel)]


def test_continuous():
    """HMC explores until it is frozen; without a gradient there is the random walk alone."""
    for name, expected in (("auto", HMC), ("hmc", HMC), ("random_walk", RandomWalk)):
        kernel = choose_kernel(target(3), name)
        assert kinds(kernel) == [expected], name
        assert expected is RandomWalk or kernel.exploring, name
    for name in ("auto", "random_walk"):
        assert kinds(choose_kernel(target(2, gradient=False), name)) == [RandomWalk], name
    with pytest.raises(ValueError, match="random_walk"):
        choose_kernel(target(2, gradient=False), "hmc")
    mine = RandomWalk(scale=0.3)
    assert choose_kernel(target(2), mine) is mine


@pytest.mark.parametrize("name", ["auto", "random_walk"])
def test_discrete(name):
    """No kernel for what is not there, whatever its name."""
    kernel = choose_kernel(target(0, (0, 1), (5, 8)), name)
    assert isinstance(kernel, DiscreteGibbs)
    assert np.array_equal(kernel.coordinates, [0, 1])
    assert np.array_equal(kernel.lower, [0, 5])
    assert np.array_equal(kernel.upper, [1, 8])


def test_wide_and_unbounded_support_is_walked():
    wide = MAX_GIBBS_SUPPORT
    kernel = choose_kernel(target(0, (0, np.inf), (0, wide), (0, wide - 1), (-np.inf, np.inf)))
    assert kinds(kernel) == [DiscreteGibbs, IntegerWalk]
    gibbs, walk = kernel.parts
    assert np.array_equal(gibbs.coordinates, [2])
    assert np.array_equal(walk.coordinates, [0, 1, 3])
    assert np.array_equal(walk.spread, np.ones(3))


@pytest.mark.parametrize(("name", "mover"), [("auto", HMC), ("random_walk", RandomWalk)])
def test_mixed_model_moves_every_coordinate(name, mover):
    kernel = choose_kernel(target(2, (0, 1), (0, np.inf)), name)
    assert kinds(kernel) == [mover, DiscreteGibbs, IntegerWalk]
    assert np.array_equal(kernel.parts[1].coordinates, [2])
    assert np.array_equal(kernel.parts[2].coordinates, [3])


def test_mistakes_are_named():
    for wrong in ("nuts", "", 3, None, HMC):
        with pytest.raises(ValueError, match="kernel must be one of"):
            choose_kernel(target(2), wrong)


@pytest.mark.slow
def test_real_targets():
    """The attributes that the stand-ins above pretend to have."""
    assert kinds(choose_kernel(gaussian().path.target, "hmc")) == [HMC]
    kernel = choose_kernel(mixed().path.target, "hmc")
    assert kinds(kernel) == [HMC, DiscreteGibbs, IntegerWalk]
    assert np.array_equal(kernel.parts[1].coordinates, [0])
    assert np.array_equal(kernel.parts[2].coordinates, [1])
    assert kinds(choose_kernel(table().path.target)) == [DiscreteGibbs]
