"""The benchmark of realistic models: models that can be built, and references that are right.

A reference that is wrong makes every run of the package look wrong, or, worse, a wrong run right.
"""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import dirichlet, halfnorm, invgamma, multivariate_normal, norm

import pm_evidence as pe
from benchmarks.practitioner_models import (
    CASES,
    effects,
    hierarchical,
    multivariate,
    processes,
    programs,
    regression,
)
from benchmarks.practitioner_models import nuts as counting
from benchmarks.practitioner_models.importance import evidence_at_mode, reference_from_weights
from benchmarks.practitioner_models.peers import cube

# PyMC's start of an LKJ prior is compiled to C, and a wheel of PyTensor finds no BLAS.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")

REAL = ("german", "pima", "radon", "gp_latent", "random_walk", "volatility", "galaxies")
# References that take more than about a second.
SLOW = (
    "logistic_50000_x_20",
    "item_response",
    "ordinal",
    "zero_inflated",
    "gp_latent",
    "volatility",
    "galaxies",
)
DIMS = {
    "german_credit": 25,
    "pima_6_sd_1": 6,
    "logistic_50000_x_20": 20,
    "linear_100000_x_30": 31,
    "radon_centred": 89,
    "means_1000_centred": 1002,
    "item_response": 240,
    "binary_groups": 502,
    "gp_latent": 115,
    "random_walk_noncentred": 102,
    "volatility": 948,
    "galaxies": 8,
    "lkj_covariance": 9,
}


@pytest.fixture
def case_of(request):
    """Return a case by name; those of real data are left out where there is none."""

    def found(name):
        if name.startswith(REAL):
            request.getfixturevalue("data_folder")
        return CASES[name]

    return found


@cache
def reference_of(name):
    """References are computed once: some take a second."""
    return CASES[name].reference()


# --- models ---


@pytest.mark.parametrize("name", CASES)
def test_models_are_built_and_start_from_a_finite_density(name, case_of):
    model = case_of(name).build()
    point = model.initial_point()
    size = sum(np.size(value) for value in point.values())
    assert size == DIMS.get(name, size)
    assert len(model.observed_RVs) + len(model.potentials) == 1


def test_two_forms_of_a_model_have_one_reference(case_of):
    """Both forms are compared with each other, so that they must be the same model."""
    forms = {}
    for case in CASES.values():
        if case.form_of is not None:
            reference = reference_of(case_of(case.name).name).log_evidence
            forms.setdefault(case.form_of, []).append(reference)
    assert len(forms) == 6
    assert all(len(values) == 2 and values[0] == values[1] for values in forms.values())


# --- references ---


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CASES]
)
def test_references_are_exact_or_have_a_small_error_and_a_light_tail(name, case_of):
    case = case_of(name)
    reference = reference_of(name)
    assert np.isfinite(reference.log_evidence)
    assert 0.0 <= reference.error < 0.006
    assert reference.pareto_k is None or reference.pareto_k < 0.5
    if case.published is not None:
        # theirs are simulations as well, with errors that they do not state
        assert reference.log_evidence == pytest.approx(case.published, abs=0.003)


def test_importance_sampling_finds_a_known_integral_and_its_error():
    """A skew density with a known normalising constant, at two sizes."""
    shape = np.array([3.0, 6.0, 12.0])

    def log_density(points):  # of logs of gamma variables
        return (shape * points - np.exp(points)).sum(axis=1)

    exact = np.log([2.0, 120.0, 39_916_800.0]).sum()
    for adapt in (False, True):
        found = evidence_at_mode(log_density, np.zeros(3), draws=20_000, dof=8.0, adapt=adapt)
        assert abs(found.log_evidence - exact) < 4 * found.error
        assert 0 < found.error < 0.005
        assert found.pareto_k < 0.5


def test_a_heavy_tail_of_weights_is_seen():
    """A proposal that is too narrow must not pass for a reference."""
    rng = np.random.default_rng(1)
    x = 0.4 * rng.standard_normal(4000)
    log_weight = norm.logpdf(x) - norm.logpdf(x, 0, 0.4)
    assert reference_from_weights(log_weight).pareto_k > 0.7
    x = 1.5 * rng.standard_normal(4000)
    assert reference_from_weights(norm.logpdf(x) - norm.logpdf(x, 0, 1.5)).pareto_k < 0.3


