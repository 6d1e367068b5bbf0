"""Targets that are no PyMC model: what a new one has to say, and settings that kernels share."""

import numpy as np
import pytest

from pm_evidence.families.gaussian import Gaussian
from pm_evidence.families.lattice.target import Ising, Potts
from pm_evidence.families.native import NativeTarget, OrderedKernel


class Bare(NativeTarget):
    n_dim = 2

    def annealing_setup(self, kernel):
        raise NotImplementedError


def test_what_a_target_need_not_say():
    target = Bare()
    assert target.log_prior_mass == 0.0
    assert target.sample_stats(np.zeros((3, 2))) == {}
    assert target.observed_data() == target.constant_data() == {}
    assert target.coords_and_dims() == ({}, {})


def test_what_a_target_must_say():
    """Without a setup there is no target; states are points in R^d unless it says otherwise."""
    with pytest.raises(TypeError, match="abstract method 'annealing_setup'"):
        NativeTarget()
    points = np.zeros((3, 2))
    np.testing.assert_array_equal(Bare().check(points), points)
    np.testing.assert_array_equal(Bare().posterior(points)["x"], points)
    with pytest.raises(ValueError, match="draws must hold at least one row of 2 finite numbers"):
        Bare().check(np.zeros((3, 4)))


@pytest.mark.parametrize("target", [Gaussian(), Ising((2, 4)), Potts((2, 4), 3)], ids=repr)
def test_ours_describe_the_variables_that_they_return(target):
    """A name of a dimension without coordinates, or of another length, cannot be stored."""
    draws = target.check(np.ones((5, *getattr(target, "sizes", ()))))
    variables = target.posterior(draws)
    coords, dims = target.coords_and_dims()
    assert set(dims) <= set(variables)
    for name, values in variables.items():
        assert len(values) == 5
        sizes = [len(coords[dim]) for dim in dims.get(name, [])]
        assert sizes == list(values.shape[1 : 1 + len(sizes)])
    assert all(values.shape == (5,) for values in target.sample_stats(draws).values())


# --- settings of kernels that visit the parts of a state in an order ---


def test_a_reversal_reverses_the_order_only():
    settings = OrderedKernel(3)
    assert settings.reversed() == OrderedKernel(3, backwards=True)
    assert settings.reversed().reversed() == settings
    assert settings.settings() == {"n_sweeps": 3.0}


@pytest.mark.parametrize("wrong", [{"n_sweeps": 0}, {"n_sweeps": 2.5}, {"backwards": "no"}])
def test_settings_that_cannot_be_used(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        OrderedKernel(**wrong)
