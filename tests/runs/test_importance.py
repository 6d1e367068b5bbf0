"""The cheapest route: what it finds, what it costs, and when it does not trust itself."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import logsumexp

from pm_evidence.core.records import BlockRecord, Role, RunRecord
from pm_evidence.estimators.errors import pareto_k
from pm_evidence.runs import importance as module
from pm_evidence.runs.importance import Fits, importance_route, is_good
from pm_evidence.runs.rounds import Limits, Run
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.model.cache import target_of
from tests.runs.test_importance_start import periodic
from tests.samplers.test_nested_laplace import one_value_for_each_group
from tests.systems.exact import deceptive_systems, exact_systems

SYSTEMS = {**exact_systems(), **deceptive_systems()}


def coarse(model, target_mcse, seed=1):
    run = Run(SMC(), 200, 1, None, seed, limits=Limits(target_mcse=target_mcse))
    target = target_of(model, reparameterise=True)
    return importance_route(run, target)


def close(found, exact, distance=4.0):
    """Return whether the estimate is right within so many of its errors."""
    best = found.evidence[0]
    return abs(best.value - exact) < distance * best.mcse


@pytest.mark.parametrize(
    "name", ["normal_mean", "gaussian_10", pytest.param("student_t_groups", marks=pytest.mark.slow)]
)
def test_an_even_posterior_ends_here(name):
    """Particles grow with the draws, because they bound what the fit may have missed."""
    system = SYSTEMS[name]
    cheap, dear = (coarse(system.build(), error) for error in (0.05, 0.004))
    for found, error in ((cheap, 0.05), (dear, 0.004)):
        assert found.reached(error) and found.route == "importance"
        assert close(found, system.log_evidence)
    n_evaluations = [found.record.facts.n_evaluations for found in (cheap, dear)]
    assert 200 < n_evaluations[0] < 20_000 and n_evaluations[1] > 3 * n_evaluations[0]
    works = [block.bridge for block in dear.record.of(Role.FORWARD)]
    assert sum(len(reverse) for _, reverse in works) == 5 * 320
    assert sum(len(forward) for forward, _ in works) >= 5 * 2000


def logistic_regression(prior, scale):
    """Return a model with two coefficients, whose posterior is log-concave, and its evidence."""
    x = np.linspace(-2.0, 2.0, 12)
    y = (x + np.sin(9.0 * x) > 0.0).astype(int)
    with pm.Model() as model:
        a, b = prior("a", 0.0, scale), prior("b", 0.0, scale)
        pm.Bernoulli("y", logit_p=a + b * x, observed=y)
    grid = scale * np.linspace(-12.0, 12.0, 1501)
    log_prior = pm.logp(prior.dist(0.0, scale), grid).eval()
    eta = (2 * y - 1) * (grid[:, None, None] + grid[:, None] * x)
    log_density = log_prior[:, None] + log_prior - np.logaddexp(0.0, -eta).sum(axis=-1)
    return model, float(logsumexp(log_density)) + 2.0 * np.log(grid[1] - grid[0])


def test_a_log_concave_posterior_is_annealed_from_its_peak():
    """A single mode needs no search, which would take more evaluations than all the rest."""
    model, exact = logistic_regression(pm.Normal, 2.0)
    found = coarse(model, 0.05)
    facts = found.record.facts
    assert found.reached(0.05) and close(found, exact)
    assert facts.reference == "laplace" and facts.log_concave and facts.n_peaks == 1
    assert facts.n_evaluations < 3_000


@pytest.mark.slow
@pytest.mark.parametrize("form", ["centred", "noncentred"])
def test_a_hierarchical_model_costs_little_in_both_forms(form):
    """Given the scales it is normal: what is annealed is nearly the posterior already."""
    system = SYSTEMS[f"one_way_{form}"]
    found = coarse(system.build(), 0.05)
    facts = found.record.facts
    assert found.reached(0.05) and close(found, system.log_evidence)
    assert facts.reference == "laplace" and facts.log_concave_given == "tau, sigma"
    assert facts.n_evaluations < 6_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_coordinates_in_which_the_approximation_is_good(seed):
    """The evidence is a sum over both scales, each of the variance of a value."""
    model = one_value_for_each_group()
    y = 2.0 * np.random.default_rng(1).normal(size=8)
    u = np.linspace(-14.0, 5.0, 1300)
    log_prior = stats.halfnorm(scale=3).logpdf(np.exp(u)) + u + np.log(u[1] - u[0])
    variance = np.exp(2 * u)[:, None] + np.exp(2 * u)
    precision = 8 / variance + 1 / 25
    log_density = 0.5 * (y.sum() / variance) ** 2 / precision - 0.5 * (y @ y) / variance
    log_density -= 4 * np.log(2 * np.pi * variance) + 0.5 * np.log(25 * precision)
    exact = logsumexp(log_density + log_prior + log_prior[:, None])
    found = coarse(model, 0.05, seed)
    facts = found.record.facts
    assert facts.centring["theta"] == 1.0 and facts.log_concave_given == "tau, sigma"
    assert facts.reference == "laplace"
    assert found.reached(0.05) and close(found, exact, 3.5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_frequency_is_searched_for(seed):
    """Its posterior has many narrow peaks, and the coefficients are normal given it."""
    model = periodic(2.7)
    assert close(coarse(model, 0.05, seed), log_evidence_of_periodic(model))


def log_evidence_of_periodic(model):
    """Sum over a grid of frequencies, with the coefficients integrated out."""
    t = np.linspace(0.0, 10.0, 25)
    y = model.rvs_to_values[model["y"]].data
    frequency = np.linspace(1e-4, 25.0, 20_001)
    x = np.stack([np.sin(frequency[:, None] * t), np.cos(frequency[:, None] * t)], axis=1)
    covariance = np.einsum("fki,fkj->fij", x, x) + np.eye(t.size)
    _, log_volume = np.linalg.slogdet(covariance)
    squares = np.linalg.solve(covariance, np.broadcast_to(y[:, None], (len(frequency), 25, 1)))
    log_density = -0.5 * (t.size * np.log(2 * np.pi) + log_volume + squares[..., 0] @ y)
    log_density += np.log(2) - 0.5 * np.log(2 * np.pi * 16) - frequency**2 / 32
    return float(logsumexp(log_density)) + np.log(frequency[1] - frequency[0])


@pytest.mark.slow
def test_small_islands_raise_no_false_alarm():
    """They have four draws each, and contradicted a right bridge in one of 200 runs."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x", 0, 5), 1.0, observed=[0.5, 1.5])
    found = [coarse(model, 0.2, seed) for seed in range(600)]
    assert sum(not each.reached(0.2) for each in found) <= 1


