"""What is annealed by default, the runs that users make, and the target itself."""

import pickle

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import pm_evidence as pe
from pm_evidence.families.gp_classification.kernels import EllipticalSlice, LatentHMC, RiemannianHMC
from pm_evidence.families.gp_classification.noisy import SliceGibbs
from pm_evidence.families.gp_classification.target import gp_setup
from pm_evidence.kernels.growing import Grows
from pm_evidence.testing import check_target
from tests.families.gp_classification.problems import curve, exact_draws, one_factor, pair, triple


def sample(target, **options):
    options = {"target_mcse": None, "progressbar": False, "random_seed": 1} | options
    return pe.sample_evidence(target, **options)


@pytest.mark.parametrize(
    ("method", "problem"),
    [("smc", pair(1.0)), ("ais", pair(-2.0)), ("smc", triple()), ("ais", one_factor(12))],
)
def test_sequences_find_the_exact_evidence(method, problem):
    """Orthant probabilities in closed form and by quadrature, forward and in both directions."""
    target, exact = problem
    found = pe.log_evidence(sample(target, method=method, draws=25_000))
    assert found.status == "ok" and found.mcse <= 0.01
    assert abs(found.value - exact) < 3.0 * found.mcse


@pytest.mark.parametrize(
    ("problem", "reference"),
    [
        (pair, "prior"),
        (one_factor, "ep"),
        pytest.param(triple, "ep", marks=pytest.mark.slow),
        pytest.param(one_factor, "prior", marks=pytest.mark.slow),
    ],
)
def test_latent_values_find_the_exact_evidence(problem, reference):
    """The same probabilities from the other representation, in both directions."""
    given = (1.0,) if problem is pair else ()
    target, exact = problem(*given, representation="latent", reference=reference)
    found = pe.log_evidence(sample(target, draws=3000, random_seed=2))
    assert found.estimator == "bar" and found.status == "ok" and found.mcse <= 0.01
    assert abs(found.value - exact) < 3.0 * found.mcse


@pytest.mark.parametrize("method", ["resample_move", "arm"])
def test_resample_move_finds_the_exact_evidence(method):
    target, exact = one_factor(12)
    found = pe.log_evidence(sample(target, method=method, draws=16_000))
    assert found.status == "ok" and abs(found.value - exact) < 3.0 * found.mcse


@pytest.mark.parametrize("order", ["given", "random", "informative"])
def test_any_order_is_right(order):
    target, exact = one_factor(12, order=order)
    found = pe.log_evidence(sample(target))
    assert found.status == "ok" and abs(found.value - exact) < 4.0 * found.mcse


def test_results_hold_the_values_and_labels():
    target = curve(6)
    dt = sample(target, draws=200)
    z = dt["posterior"]["z"]
    assert z.dims[-1] == "point" and (np.sign(z.values) == target.signs).all()
    assert (dt["observed_data"]["y"].values == target.signs).all()
    assert sorted(dt["constant_data"]["order"].values) == list(range(6))


def test_kernels_of_a_sequence():
    target, mine = curve(4), SliceGibbs(n_sweeps=3)
    for kernel in ("auto", "slice_gibbs"):
        assert gp_setup(target, kernel).kernel == Grows(SliceGibbs())
    assert gp_setup(target, mine).kernel == gp_setup(target, Grows(mine)).kernel == Grows(mine)
    for kernel in ("hmc", pe.HMC()):
        with pytest.raises(ValueError, match="kernel must be"):
            gp_setup(target, kernel)


def test_kernels_of_latent_values():
    target = curve(4, representation="latent", jitter=0.01)
    assert gp_setup(target, "auto").kernel == gp_setup(target, "hmc").kernel == LatentHMC()
    assert gp_setup(target, "elliptical_slice").kernel == EllipticalSlice()
    assert gp_setup(target, "riemannian_hmc").kernel == RiemannianHMC()
    assert gp_setup(target, LatentHMC(0.1)).kernel == LatentHMC(0.1)
    for kernel in ("slice_gibbs", SliceGibbs()):
        with pytest.raises(ValueError, match="kernel must be"):
            gp_setup(target, kernel)


@pytest.mark.parametrize("reference", ["ep", pytest.param("prior", marks=pytest.mark.slow)])
def test_conformance_of_latent_values(reference):
    """What every target has to do, by the checks that users have for theirs."""
    target, exact = one_factor(4, representation="latent", reference=reference)
    check_target(target, log_evidence=exact)


# --- the target ---


def test_the_exact_values_of_the_tests_agree_with_scipy():
    """Closed forms and quadrature against a general program for orthant probabilities."""
    for target, exact in (triple(), one_factor(5)):
        signs = target.signs
        turned = target.noisy_covariance * np.outer(signs, signs)
        found = multivariate_normal.cdf(
            np.zeros(len(signs)), cov=turned, abseps=1e-8, releps=1e-8, maxpts=4_000_000
        )
        assert np.log(found) == pytest.approx(exact, abs=1e-4)


def test_attributes():
    target = curve(5)
    assert target.n_dim == 5 and target.method == "arm" and target.variables == ("z",)
    assert "5 points" in repr(target)
    latent = curve(5, representation="latent")
    assert latent.method == "ais" and latent.variables == ("x",)
    np.testing.assert_allclose(latent.factor @ latent.factor.T, latent.prior_covariance, atol=1e-12)


def test_draws_near_the_posterior_are_those_of_the_approximation():
    target = curve(5, representation="latent")
    found = target.expectation_propagation()
    x = target.near_posterior(100_000, np.random.default_rng(1))
    sd = found.covariance.diagonal() ** 0.5
    np.testing.assert_allclose((x.mean(axis=0) - found.mean) / sd, 0.0, atol=0.02)
    np.testing.assert_allclose(np.cov(x.T) / np.outer(sd, sd), found.covariance / np.outer(sd, sd),
                               atol=0.02)  # fmt: skip


def test_states_of_users_are_checked():
    target = curve(5)
    draws = exact_draws(target, 3)
    np.testing.assert_array_equal(target.check(draws), draws)
    with pytest.raises(ValueError, match=r"signs of the labels, got draws\[0, 0\]"):
        target.check(-draws)
    with pytest.raises(ValueError, match="row of 5"):
        target.check(draws[:, :4])


def test_it_can_be_sent_to_workers():
    target = curve(5)
    again = pickle.loads(pickle.dumps(target))
    np.testing.assert_array_equal(again.whitening, target.whitening)


def test_classes_can_be_exchanged():
    """The evidence of a process with mean zero does not depend on which class is +1."""
    x, y = np.linspace(0.0, 1.0, 5), np.array([1, 0, 0, 1, 1])
    one, other = (pe.GPClassification(x, labels).expectation_propagation() for labels in (y, 1 - y))
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-10)
