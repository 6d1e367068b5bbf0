"""Parallel and simulated tempering of every kind of target, from the call to the stored result.

Estimates are within 4.5 of their errors of the exact value, at fixed seeds: with 32 independent
ladders or more, a false-alarm rate below 1e-4 each.
"""

import multiprocessing
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial

import arviz as az
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.core.exceptions import ModelError
from pm_evidence.testing import exact_log_z, sine_rbm
from pm_evidence.testing.lattices import enumeration
from tests.api.refusals import check_refusals
from tests.models import shared

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

METHODS = {
    "parallel": pe.methods.ParallelTempering(),
    "simulated": pe.methods.SimulatedTempering(chains=64, n_temperatures=12),
}
both = pytest.mark.parametrize("method", METHODS)
MOST_ERRORS = 4.5


def run(target, method, **options):
    chosen = METHODS[method]
    if "schedule" in options:
        chosen = replace(chosen, n_temperatures=None)
    usual = {"draws": 640, "target_mcse": None, "random_seed": 1, "progressbar": False, "cores": 1}
    return pe.sample_evidence(target, method=chosen, **usual | options)


def check(dt, exact, status="ok"):
    found = pe.log_evidence(dt)
    assert found.status == status, found.message
    assert abs(found.value - exact) < MOST_ERRORS * found.mcse, (found, exact)
    assert 0.0 < found.mcse < 0.25


# --- native targets ---


@cache
def native(name):
    """A target and its exact log evidence."""
    weights = sine_rbm(8, 6)
    targets = {
        "gaussian": pe.mixtures.Gaussian(),
        "machine": pe.rbm.RBM(*weights),
        "machine without its visible units": pe.rbm.RBM(*weights, latent="marginal"),
        "ising": pe.lattices.Ising((4, 4), 0.3),
        "ising in a field": pe.lattices.Ising((4, 4), 0.3, field=0.1),
        "potts": pe.lattices.Potts((3, 3), 3, 0.8),
    }
    target = targets[name]
    if isinstance(target, pe.mixtures.Gaussian):
        return target, target.log_evidence
    if isinstance(target, pe.rbm.RBM):
        return target, exact_log_z(*weights)
    return target, enumeration(target).log_z() - target.log_n_states


NATIVE = [
    *("gaussian", "machine", "machine without its visible units"),
    *("ising", "ising in a field", "potts"),
]


@both
@pytest.mark.parametrize("name", NATIVE)
def test_native_targets(name, method):
    target, exact = native(name)
    check(run(target, method), exact)


def test_what_cannot_be_tempered_is_refused():
    """Paths on which beta is no power, models without a reference, and unusable temperatures."""
    with pm.Model() as flat:
        pm.Normal("y", pm.Flat("x"), 1, observed=0.0)
    path = r"^path must have a log density that is linear in beta for tempering, got a .*; pass"
    gaussian = {"target": pe.mixtures.Gaussian()}
    schedules = {
        (1.0,): "be a sequence of at least two inverse temperatures, got shape",
        (0.1, 0.5, 1.0): "rise from 0 to 1, got 0.1 to 1.0; add the missing end",
        (0.0, 0.5): "rise from 0 to 1, got 0.0 to 0.5; add the missing end",
        (0.0, 0.5, 0.5, 1.0): r"rise from 0 to 1, got betas\[2\]=0.5 after 0.5",
    }
    cases = [
        ({"target": pe.lattices.Ising(4, 0.4), "path": "detour"}, ValueError, path),
        ({**gaussian, "path": "moment_average"}, ValueError, path),
        ({"target": flat}, ModelError, "Flat"),
        *(
            ({**gaussian, "schedule": list(schedule)}, ValueError, f"^schedule must {message}")
            for schedule, message in schedules.items()
        ),
    ]
    for method in METHODS:
        check_refusals(partial(run, method=method), cases)
    for kind in (pe.methods.SimulatedTempering, pe.methods.ParallelTempering):
        with pytest.raises(ValueError, match=r"^n_temperatures must be a whole number of at le"):
            kind(n_temperatures=1)


# --- models ---

# Each model by one of the methods, and one by both, is fast.
SLOW_MODELS = {("support", "simulated"), ("groups", "simulated"), ("potential", "simulated")}
SLOW_MODELS |= {("potential", "parallel"), ("discrete", "parallel")}


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(name, method, marks=pytest.mark.slow if (name, method) in SLOW_MODELS else [])
        for name in ("support", "potential", "groups", "discrete")
        for method in METHODS
    ],
)
def test_models(name, method):
    """Discrete variables, an estimated likelihood, one that is zero in places, and potentials."""
    known = shared(name)
    options = {"potential": {"potentials": "prior"}, "support": {"draws": 960}}.get(name, {})
    dt = run(known.model, method, **options)
    check(dt, known.log_evidence)
    assert (dt["annealing"]["beta"].values >= 0.0).all()


# --- the result ---


@both
@pytest.mark.parametrize("where", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_the_same_numbers_wherever_blocks_run(method, where):
    """One thread, and two threads or processes; two rounds, since the error is not small."""
    options = {"draws": 128, "target_mcse": 0.05, "max_draws": 512}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        first = run(pe.mixtures.Gaussian(), method, **options, cores=1)
        if where == "threads":
            other = run(pe.mixtures.Gaussian(), method, **options, cores=2)
        else:
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(2, mp_context=context) as pool:
                other = run(pe.mixtures.Gaussian(), method, **options, executor=pool)
    assert len(pe.to_record(first).tempered) > len(METHODS[method].groups())
    for group in ("posterior", "log_evidence", "work", "annealing"):
        one, same = (tree[group].to_dataset().drop_attrs() for tree in (first, other))
        assert one.identical(same), group


@both
def test_posterior_draws(method):
    """Shapes of several rounds, exact moments within their errors, and ArviZ's functions."""
    target = pe.mixtures.Gaussian(tau=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        dt = run(target, method, draws=1280, target_mcse=0.02, max_draws=6000)
    posterior, stats_ = dt["posterior"], dt["sample_stats"]
    assert len(pe.to_record(dt).tempered) > len(METHODS[method].groups())
    assert posterior.sizes["chain"] == min(METHODS[method].islands, 4)
    n = posterior.sizes["chain"] * posterior.sizes["draw"]
    assert 2000 < n <= 7000
    assert posterior.attrs["drawn_from"] == "ladders"
    assert stats_["origin"].shape == posterior["x"].shape
    table = pe.summary(dt, round_to="none")
    assert abs(table.loc["x", "mean"]) < MOST_ERRORS * table.loc["x", "mcse_mean"]
    assert abs(table.loc["x", "sd"] - 1.0) < MOST_ERRORS * table.loc["x", "mcse_sd"]
    assert 0.5 / n**0.5 < table.loc["x", "mcse_mean"] < 10.0 / n**0.5
    assert float(az.rhat(dt)["x"].max()) < 1.1


# --- statuses ---


def test_temperatures_between_which_no_chain_moves():
    """Two temperatures far apart: no chain comes from the reference to the target."""
    target = pe.mixtures.Gaussian(start_mean=30.0, start_sd=1.0, sd=0.1)
    for method in METHODS:
        with pytest.warns(pe.EvidenceWarning):
            dt = run(target, method, schedule=[0.0, 1.0])
        found = pe.log_evidence(dt)
        assert found.status in ("not_mixed", "no_overlap"), found
        assert "Use" in found.message
