"""Which routes a run takes, when it ends, and what is stored of each."""

import json
import time
import warnings
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.op import Op
from scipy import stats
from scipy.special import logsumexp

import pm_evidence as pe
from benchmarks.practitioner_models import CASES
from pm_evidence.core.records import Role, Status
from pm_evidence.estimators.of_run import estimates
from pm_evidence.runs import importance
from pm_evidence.runs import routes as module
from pm_evidence.runs.anneal import anneal_moved
from pm_evidence.runs.defaults import plate_target
from pm_evidence.runs.importance import importance_route
from pm_evidence.runs.rounds import Found
from tests.systems.exact import deceptive_systems, exact_systems
from tests.systems.plates import plates

SYSTEMS = {**exact_systems(), **deceptive_systems()}


def sampled(model, **options):
    # the routes of models some of whose variables could be integrated are tested as well
    options = {"marginalise": False, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        return pe.sample_evidence(model, random_seed=5, progressbar=False, **options)


def facts_of(dt):
    facts = dict(dt["log_evidence"].attrs)
    return facts, json.loads(facts.get("routes", "{}"))


def n_evaluations(routes, dt):
    """The evaluations of all routes, and those of the log density of the draws of islands.

    Draws of importance sampling were evaluated by a route.
    """
    spent = sum(route["n_evaluations"] for route in routes.values())
    if dt.posterior.attrs["drawn_from"] == "importance":
        return spent
    assert dt.posterior.attrs["drawn_from"] == "islands"
    return spent + dt.posterior.sizes["chain"] * dt.posterior.sizes["draw"]


@pytest.fixture(scope="module")
def model():
    return SYSTEMS["gaussian_10"].build()


@pytest.fixture(scope="module")
def certified(model):
    """A default run of it."""
    return sampled(model)


@pytest.fixture(scope="module")
def heavy_tailed():
    """A model that the first route does not certify."""
    return SYSTEMS["horseshoe"].build()


def test_the_first_route_is_the_last_where_it_certifies_itself(certified):
    facts, routes = facts_of(certified)
    best = pe.log_evidence(certified)
    assert facts["route"] == "importance" and list(routes) == ["importance"]
    assert routes["importance"]["value"] == best.value and routes["importance"]["status"] == "ok"
    assert routes["importance"]["n_evaluations"] == facts["n_evaluations"]
    # the draws are those from the fitted density, which are far more than those of the islands
    assert certified.posterior.attrs["drawn_from"] == "importance"
    assert certified.posterior.sizes["chain"] * certified.posterior.sizes["draw"] > 1_500
    assert pe.to_record(certified).facts.routes["importance"]["status"] == "ok"


@pytest.mark.slow
def test_a_posterior_that_no_density_fits_is_annealed(heavy_tailed):
    dt = sampled(heavy_tailed, cores=1, target_mcse=0.1)
    facts, routes = facts_of(dt)
    best, exact = pe.log_evidence(dt), SYSTEMS["horseshoe"].log_evidence
    assert list(routes)[:2] == ["importance", "annealing"] and facts["route"] == list(routes)[-1]
    assert facts["n_evaluations"] == n_evaluations(routes, dt)
    assert best.status == "ok" and abs(best.value - exact) < 4.0 * best.mcse
    assert routes[facts["route"]]["value"] == best.value


def test_what_the_user_chooses_is_what_is_run(model):
    for options in (
        {"draws": 320, "target_mcse": 0.2},
        {"method": "ais", "target_mcse": 0.2},
        {"reference": "laplace", "target_mcse": 0.2},
    ):
        assert "route" not in sampled(model, **options)["log_evidence"].attrs, options


def test_time_ends_the_routes(heavy_tailed):
    dt = sampled(heavy_tailed, max_time=1e-6)
    facts, routes = facts_of(dt)
    assert list(routes) == ["importance"] and facts["stopped_by"] == "max_time"
    assert pe.log_evidence(dt).status != "ok"


def test_a_survey_that_would_take_too_long_is_left_out(model, monkeypatch):
    monkeypatch.setattr(importance, "WORTH_SAYING", 0.0)
    dt = sampled(model, max_time=1e-6)
    assert facts_of(dt)[0]["stopped_by"] == "max_time"
    assert pe.log_evidence(dt).status != "ok"
    assert dt.posterior.attrs["drawn_from"] != "importance"


@pytest.mark.slow
def test_a_random_walk_of_100_states_is_right_or_not_ok(data_folder):
    """Islands whose chains have ten states miss large steps of it, all alike."""
    case = CASES["random_walk_noncentred"]
    dt = sampled(case.build(), target_mcse=0.1)
    best, routes = pe.log_evidence(dt), facts_of(dt)[1]
    error = best.value - case.reference().log_evidence
    assert abs(error) < 4.0 * best.mcse or best.status != "ok"
    for name, following in pairwise(routes):
        assert routes[name]["status"] != "ok" or (name, following) == ("importance", "annealing")


@dataclass(frozen=True)
class Claiming(Found):
    """What a route found, of which it claims other estimates."""

    claims: Any = None

    @property
    def evidence(self):
        return self.claims(*estimates(self.record))

    def with_record(self, record):
        return Found(self.target, record, self.route)


def claiming(found, claims):
    return Claiming(*(getattr(found, each.name) for each in fields(found)), claims)


@pytest.mark.slow
def test_chains_that_hardly_move_are_made_longer(heavy_tailed, monkeypatch):
    usual = pe.methods.SMC().chain_length

    def unmixed(run, target):
        found = anneal_moved(run, target)
        if run.sampler.chain_length == usual:
            doubt = {"status": Status.NOT_MIXED, "message": "chains are short"}
            found = claiming(found, lambda best, *others: [replace(best, **doubt), *others])
        return found

    monkeypatch.setattr(module, "anneal_moved", unmixed)
    dt = sampled(heavy_tailed, target_mcse=0.1)
    facts, routes = facts_of(dt)
    assert list(routes) == ["importance", "annealing", "long_chains"]
    assert routes["annealing"]["status"] == "not_mixed" and facts["route"] == "long_chains"
    assert facts["n_evaluations"] == n_evaluations(routes, dt)


@pytest.mark.slow
def test_what_the_first_route_found_checks_the_last(heavy_tailed, monkeypatch):
    """If it finds far more evidence than the islands after it, these have missed a mode."""

    def rich(*arguments):
        return claiming(
            importance_route(*arguments),
            lambda *found: [
                replace(e, value=e.value + 3.0, mcse=0.1) if e.estimator == "smc" else e
                for e in found
            ],
        )

    monkeypatch.setattr(module, "importance_route", rich)
    dt = sampled(heavy_tailed, target_mcse=0.2)
    best = pe.log_evidence(dt)
    assert best.status == "missed_mass" and "coarse" not in best.message
    assert "a short annealing from the prior gives" in best.message
    assert pe.estimate(dt)[best.estimator].status == "missed_mass"


@pytest.mark.slow
def test_the_first_route_is_kept_if_it_demands_more(heavy_tailed, monkeypatch):
    """The islands after it have missed a mode: all of its estimates exceed theirs."""

    def poor(*arguments):
        found = anneal_moved(*arguments)
        blocks = [replace(b, work=b.work + 9.0, bridge=None) for b in found.record.of(Role.FORWARD)]
        return found.with_record(found.record.updated(Role.FORWARD, tuple(blocks)))

    monkeypatch.setattr(module, "anneal_moved", poor)
    dt = sampled(heavy_tailed, target_mcse=0.2)
    facts, routes = facts_of(dt)
    best = pe.log_evidence(dt)
    assert list(routes)[-1] != "importance" and facts["route"] == "importance"
    assert best.value == routes["importance"]["value"] and best.status != "ok"
    assert facts["annealed_log_z"] < best.value - 3.0
    assert pe.estimate(dt)[best.estimator] == best


class Decay(Op):
    """A black box that takes 5 ms."""

    __props__ = ()
    itypes, otypes = [pt.dscalar], [pt.dvector]

    def perform(self, node, inputs, outputs):
        time.sleep(0.005)
        outputs[0][0] = np.exp(-inputs[0] * np.arange(1.0, 4.0))


@pytest.mark.slow
@pytest.mark.parametrize(("max_time", "longest"), [(10.0, 40.0), (40.0, 50.0)])
def test_time_is_kept_where_evaluations_are_dear(max_time, longest):
    """Without this, the first route alone took more than 100 s. The smallest run takes 25 s."""
    y, sd = np.array([0.5, 0.3, 0.1]), 0.1
    with pm.Model() as model:
        rate = pm.HalfNormal("rate", 2.0)
        pm.Normal("y", Decay()(rate), sd, observed=y)
    rates = np.linspace(0.0, 10.0, 4001)
    heights = stats.norm.logpdf(y, np.exp(-rates[:, None] * np.arange(1.0, 4.0)), sd).sum(axis=1)
    heights += stats.halfnorm.logpdf(rates, 0.0, 2.0)
    exact = logsumexp(heights) + np.log(rates[1])
    started = time.perf_counter()
    found = pe.log_evidence(sampled(model, max_time=max_time))
    assert time.perf_counter() - started < longest
    assert abs(found.value - exact) < 5.0 * found.mcse


def counts_with_a_covariate(*, heavy):
    """Elements that differ in more than their data: each needs nodes of its own."""
    group, x = np.repeat(np.arange(5), 4), np.linspace(-1.0, 1.0, 20)
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        effect = (
            pm.StudentT("effect", nu=4, sigma=scale, shape=5)
            if heavy
            else pm.Normal("effect", 0, scale, shape=5)
        )
        pm.Poisson("y", pt.exp(effect[group] + 0.3 * x), observed=np.arange(20) % 4)
    return model


def horseshoe():
    """Given the coefficients, their scales are independent; their marginal density has poles."""
    with pm.Model() as model:
        scale = pm.HalfCauchy("scale", 1, shape=3)
        slope = pm.Normal("slope", 0, 0.5 * scale, shape=3)
        pm.Normal("y", np.eye(4, 3) @ slope + slope[0], 1, observed=np.arange(4.0))
    return model


def thresholds_and_slopes(n=5):
    """Given both, persons are independent, but two coordinates are not integrated."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        threshold = pm.Normal("threshold", 0, scale, shape=n)
        slope = pm.Normal("slope", 0, 0.5, shape=n)
        logit_p = pt.exp(slope)[:, None] * (np.linspace(-2.0, 2.0, 6) - threshold[:, None])
        pm.Binomial("y", 5, logit_p=logit_p, observed=np.arange(6 * n).reshape(n, 6) % 6)
    return model


@pytest.mark.parametrize(
    ("build", "integrated"),
    [
        (SYSTEMS["eight_schools_half_cauchy_centred"].build, True),  # in closed form
        (lambda: plates("successes")[0], True),  # nodes in common
        (lambda: counts_with_a_covariate(heavy=True), True),  # no approximation is known
        (lambda: counts_with_a_covariate(heavy=False), False),
        (horseshoe, False),
        (thresholds_and_slopes, False),
        (lambda: thresholds_and_slopes(100), True),  # too many to be sampled together
        (SYSTEMS["gaussian_shells"].build, False),  # nothing is local
    ],
)
def test_local_variables_are_integrated_where_it_takes_less_time(build, integrated):
    found = plate_target(build(), "auto", None, open_routes=True)
    assert (found is not None) == integrated
