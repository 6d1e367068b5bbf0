"""Mixtures of normals: what users pass, and exact evidence of whole runs."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.families.mixture import DataAnnealingPath, MixtureGibbs
from tests.families.mixture.mixtures import PRIOR, Y, log_evidence, mixture

CASES = {
    "one component": {"n_components": 1},
    "two": {"n_components": 2, "weights_a": 0.7},
    "two of equal variance": {"n_components": 2, "variances": "equal"},
    "three": {"n_components": 3, "y": Y[:6]},
}


def sample(target, method="auto", **options):
    options = {"target_mcse": None, "random_seed": 1, "progressbar": False} | options
    return pe.sample_evidence(target, method=method, **options)


@pytest.mark.parametrize("case", CASES)
def test_evidence_is_exact(case):
    """Against all assignments; with a wrong prior or conditional, log Z would be another.

    4 errors: false alarms in 6e-5 of the seeds.
    """
    target = mixture(**CASES[case])
    found = pe.log_evidence(sample(target, draws=8000))
    assert found.status == "ok"
    assert found.mcse < 0.03
    assert abs(found.value - log_evidence(target)) < 4.0 * found.mcse


@pytest.mark.parametrize("case", CASES)
def test_both_directions_and_bennetts_estimate_agree(case):
    """Reverse paths would not be the time reversal of forward ones."""
    target = mixture(**CASES[case])
    dt = sample(target, "ais", draws=3000)
    found = pe.estimate(dt, ["jarzynski", "jarzynski_reverse", "bar"])
    exact = log_evidence(target)
    for estimate in found.values():
        assert abs(estimate.value - exact) < 4.0 * estimate.mcse + 0.01
    assert found["bar"].mcse < 0.04


def test_order_does_not_change_evidence():
    """The order of the points is a part of the path and not of the model."""
    orders = ("given", np.argsort(Y))
    exact = log_evidence(mixture())
    for order in orders:
        found = pe.log_evidence(sample(mixture(order=order), draws=8000))
        assert abs(found.value - exact) < 4.0 * found.mcse
    assert list(mixture(order="given").point_order) == list(range(len(Y)))
    assert list(mixture(order=np.argsort(Y)).point_order) == list(np.argsort(Y))
    shuffled = mixture(order_seed=3).point_order
    assert sorted(shuffled) == list(range(len(Y)))
    assert list(shuffled) != list(mixture(order_seed=4).point_order)


def test_reverse_paths_may_start_from_one_labelling():
    """Draws that never switch labels need no correction: the path is symmetric in the labels."""
    target = mixture(weights_a=2.0)
    posterior = sample(target, draws=6000)["posterior"]
    rows = np.concatenate(
        [posterior[name].values.reshape(6000, -1) for name in target.variables], axis=1
    )
    swap = rows[:, 0] > rows[:, 1]
    rows[swap] = np.column_stack([rows[swap][:, [1, 0, 3, 2, 5, 4]], 1.0 - rows[swap][:, 6:]])
    assert (rows[:, 0] <= rows[:, 1]).all()
    dt = sample(target, pe.methods.AIS(reverse_start=rows, relaxation=0), draws=4000)
    found = pe.estimate(dt, ["bar"])["bar"]
    assert abs(found.value - log_evidence(target)) < 4.0 * found.mcse


def test_results_do_not_depend_on_cores_and_are_starts_of_reverse_paths():
    """Members draw from their own streams; draws come back in the order that the path reads."""
    target = mixture()
    one, two = (sample(target, draws=800, cores=cores) for cores in (1, 2))
    assert pe.log_evidence(one).value == pe.log_evidence(two).value
    found = pe.log_evidence(sample(target, pe.methods.AIS(reverse_start=one), draws=800))
    assert abs(found.value - log_evidence(target)) < 4.0 * found.mcse


def test_what_a_result_holds():
    """Variables, their dimensions, data and prior, as other models have them."""
    dt = sample(mixture(3), draws=320)
    posterior = dt["posterior"]
    assert posterior["mean"].dims == ("chain", "draw", "part")
    assert posterior["component"].dims == ("chain", "draw", "point")
    assert posterior["component"].dtype.kind == "i"
    assert set(np.unique(posterior["component"])) <= {0, 1, 2}
    np.testing.assert_allclose(posterior["weight"].sum("part"), 1.0)
    np.testing.assert_array_equal(dt["observed_data"]["y"], Y)
    assert float(dt["constant_data"]["variance_alpha"]) == 2.5
    shared = sample(mixture(3, variances="equal"), draws=320)["posterior"]
    assert shared["variance"].shape[-1] == 1


def test_kernels_and_paths_by_name():
    """Names of other targets' kernels would be taken for this one's."""
    target = mixture()
    assert target.annealing_setup(MixtureGibbs(3)).kernel.moves.n_sweeps == 3
    setup = target.annealing_setup("gibbs")
    assert target.with_path(setup, "data") is setup
    assert target.with_path(setup, DataAnnealingPath(target)).path == setup.path
    with pytest.raises(ValueError, match="kernel must be one of auto, gibbs, or such"):
        target.annealing_setup(pe.kernels.HMC())
    with pytest.raises(ValueError, match="path must be one of 'auto', 'data', got 'geometric'"):
        target.with_path(setup, "geometric")
    assert repr(target) == "GaussianMixture(7 points, 2 components)"


def test_options_that_cannot_be_used():
    for options, message in (
        ({"n_components": 0}, "n_components must be a whole number of at least 1"),
        ({"n_components": 101}, "n_components must be at most 100"),
        ({"variances": "some"}, "variances must be one of 'unequal', 'equal'"),
        ({"order_seed": -1}, "order_seed must be a whole number"),
    ):
        with pytest.raises(ValueError, match=message):
            mixture(**options)


def test_priors_must_be_given():
    """The evidence depends on them, so that there is no default."""
    with pytest.raises(TypeError, match="mean_mu"):
        pe.mixtures.GaussianMixture(Y, 2, **{k: v for k, v in PRIOR.items() if k != "mean_mu"})
