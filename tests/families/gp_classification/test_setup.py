"""What is annealed by default, the runs that users make, and the target itself."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import pm_evidence as pe
from pm_evidence.families.gp_classification.latent import LatentHMC, RiemannianHMC
from pm_evidence.families.gp_classification.noisy import SliceGibbs
from pm_evidence.kernels.cycle import Grows
from pm_evidence.testing import check_target
from tests.families.gp_classification.problems import curve, exact_draws, one_factor, pair, triple


def sample(target, **options):
    options = {"target_mcse": None, "progressbar": False, "random_seed": 1} | options
    return pe.sample_evidence(target, **options)


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        ("smc", pair(1.0)),
        ("ais", pair(-2.0)),
        ("smc", triple()),
        pytest.param("ais", one_factor(12), marks=pytest.mark.slow),
    ],
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


def test_kernels_of_a_sequence():
    target, mine = curve(4), SliceGibbs(n_sweeps=3)
    for kernel in ("auto", "slice_gibbs"):
        assert target.annealing_setup(kernel).kernel == Grows(SliceGibbs())
    assert target.annealing_setup(mine).kernel == Grows(mine)
    for kernel in ("hmc", pe.kernels.HMC()):
        with pytest.raises(ValueError, match="kernel must be"):
            target.annealing_setup(kernel)


def test_kernels_of_latent_values():
    target = curve(4, representation="latent", jitter=0.01)
    assert target.annealing_setup("auto").kernel == LatentHMC()
    assert target.annealing_setup("riemannian_hmc").kernel == RiemannianHMC()
    assert target.annealing_setup(LatentHMC(0.1)).kernel == LatentHMC(0.1)
    for kernel in ("slice_gibbs", SliceGibbs()):
        with pytest.raises(ValueError, match="kernel must be"):
            target.annealing_setup(kernel)


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["ep", "prior"])
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


def test_states_of_users_are_checked():
    target = curve(5)
    draws = exact_draws(target, 3)
    np.testing.assert_array_equal(target.check(draws), draws)
    with pytest.raises(ValueError, match=r"signs of the labels, got draws\[0, 0\]"):
        target.check(-draws)
    with pytest.raises(ValueError, match="row of 5"):
        target.check(draws[:, :4])