def test_the_kalman_filter_agrees_with_the_covariance_of_the_series():
    rng = np.random.default_rng(1)
    flow, index = 10.0 + np.cumsum(rng.standard_normal(50)), np.arange(50)
    step, noise = np.array([[0.02], [0.8]]), np.array([0.5, 3.0])
    found = processes.log_filtered(flow, step, noise)
    for i, j in np.ndindex(2, 2):
        cov = 25.0 + step[i, 0] ** 2 * np.minimum.outer(index, index) + noise[j] ** 2 * np.eye(50)
        assert_allclose(found[i, j], multivariate_normal.logpdf(flow, np.full(50, 10.0), cov))


def test_intercepts_integrate_out_as_in_the_covariance_of_the_data():
    rng = np.random.default_rng(5)
    county = np.sort(rng.integers(7, size=40))
    x, y = rng.random(40), rng.standard_normal(40)
    between, within = np.array([[0.1], [1.2]]), np.array([0.4, 0.9])
    found = hierarchical.log_intercepts(y, x, county, between, within)
    same = county[:, None] == county
    for i, j in np.ndindex(2, 2):
        cov = 25.0 + 4.0 * np.outer(x, x) + between[i, 0] ** 2 * same + within[j] ** 2 * np.eye(40)
        assert_allclose(found[i, j], multivariate_normal.logpdf(y, np.zeros(40), cov))


@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_programs_are_their_models():
    """The density of the models, given in PyTensor, equals that in NumPy."""
    log_rates, noise = np.array([0.3, -1.7, 0.9]), 0.2
    model = programs.build_black_box()
    point = {"log_rates": log_rates, "noise_log__": np.log(noise)}
    found = model.compile_fn(model.datalogp)(point)
    assert_allclose(found, programs.log_likelihood(log_rates, np.float64(noise)))
    infection, recovery, first = np.log([0.4, 0.2, 0.01])
    expected = programs.log_infected(infection, recovery, first)
    model = programs.build_ode()
    names = ("infection_log__", "recovery_log__", "first_log__", "noise_log__")
    point = dict(zip(names, (infection, recovery, first, np.log(noise)), strict=True))
    found = model.compile_fn(model.datalogp)(point)
    assert_allclose(found, norm.logpdf(programs.epidemic(), expected, noise).sum())


def test_absorption_that_equals_elimination_is_a_limit():
    """The formula of the concentration divides by the difference of both rates."""
    near = programs.log_concentration(np.log([0.5, 0.5 * (1 + 1e-7), 2.0]))
    assert_allclose(programs.log_concentration(np.log([0.5, 0.5, 2.0])), near, atol=1e-6)
    swapped = programs.log_concentration(np.log([0.2, 1.5, 2.0])) - np.log(0.2)
    other = programs.log_concentration(np.log([1.5, 0.2, 2.0])) - np.log(1.5)
    assert_allclose(swapped, other)


def test_quadrature_over_effects_agrees_with_draws():
    """Two groups, the effects of which are drawn."""
    rng = np.random.default_rng(2)
    effect, slope = rng.standard_normal((20_000, 2, 1)), np.array([[0.5, -0.2], [0.3, 0.1]])
    by_draws = np.log(np.exp((slope * effect).sum(axis=2)).mean(axis=0)).sum()
    terms = (slope.ravel() * effects._NODES[:, None])[None]
    exact = 0.5 * ((slope.sum(axis=1)) ** 2).sum()
    assert_allclose(effects.log_groups(terms, 2), exact, atol=1e-9)
    assert by_draws == pytest.approx(exact, abs=0.02)