def test_a_curved_ridge_is_not_certified():
    """If the density cannot be fitted well, this route must not be the last one."""
    system = SYSTEMS["banana"]
    for seed in range(1):
        found = coarse(system.build(), 0.02, seed)
        assert close(found, system.log_evidence, 3.0) or not found.reached(0.02)


@pytest.mark.slow
def test_effects_that_data_determine_are_centred():
    """The islands are annealed in non-centred coordinates, and their draws come in better ones."""
    rng = np.random.default_rng(3)
    y = 2.0 + rng.standard_normal((6, 1)) + 0.05 * rng.standard_normal((6, 20))
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 3)
        effect = pm.Normal("effect", mu, tau, shape=(6, 1))
        pm.StudentT("y", nu=5, mu=effect, sigma=0.05, observed=y)
    found = coarse(model, 0.02)
    assert found.record.facts.centring["effect"] > 0.8
    assert found.target.centring.amount[0] > 0.8
    x = np.concatenate([block.draws for block in found.record.of(Role.FORWARD)])
    effects = found.target.posterior(x)["effect"]
    assert np.abs(effects.mean(axis=0) - y.mean(axis=1, keepdims=True)).max() < 0.1


def block_of(log_weight, number, n_dim=5):
    draws = np.zeros((len(log_weight), n_dim))
    return BlockRecord(
        number, np.zeros(1), None, bridge=(-log_weight, np.zeros(3)), fit_draws=draws
    )


def test_heavy_weights_are_no_good_fit():
    rng = np.random.default_rng(1)
    even = [block_of(0.3 * rng.standard_normal(300), i) for i in range(4)]
    heavy = [block_of(rng.exponential(0.8, 300), i) for i in range(4)]
    uneven = [block_of(1.05 * rng.standard_normal(300), i) for i in range(4)]
    assert is_good(even)
    assert not is_good(heavy)
    assert not is_good(uneven)
    # small differences in each of many dimensions are no sign of a tail
    assert is_good([block_of(-block.bridge[0], i, 60) for i, block in enumerate(uneven)])
    assert not is_good([*even, BlockRecord(4, np.zeros(1), None)])  # an island that died


def test_bounded_weights_have_no_heavy_tail():
    """The shape of 2,000 weights says otherwise where a few are several times as large as most."""
    rng = np.random.default_rng(1)
    log_weight = 0.1 * rng.standard_normal(2000)
    log_weight[:40] += rng.uniform(0.0, np.log(6.0), 40)
    assert pareto_k(log_weight) > 0.5
    assert is_good([block_of(log_weight, 0)])
    assert not is_good([block_of(log_weight[::4], 0)])  # as few draws do not show the bound
    log_weight[0] = np.log(12.0)
    assert not is_good([block_of(log_weight, 0)])


@pytest.mark.parametrize(("spread", "kept"), [(0.1, "second"), (1.5, "first")])
def test_further_draws_come_from_the_density_of_the_bridge(spread, kept, monkeypatch):
    """A rejected fit that is drawn from nevertheless would be mixed with the one before."""
    rng = np.random.default_rng(1)
    blocks = tuple(block_of(0.5 * rng.standard_normal(300), i) for i in range(2))
    again = tuple(block_of(spread * rng.standard_normal(300), i) for i in range(2))

    class Densities:
        proposals = "first"

        def refitted(self, blocks, growth, run):
            self.proposals = "second"
            return again

    monkeypatch.setattr(module, "with_bridges", lambda record, role, blocks, _: blocks)
    densities, run = Densities(), Run(SMC(), 200, 1, None, 1)
    step = Fits(run, densities, Role.FORWARD).refit(2.0)
    found = step(RunRecord("smc", None, {Role.FORWARD: blocks}))
    assert densities.proposals == kept
    chosen = {"first": blocks, "second": again}[kept]
    assert all(a.bridge is b.bridge for a, b in zip(found, chosen, strict=True))
