"""A coarse annealing starts from the prior, or from a complete approximation of the posterior."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pm_evidence as pe
from pm_evidence.runs.importance import start_of
from pm_evidence.runs.rounds import Limits, Run
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.target import ReparameterisedTarget
from tests.models import shared
from tests.systems.exact import deceptive_systems, exact_systems

SYSTEMS = {**exact_systems(), **deceptive_systems()}


def start(model):
    run = Run(SMC(), 200, 1, None, 1, limits=Limits(target_mcse=0.05))
    return start_of(run, target_of(model, reparameterise=True), 0.16)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("several", None),
        ("schools", "tau"),
        pytest.param("one_way_noncentred", "tau, sigma", marks=pytest.mark.slow),
    ],
)
def test_from_an_approximation(name, given):
    found = start(SYSTEMS[name].build() if name in SYSTEMS else shared(name).model)
    assert found.approximation.complete and found.n_evaluations > 0
    assert found.annealed is not found.target
    facts = found.annealed.facts
    assert facts["reference"] == "laplace" and facts.get("log_concave_given") == given


def periodic(frequency):
    """A sine of unknown frequency and phase in noise: given the frequency, all is normal."""
    t = np.linspace(0.0, 10.0, 25)
    y = np.sin(frequency * t) + np.random.default_rng(1).normal(size=t.size)
    with pm.Model() as model:
        w, c = pm.HalfNormal("w", 4), pm.Normal("c", 0, 1, shape=2)
        mean = c[0] * pm.math.sin(w * t) + c[1] * pm.math.cos(w * t)
        pm.Normal("y", mean, 1, observed=y)
    return model


def test_from_the_prior_where_hyperparameters_have_many_modes():
    found = start(periodic(2.7))
    assert found.annealed is found.target
    assert found.approximation is not None and not found.approximation.complete
    assert found.n_evaluations > 0


def walk(n):
    """A random walk with noise, of which all but two scales can be integrated out."""
    rng = np.random.default_rng(1)
    data = np.cumsum(0.3 * rng.normal(size=n)) + rng.normal(size=n)
    with pm.Model() as model:
        step, noise = pm.HalfNormal("step", 0.5), pm.HalfNormal("noise", 1)
        start = pm.Normal.dist(0, 1)
        x = pm.GaussianRandomWalk("x", 0, step, init_dist=start, steps=n - 1)
        pm.Normal("y", x, noise, observed=data)
    return model


@pytest.mark.slow
def test_a_long_walk_is_approximated_by_its_states():
    """Second derivatives by its steps are not zero, and there would be too many of them."""
    short, long = (start(walk(n)) for n in (40, 400))
    assert isinstance(short.target, ReparameterisedTarget) and short.approximation.complete
    assert not isinstance(long.target, ReparameterisedTarget) and long.approximation.complete
    assert long.n_evaluations < 40 * 400
    # the fifty heaviest approximations and a wide one, of which gradients are taken
    assert len(long.approximation.reference.components) <= 51


def volatility(n):
    """Returns whose log variance is an autoregressive series."""
    rng = np.random.default_rng(11)
    state = np.zeros(n)
    for i in range(1, n):
        state[i] = 0.96 * state[i - 1] + 0.2 * rng.normal()
    with pm.Model() as model:
        phi, step = pm.Beta("phi", 20, 1.5), pm.HalfNormal("step", 0.3)
        start = pm.Normal.dist(0, 0.7)
        h = pm.AR("h", rho=[phi], sigma=step, init_dist=start, steps=n - 1)
        pm.Normal("y", 0, pm.math.exp(h / 2), observed=np.exp(state / 2) * rng.normal(size=n))
    return model


@pytest.mark.slow
def test_the_parameter_of_a_series_is_searched_for_narrow_peaks():
    """The posterior is not concave in it, and would be annealed from the prior in vain."""
    found = start(volatility(400))
    assert not found.target.is_concave_in_hyperparameters
    assert found.approximation.complete and found.annealed is not found.target
    assert found.annealed.facts["log_concave_given"] == "phi, step"
    assert found.n_evaluations < 60_000


def two_peaks(at=2.0, width=0.003, log_mass=1.0):
    """A broad peak of a hyperparameter, a narrow one of more mass, and the log evidence."""
    y = np.random.default_rng(1).normal(size=6)
    with pm.Model() as model:
        t, e = pm.Normal("t", 0, 1), pm.Normal("e", 0, 1, shape=6)
        pm.Normal("y", e + 0.3 * t, 0.5, observed=y)
        narrow = log_mass - 0.5 * ((t - at) / width) ** 2 - np.log(width)
        pm.Potential("peaks", pm.math.logaddexp(-0.5 * (t / 0.5) ** 2, narrow))
    near = at + width * np.linspace(-8, 8, 4001)
    grid = np.unique(np.concatenate([np.linspace(-6, 6, 20_001), near]))
    narrow = log_mass - 0.5 * ((grid - at) / width) ** 2 - np.log(width)
    log_density = stats.norm.logpdf(grid) + np.logaddexp(-0.5 * (grid / 0.5) ** 2, narrow)
    log_density += stats.norm.logpdf(y[:, None], 0.3 * grid, np.sqrt(1.25)).sum(axis=0)
    return model, np.log(np.trapezoid(np.exp(log_density), grid))


SLOW = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "target_mcse"),
    [
        (0.003, 0.05),
        pytest.param(0.003, 0.02, marks=SLOW),
        pytest.param(0.03, 0.05, marks=SLOW),
        pytest.param(0.03, 0.02, marks=SLOW),
    ],
)
def test_a_narrow_peak_of_a_hyperparameter_is_searched_for(width, target_mcse):
    """An approximation of the broad peak alone is 0.56 nats too low."""
    model, exact = two_peaks(width=width)
    for seed in range(3):
        options = {"target_mcse": target_mcse, "cores": 1, "progressbar": False}
        found = pe.log_evidence(pe.sample_evidence(model, random_seed=seed, **options))
        assert found.status != "ok" or abs(found.value - exact) < 4.0 * found.mcse
