"""One call from posterior draws to log evidence: values, what comes back, what is refused."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import pm_evidence as pe
from tests.api.refusals import check_refusals
from tests.models import shared
from tests.posteriors import autoregressive, posterior_tree, sampled
from tests.systems.exact import exact_systems

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

DATA = np.array([0.5, 1.5, 1.0])
# the mean of three values with unit variances, under a standard normal prior
EXACT = stats.multivariate_normal(np.zeros(3), np.eye(3) + 1.0).logpdf(DATA)
MEAN, SCALE = DATA.sum() / 4.0, 0.5


def build(data=DATA, shape=(), scale=1.0):
    with pm.Model() as model:
        x = pm.Data("x", np.ones(3))
        mu = pm.Normal("mu", 0.0, 1.0, shape=shape)
        pm.Normal("y", x * (mu if shape == () else mu.sum()), scale, observed=data)
    return model


@pytest.fixture(scope="module")
def model():
    return build()


def draws_of(model, *, seed=1, n_chains=4, n_draws=500, correlation=0.5, **flags):
    """Exact posterior draws, in chains with some autocorrelation."""
    chains = autoregressive(np.random.default_rng(seed), n_chains, n_draws, correlation)
    return posterior_tree(model, {"mu": MEAN + SCALE * chains[:, :, 0]}, **flags)


@pytest.fixture(scope="module")
def idata(model):
    return draws_of(model)


def bridged(idata, model, **options):
    return pe.bridge_sampling(
        idata, model, **{"random_seed": 1, "progressbar": False, "cores": 1, **options}
    )


@pytest.fixture(scope="module")
def dt(idata, model):
    return bridged(idata, model)


def test_value(dt):
    """The one number that a user asks for."""
    found = pe.log_evidence(dt)
    assert found.status == "ok" and found.mcse < 0.02
    assert abs(found.value - EXACT) < 4.0 * found.mcse


def test_draws_of_pm_sample():
    """The tree of PyMC itself, with its transforms, statistics and coordinates."""
    known = shared("positive")
    dt = bridged(sampled(known.model), known.model)
    found = pe.log_evidence(dt)
    assert found.status == "ok" and found.mcse < 0.02
    assert abs(found.value - known.log_evidence) < 4.0 * found.mcse
    assert {"posterior", "sample_stats", "observed_data", "log_evidence"} <= set(dt.children)


def test_what_comes_back(dt, idata):
    """The posterior of the user must not be exchanged for another one."""
    assert set(idata.children) | {"log_evidence", "work", "annealing", "record"} == set(dt.children)
    xr.testing.assert_identical(dt["posterior"].to_dataset(), idata["posterior"].to_dataset())
    attrs = dt["log_evidence"].attrs
    assert attrs["method"] == "bridge_sampling" and attrs["n_chains"] == 4
    assert list(pe.estimate(dt)) == ["bridge", "importance", "smc"]
    works = [block.bridge for block in pe.to_record(dt).of("given")]
    assert len(works) == dt["work"].sizes["given_block"] == 16
    assert sum(len(reverse) for _, reverse in works) == 2000
    assert sum(len(forward) for forward, _ in works) >= 4000


def test_the_seed_matters_and_cores_do_not(dt, idata, model):
    """The same seed has to give the same digits on any machine."""
    with ThreadPoolExecutor(2) as executor:
        for options in ({"cores": 2}, {"executor": executor}):
            assert pe.estimate(bridged(idata, model, **options)) == pe.estimate(dt)
    assert pe.estimate(bridged(idata, model, random_seed=2)) != pe.estimate(dt)


@pytest.mark.parametrize(("name", "value"), [("max_draws", 5000), ("max_time", 1e-3)])
def test_limits(idata, model, name, value):
    """A run that ends before its error is small has to say so."""
    with pytest.warns(pe.EvidenceWarning, match=name):
        dt = bridged(idata, model, target_mcse=1e-4, **{name: value})
    assert pe.log_evidence(dt).status == name
    n_drawn = sum(len(block.bridge[0]) for block in pe.to_record(dt).of("given"))
    assert name != "max_draws" or n_drawn <= value


def test_potentials_of_a_prior():
    """The constant that normalises the prior is estimated beside the bridge."""
    known, y = shared("potential"), [0.3, 0.8]
    precision = 2.0 * np.eye(2) + 2.0 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    covariance = np.linalg.inv(precision)
    draws = np.random.default_rng(1).multivariate_normal(covariance @ y, covariance, (4, 500))
    idata = posterior_tree(known.model, {"x": draws})
    found = pe.log_evidence(bridged(idata, known.model, potentials="prior"))
    assert abs(found.value - known.log_evidence) < 4.0 * found.mcse


# draws that are not good enough -------------------------------------------------------------------


def status_of(idata, model, **options):
    with pytest.warns(pe.EvidenceWarning):
        return pe.log_evidence(bridged(idata, model, **options))


def test_a_missed_mode():
    """All chains are in one of two modes, and nothing in them tells."""
    model = shared("modes").model
    one = np.random.default_rng(1).normal(3.96, 4.04**-0.5, (4, 1000))
    idata = posterior_tree(model, {"x": one})
    found = status_of(idata, model)
    assert found.status in ("missed_mass", "inconsistent")


def test_draws_that_tell_too_little(model):
    """Few draws, many of which hardly any is independent, or a single chain."""
    for draws, reason in (
        ({"n_draws": 50}, "effective number"),
        ({"n_draws": 1000, "correlation": 0.98}, "effective number"),
        ({"n_chains": 1, "n_draws": 2000}, "single chain"),
    ):
        found = status_of(draws_of(model, **draws), model)
        assert found.status == "doubtful_draws" and reason in found.message, draws


def test_divergences(model):
    """They say that a region was not entered; a few of them may be confirmed."""
    diverging = np.zeros((4, 500), bool)
    diverging[1, 7] = True
    few = bridged(draws_of(model, diverging=diverging), model)
    assert pe.log_evidence(few).status == "ok" and few["log_evidence"].attrs["n_divergent"] == 1
    diverging[2, :20] = True
    found = status_of(draws_of(model, diverging=diverging), model)
    assert found.status == "doubtful_draws" and "21 of 2000 draws ended in a div" in found.message


def test_draws_of_another_posterior(model):
    """The same variables, with a posterior that is too wide."""
    idata = draws_of(model, n_draws=1000)
    mu = idata["posterior"]["mu"].values
    mu[:] = MEAN + 2.0 * (mu - MEAN)
    assert status_of(idata, model).status in ("inconsistent", "missed_mass")


# what is refused ----------------------------------------------------------------------------------


def without(idata, name):
    return xr.DataTree.from_dict({n: idata[n].to_dataset() for n in idata.children if n != name})


def test_what_is_no_posterior_of_the_model(model, idata):
    """Another kind of object, or draws of another model, of other shapes, or given other data."""
    other_x = build()
    with other_x:
        pm.set_data({"x": np.zeros(3)})
    elsewhere = posterior_tree(model, {"nu": np.zeros((4, 500))})
    of_two = build(shape=(2,))
    cases = [
        *(
            (wrong, model, TypeError, "idata must be a DataTree with posterior draws, got")
            for wrong in (None, idata["posterior"].to_dataset(), {"mu": 1.0}, "idata")
        ),
        (without(idata, "posterior"), model, ValueError, "idata must have the group 'posterior'"),
        (elsewhere, model, ValueError, "idata must hold draws of 'mu'"),
        (idata, of_two, ValueError, r"idata must hold draws of 'mu' of shape \(2,\)"),
        (idata, build(DATA + 1.0), ValueError, "idata must hold the posterior given the data"),
        (idata, other_x, ValueError, "other values of 'x'"),
    ]
    check_refusals(
        bridged,
        [({"idata": tree, "model": of}, error, message) for tree, of, error, message in cases],
    )
    with pytest.raises(TypeError, match="idata must be a DataTree"):
        pe.sample_evidence(model, method=pe.methods.Bridge)


def test_models_without_a_bridge():
    """Discrete variables, a prior of unknown mass, nothing to fit."""
    empty = xr.DataTree.from_dict({"posterior": xr.Dataset()})
    cut = exact_systems()["interval_cut_normal"].build()
    for model in (shared("discrete").model, cut, shared("no variable").model):
        with pytest.raises(pe.ModelError, match="bridge sampling needs a model of continuous"):
            bridged(empty, model)


def test_arguments_without_a_use(idata, model):
    """They would be ignored in silence."""
    options = {"schedule": "linear", "reference": "laplace", "path": "data_points"}
    options["idata_kwargs"] = {"log_likelihood": True}
    for name, value in options.items():
        with pytest.raises(ValueError, match=rf"{name} must be left out with pe\.methods\.Bridge"):
            pe.sample_evidence(
                model, method=pe.methods.Bridge(idata), progressbar=False, **{name: value}
            )
