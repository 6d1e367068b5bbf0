"""raise_log_likelihood: its arguments reach the paths, and its values lie below the exact ones."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.api.train_rbm import raise_log_likelihood
from pm_evidence.families.rbm.gibbs import BlockGibbs
from pm_evidence.testing import exact_log_z, sine_rbm
from tests.api.refusals import check_refusals

MACHINE = pe.rbm.RBM(*sine_rbm(16, 12), base="uniform")


def exact_draws(n):
    """Visible states drawn from the machine: for these the bound holds on average."""
    states = np.array(list(product([0, 1], repeat=16)), np.uint8)
    p = np.exp(-MACHINE.free_energy(states) - exact_log_z(*sine_rbm(16, 12)))
    return states[np.random.default_rng(1).choice(len(states), n, p=p / p.sum())]


VISIBLE = exact_draws(300)


def low(visible=VISIBLE, machine=MACHINE, **options):
    options = {"n_stages": 100, "random_seed": 1, "progressbar": False, **options}
    return raise_log_likelihood(machine, visible, **options)


def exact():
    return float(-MACHINE.free_energy(VISIBLE).mean()) - exact_log_z(*sine_rbm(16, 12))


@pytest.mark.parametrize("latent", ["full", "visible", "marginal"])
def test_many_stages_reach_the_exact_likelihood(latent):
    """Within 4 errors, seed 1, and 0.01 nats of bias; few stages are too low by far more."""
    machine = pe.rbm.RBM(*sine_rbm(16, 12), base="uniform", latent=latent)
    found = low(machine=machine, n_stages=1000)
    assert abs(found.average.value - exact()) < 4.0 * found.average.mcse + 0.01
    assert pe.rbm.raise_log_likelihood is raise_log_likelihood
    few = low(machine=machine, n_stages=3)
    assert few.average.value < exact() - 4.0 * few.average.mcse


def test_paths_of_an_example_are_averaged_on_the_scale_of_likelihoods():
    """More paths raise a bound from few stages, but not beyond the exact value."""
    one, many = low(n_stages=3), low(n_stages=3, n_paths=30)
    assert one.average.value < many.average.value - 3.0 * one.average.mcse
    assert many.average.value < exact()
    assert many.of_examples.shape == (300,)


def test_schedule_kernel_and_path_reach_the_paths():
    """An option that was dropped on the way would leave the values as they are."""
    few = VISIBLE[:60]
    plain = low(few).of_examples
    for option in (
        {"schedule": "linear"},
        {"schedule": [0.0, 0.5, 1.0]},
        {"kernel": BlockGibbs(n_sweeps=2)},
        {"path": pe.paths.MomentAveragedPath(MACHINE, n_knots=3, n_updates=50)},
        {"n_stages": 101},
        {"random_seed": 2},
    ):
        other = low(few, **option)
        assert (other.of_examples != plain).mean() > 0.9, option
        assert np.isfinite(other.average.value)


def test_workers_do_not_change_the_numbers():
    """600 paths are three blocks."""
    serial = low(n_paths=2, cores=1)
    with ThreadPoolExecutor(2) as pool:
        for other in (low(n_paths=2, cores=2), low(n_paths=2, executor=pool)):
            np.testing.assert_array_equal(other.of_examples, serial.of_examples)


def test_wrong_arguments_are_named():
    shape = r"visible must have the shape \(n, 16\)"
    cases = [
        ({"machine": pe.lattices.Ising(4)}, TypeError, "machine must be of type RBM, got"),
        ({"visible": VISIBLE[:, :5]}, ValueError, shape),
        ({"visible": VISIBLE * 2}, ValueError, "visible must hold 0 and 1 only, got values from"),
        ({"n_stages": 0}, ValueError, "n_stages must be a whole number of at least 1, got 0"),
        ({"n_paths": 0}, ValueError, "n_paths must be a whole number of at least 1, got 0"),
        ({"schedule": [0.0, 0.5]}, ValueError, "schedule must"),
        ({"kernel": "hmc"}, ValueError, "kernel must"),
        ({"path": "detour"}, ValueError, "path must be one of"),
        ({"cores": 0}, ValueError, "cores must be a whole number"),
        ({"executor": 3}, TypeError, "executor must have a submit method"),
        ({"random_seed": -1}, ValueError, "random_seed must not be negative"),
        ({"progressbar": "yes"}, ValueError, "progressbar must be True or False"),
    ]
    check_refusals(low, cases)
