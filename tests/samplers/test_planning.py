"""Schedules of the user's and learnt ones, and the plans that they lead to."""

from dataclasses import replace

import numpy as np
import pytest

from pm_evidence.core.contracts import AnnealingSetup
from pm_evidence.families.lattice.ising import SpinHeatBath
from pm_evidence.families.lattice.lattice import LatticePath
from pm_evidence.families.lattice.target import Ising
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.planning import (
    ADAPTIVE,
    SM08,
    FixedSchedule,
    Linear,
    Planning,
)
from pm_evidence.samplers.smc import SMC
from pm_evidence.schedules import linear, sm08
from tests.kernels.exact import gaussian

BETA = np.array([0.0, 0.2, 0.6, 1.0])


@pytest.fixture(scope="module")
def lattice():
    """A kernel with nothing to tune: there is no pilot but for samplers that ask for one."""
    return AnnealingSetup(LatticePath(Ising(4, 0.3)), SpinHeatBath(), n_stages=50)


@pytest.fixture(scope="module")
def model():
    from pm_evidence.kernels.random_walk import RandomWalk

    return AnnealingSetup(gaussian().path, RandomWalk(), n_pilot=300)


def check_plan(plan):
    assert plan.beta[0] == 0.0 and plan.beta[-1] == 1.0 and (np.diff(plan.beta) > 0.0).all()
    assert len(plan.kernels) == len(plan.beta) - 1 and plan.population is None


def test_a_fixed_schedule_is_kept_and_its_kernels_are_tuned(model):
    coarse, plan = FixedSchedule(BETA).plan(Planning(model, AIS(), 100, 1))
    check_plan(plan)
    np.testing.assert_array_equal(plan.beta, BETA)
    assert coarse is plan and plan.n_evaluations > 0
    assert all(kernel.shape is not None for kernel in plan.kernels)


@pytest.mark.parametrize("n_stages", [50, None])  # None: a pilot finds adaptive schedules
def test_a_kernel_without_anything_to_tune_needs_no_pilot(lattice, n_stages):
    lattice = replace(lattice, n_stages=n_stages)
    coarse, plan = FixedSchedule(BETA).plan(Planning(lattice, AIS(), 100, 1))
    assert coarse is plan and plan.n_evaluations == 0
    assert plan.kernels == (lattice.kernel,) * 3


def test_an_adaptive_schedule_of_such_a_kernel_comes_from_a_trial_run(lattice):
    """Of as many stages as the sampler, or else the target, asks for; the same for equal seeds."""
    _, plan = ADAPTIVE.plan(Planning(lattice, AIS(), 100, 1))
    check_plan(plan)
    assert len(plan.kernels) == 50
    assert len(ADAPTIVE.plan(Planning(lattice, AIS(n_stages=30), 100, 1))[1].kernels) == 30
    np.testing.assert_array_equal(
        ADAPTIVE.plan(Planning(lattice, AIS(), 100, 1))[1].beta, plan.beta
    )


@pytest.mark.parametrize(("schedule", "make"), [(Linear(), linear), (SM08(), sm08)])
def test_named_schedules_have_the_stages_of_the_sampler_or_of_the_target(lattice, schedule, make):
    for sampler, n_stages in ((AIS(n_stages=30), 30), (AIS(), 50)):
        assert Planning(lattice, sampler, 100, 1).n_stages == n_stages
        _, plan = schedule.plan(Planning(lattice, sampler, 100, 1))
        np.testing.assert_array_equal(plan.beta, make(n_stages))
        assert plan.schedule.name == make.__name__ and np.isnan(plan.schedule.predicted_variance)


def test_a_model_has_200_stages_unless_the_sampler_says_otherwise(model):
    assert Planning(model, AIS(), 100, 1).n_stages == 200
    assert Planning(model, SMC(n_stages=12), 100, 1).n_stages == 12


def test_a_plan_says_how_its_schedule_was_found(lattice, model):
    """The prediction is finite wherever variances were learnt."""
    for setup, options in (
        (lattice, {"pilot_stages": 400, "pilot_paths": 256}),
        (model, {"ess": 0.5}),
    ):
        _, plan = ADAPTIVE.plan(Planning(setup, AIS(), 100, 1))
        assert (plan.schedule.name, plan.schedule.options) == ("adaptive", options)
        assert plan.schedule.predicted_variance > 0.0
        assert plan.path_variance is None  # it would be sent to the workers with every block


def test_the_trial_run_of_a_lattice_finds_the_variance_of_free_spins(lattice):
    """At beta 0 the energy of 32 bonds of strength 0.3 has the variance 32 * 0.09.

    The variance of 256 sums has an error of 9 %, so that 45 % are five errors.
    """
    run = Planning(lattice, AIS(), 100, 3)
    trial = run.trial(40, 256)
    found = trial.path_variance
    np.testing.assert_array_equal(found.beta, linear(40))
    assert found.variance.shape == (40,)
    assert found.variance[0] == pytest.approx(32 * 0.09, rel=0.45)
    assert trial.n_evaluations > 0 and run.untuned(trial.beta).kernels == trial.kernels


def test_stages_of_ais_have_about_equal_length_on_the_path_of_the_pilot(model):
    """Equal parts of the pilot's stages have not: its last stage is as short as it happens to be.

    A tenth of the stages lies evenly in beta, so that lengths are equal but for that.
    """
    found = Planning(model, AIS(), 1000, 1).piloted().path_variance
    _, plan = ADAPTIVE.plan(Planning(model, AIS(n_stages=60), 1000, 1))
    length = np.append(0.0, np.cumsum(np.sqrt(found.variance) * np.diff(found.beta)))
    part = np.diff(np.interp(plan.beta, found.beta, length)) / length[-1] * plan.n_stages
    assert part.max() < 1.0 / 0.85 and np.median(part) > 0.9


@pytest.mark.parametrize("name", ["lattice", "model"])
def test_an_adaptive_schedule_of_islands_comes_from_a_pilot(name, request):
    """Islands follow the pilot's plan as it is."""
    setup = request.getfixturevalue(name)
    coarse, plan = ADAPTIVE.plan(Planning(setup, SMC(), 100, 1))
    check_plan(plan)
    np.testing.assert_array_equal(coarse.beta, plan.beta)
    again, _ = ADAPTIVE.plan(Planning(setup, SMC(), 100, 1))
    np.testing.assert_array_equal(again.beta, coarse.beta)
