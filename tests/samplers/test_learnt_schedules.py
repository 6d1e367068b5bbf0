"""Learnt schedules of targets with and without kernels to tune."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.contracts import AnnealingSetup
from pm_evidence.families.lattice.ising import SpinHeatBath
from pm_evidence.families.lattice.lattice import LatticePath
from pm_evidence.kernels.random_walk import RandomWalk
from pm_evidence.runs.defaults import annealing_setup
from pm_evidence.samplers.planning import GMS13, Planning, VarOpt
from tests.kernels.exact import gaussian

QUICK = {"pilot_stages": 40, "pilot_paths": 64}
SCHEDULES = [VarOpt(**QUICK), VarOpt(largest_step=0.05, **QUICK), GMS13(**QUICK), GMS13(n_knots=2)]


def setups():
    return {
        "lattice": AnnealingSetup(
            LatticePath(pe.lattices.Ising(4, 0.3)), SpinHeatBath(), n_stages=50
        ),
        "gaussian": annealing_setup(pe.mixtures.Gaussian(), "auto"),
        "model": AnnealingSetup(gaussian().path, RandomWalk(), n_pilot=300),
    }


@pytest.mark.parametrize("name", ["lattice", "gaussian", "model"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_plans(name, schedule):
    """They rise from 0 to 1 in the number of stages asked for, and have a kernel for each."""
    coarse, plan = schedule.plan(Planning(setups()[name], pe.methods.AIS(n_stages=30), 100, 1))
    assert plan.beta.shape == (31,) and len(plan.kernels) == 30
    assert plan.beta[0] == 0.0 and plan.beta[-1] == 1.0 and (np.diff(plan.beta) > 0.0).all()
    assert plan.schedule.beta is plan.beta and plan.schedule.predicted_variance > 0.0
    assert plan.schedule.name == type(schedule).__name__.lower()
    assert coarse.n_evaluations > 0
    again = schedule.plan(Planning(setups()[name], pe.methods.AIS(n_stages=30), 100, 1))[1]
    np.testing.assert_array_equal(again.beta, plan.beta)
    if getattr(schedule, "largest_step", None):
        assert np.diff(plan.beta).max() <= schedule.largest_step * (1.0 + 1e-9)


def test_kernels_are_those_of_the_stage_of_the_pilot():
    """A second pilot along the new schedule would cost more than most runs."""
    coarse, plan = VarOpt().plan(Planning(setups()["model"], pe.methods.AIS(n_stages=40), 100, 1))
    assert coarse.n_stages < 40
    for beta, kernel in zip(plan.beta[1:], plan.kernels, strict=True):
        stage = int(np.flatnonzero(coarse.beta[1:] >= beta)[0])
        assert kernel is coarse.kernels[stage]


@pytest.mark.slow
def test_the_predicted_variance_is_that_of_a_run_whose_moves_draw_independently():
    """With tau = 0 every move of `pe.mixtures.Gaussian` is an exact draw.

    The sample variance of 4,000 nearly normal values has an error of 2.2 %, and the prediction one
    of about 3 % from the variances of the trial run: 15 % are four errors of both together.
    """
    dt = pe.sample_evidence(
        pe.mixtures.Gaussian(tau=0.0),
        method=pe.methods.AIS(n_stages=400, direction="forward"),
        schedule="varopt",
        draws=4000,
        target_mcse=None,
        random_seed=5,
        progressbar=False,
    )
    predicted = pe.to_record(dt).schedule.predicted_variance
    assert dt["work"]["forward"].values.var() == pytest.approx(predicted, rel=0.15)


def test_a_bound_too_small_for_the_stages_of_the_target_is_refused():
    """The lattice gives the number of stages here, which is known before the trial run."""
    schedule = VarOpt(largest_step=0.01)
    with pytest.raises(ValueError, match=r"at least 1 / n_stages = 0.02 for n_stages=50, got 0.01"):
        schedule.plan(Planning(setups()["lattice"], pe.methods.AIS(), 100, 1))