def test_the_linear_reference_is_conjugate_where_the_noise_is_known():
    """Over a narrow range of sigma the integral is that of a multivariate normal."""
    design, response = regression.simulated_linear(60, 3)
    cov = design @ design.T
    sigma = np.linspace(0.7, 2.6, 400)
    values = [
        multivariate_normal.logpdf(response, np.zeros(60), cov + s**2 * np.eye(60))
        + halfnorm.logpdf(s, scale=2.0)
        for s in sigma
    ]
    exact = np.log(np.exp(np.array(values) - max(values)).sum() * (sigma[1] - sigma[0]))
    exact += max(values)
    assert regression.log_linear(60, 3).log_evidence == pytest.approx(exact, abs=1e-4)


def test_the_densities_of_the_mixture_are_those_of_scipy():
    rng = np.random.default_rng(3)
    variance, weight = rng.gamma(2.0, size=(5, 3)), rng.dirichlet([1.0, 2.0, 3.0], size=5)
    found = multivariate._log_inverse_gamma(variance, np.float64(3.0), np.float64(20.0))
    assert_allclose(found, invgamma.logpdf(variance, 3.0, scale=20.0))
    a = np.array([2.0, 1.0, 4.0])
    exact = [dirichlet.logpdf(w / w.sum(), a) for w in weight]
    assert_allclose(multivariate._log_dirichlet(weight, a), exact)


# --- runs ---

CHEAP = ("logistic_3", "pima_5_sd_1", "eight_schools_half_normal_noncentred", "black_box", "ode")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CHEAP, "lkj_covariance", "gp_marginal", "poisson_glmm"])
@pytest.mark.filterwarnings("ignore:There is no numba implementation")
def test_runs_agree_with_their_reference(name, case_of):
    """Within 4 errors: over seeds one right run in about 900 would fail."""
    case = case_of(name)
    reference = reference_of(name)
    dt = pe.sample_evidence(
        case.build(), target_mcse=0.05, cores=1, random_seed=1, progressbar=False
    )
    found = pe.log_evidence(dt)
    assert found.status == "ok"
    assert found.mcse < 0.06
    spread = np.hypot(found.mcse, reference.error)
    assert abs(found.value - reference.log_evidence) < 4 * spread


# --- NUTS and other packages ---


def test_every_model_with_a_gradient_has_a_count_of_the_same_model(case_of):
    """A count that was made of an older form of a model would be compared with the new one."""
    counts = counting.stored_counts()
    assert set(counts) == {name for name, case in CASES.items() if case.nuts is not None}
    for name, found in counts.items():
        assert found.gradients > 12_000  # more than one for each draw
        assert found.scaled == CASES[name].is_large
        if name not in SLOW:
            reference = reference_of(case_of(name).name)
            assert found.log_evidence == pytest.approx(reference.log_evidence, abs=0.01)


def test_a_count_is_stored_and_made_anew_for_another_model(tmp_path):
    case = CASES["logistic_3"]
    short = counting.Nuts(chains=1, tune=20, draws=10)
    path = tmp_path / "counts.csv"
    made = type(case)(case.name, case.build, case.reference, "", "", nuts=short)
    first = counting.count(made, -79.0, path)
    assert first.scaled and first.gradients > 0
    assert counting.count(made, -79.05, path) == first == counting.stored_counts(path)[case.name]
    assert counting.count(made, -80.0, path).log_evidence == -80.0
    assert counting.count(CASES["black_box"], 0.0, path) is None


def test_the_unit_cube_is_mapped_to_the_prior_and_its_likelihood():
    """Quantiles of effects depend on the scale that was drawn before them."""
    n_dims, transform, log_likelihood = cube(CASES["eight_schools_half_normal_centred"].build())
    u = np.random.default_rng(4).random(n_dims)
    mu, tau = norm.ppf(u[0], 0, 5), halfnorm.ppf(u[1], scale=5)
    theta = norm.ppf(u[2:], mu, tau)
    assert_allclose(transform(u), [mu, tau, *theta])
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sd = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    assert_allclose(log_likelihood(transform(u)), norm.logpdf(y, theta, sd).sum())
    assert log_likelihood.calls == 1
    with pytest.raises(NotImplementedError):  # a prior without quantiles
        cube(multivariate.build_lkj())
