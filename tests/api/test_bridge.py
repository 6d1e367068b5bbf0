"""One call from posterior draws to log evidence: values, what comes back, what is refused."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import pm_evidence as pe
from pm_evidence.testing import exact_systems
from tests.posteriors import autoregressive, posterior_tree, sampled

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

DATA = np.array([0.5, 1.5, 1.0])
# the mean of three values with unit variances, under a standard normal prior
EXACT = stats.multivariate_normal(np.zeros(3), np.eye(3) + 1.0).logpdf(DATA)
MEAN, SCALE = DATA.sum() / 4.0, 0.5
SYSTEMS = exact_systems()


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
    system = SYSTEMS["beta_binomial"]
    model = system.build()
    dt = bridged(sampled(model), model)
    found = pe.log_evidence(dt)
    assert found.status == "ok" and found.mcse < 0.02
    assert abs(found.value - system.log_evidence) < 4.0 * found.mcse
    assert {"posterior", "sample_stats", "observed_data", "log_evidence"} <= set(dt.children)


def test_what_comes_back(dt, idata):
    """The posterior of the user must not be exchanged for another one."""
    assert set(idata.children) | {"log_evidence", "work", "annealing"} == set(dt.children)
    xr.testing.assert_identical(dt["posterior"].to_dataset(), idata["posterior"].to_dataset())
    attrs = dt["log_evidence"].attrs
    assert attrs["method"] == "bridge_sampling" and attrs["n_chains"] == 4
    assert list(pe.estimate(dt)) == ["bridge", "importance", "smc"]
    work = dt["work"]
    assert work.sizes["given_block"] == 16
    assert work.sizes["bridge_reverse_draw"] == 2000
    assert work.sizes["bridge_forward_draw"] >= 4000


def test_all_evaluations_count(dt):
    """Otherwise the method would look cheaper than it is."""
    work = dt["work"]
    blocks = int(work["forward_n_evaluations"].sum() + work["given_n_evaluations"].sum())
    given = int(work["given_n_evaluations"].sum())
    assert given >= work.sizes["bridge_forward_draw"] + work.sizes["bridge_reverse_draw"]
    assert dt["log_evidence"].attrs["n_evaluations"] > blocks  # pilot, survey and fits as well


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_saved_and_read_back(dt, kind, tmp_path):
    """A stored result has to give the same estimates."""
    path = tmp_path / f"dt.{kind}"
    getattr(dt, f"to_{kind}")(path)
    with xr.open_datatree(path, engine="h5netcdf" if kind == "netcdf" else "zarr") as read:
        assert pe.estimate(read) == pe.estimate(dt)
        assert pe.log_evidence(read) == pe.log_evidence(dt)


def test_compare_and_combine(dt, model):
    """Evidences by two methods of the same data belong in one table."""
    other = pe.sample_evidence(model, random_seed=2, progressbar=False, cores=1)
    table = pe.compare({"bridge": dt, "annealing": other})
    assert table["log_bf"].abs().max() < 0.1
    assert (table["status"] == "ok").all()


def test_by_the_name_of_the_method(dt, idata, model):
    """Both calls are the same run."""
    with model:
        other = pe.sample_evidence(
            method=pe.Bridge(idata), random_seed=1, progressbar=False, cores=1
        )
    assert pe.estimate(other) == pe.estimate(dt)


def test_cores_do_not_matter(dt, idata, model):
    """The same seed has to give the same digits on any machine."""
    with ThreadPoolExecutor(2) as executor:
        for options in ({"cores": 2}, {"executor": executor}):
            assert pe.estimate(bridged(idata, model, **options)) == pe.estimate(dt)


def test_the_seed_matters(dt, idata, model):
    """The small annealing, the fit and its draws come from the seed."""
    assert pe.estimate(bridged(idata, model, random_seed=2)) != pe.estimate(dt)


def test_a_small_error_takes_more_draws(idata, model):
    """Draws from the fitted density cost one evaluation each."""
    found = pe.log_evidence(bridged(idata, model, target_mcse=0.003))
    assert found.status == "ok" and found.mcse <= 0.003
    assert abs(found.value - EXACT) < 4.0 * found.mcse


@pytest.mark.parametrize(("name", "value"), [("max_draws", 5000), ("max_time", 1e-3)])
def test_limits(idata, model, name, value):
    """A run that ends before its error is small has to say so."""
    with pytest.warns(pe.EvidenceWarning, match=name):
        dt = bridged(idata, model, target_mcse=1e-4, **{name: value})
    assert pe.log_evidence(dt).status == name
    assert name != "max_draws" or dt["work"].sizes["bridge_forward_draw"] <= value


def test_potentials_of_a_prior():
    """The constant that normalises the prior is estimated beside the bridge."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Potential("weight", -0.5 * mu**2)
        pm.Normal("y", mu, 1.0, observed=DATA)
    rng = np.random.default_rng(1)
    variance = 1.0 / 5.0
    idata = posterior_tree(
        model, {"mu": variance * DATA.sum() + rng.normal(0.0, variance**0.5, (4, 500))}
    )
    found = pe.log_evidence(bridged(idata, model, potentials="prior"))
    exact = stats.multivariate_normal(np.zeros(3), np.eye(3) + 0.5).logpdf(DATA)
    assert abs(found.value - exact) < 4.0 * found.mcse


# draws that are not good enough -------------------------------------------------------------------


def status_of(idata, model, **options):
    with pytest.warns(pe.EvidenceWarning):
        return pe.log_evidence(bridged(idata, model, **options))


def test_a_missed_mode():
    """All chains are in one of two modes, and nothing in them tells."""
    model = SYSTEMS["bimodal"].build()
    both = sampled(model, draws=1000, chains=8)["posterior"]["x"].values
    one = both.reshape(-1)[both.reshape(-1) > 0.0]
    idata = posterior_tree(model, {"x": one[: len(one) // 4 * 4].reshape(4, -1)})
    found = status_of(idata, model)
    assert found.status in ("missed_mass", "inconsistent")


def test_few_draws(model):
    """Their effective number is below 400."""
    found = status_of(draws_of(model, n_draws=50), model)
    assert found.status == "doubtful_draws" and "effective number" in found.message


def test_slow_chains(model):
    """Many draws, but hardly any independent ones."""
    found = status_of(draws_of(model, n_draws=1000, correlation=0.98), model)
    assert found.status == "doubtful_draws" and "effective number" in found.message


def test_a_single_chain(model):
    """It cannot show that it has converged."""
    found = status_of(draws_of(model, n_chains=1, n_draws=2000), model)
    assert found.status == "doubtful_draws" and "single chain" in found.message


def test_divergences(model):
    """They say that a region was not entered; a few of them may be confirmed."""
    diverging = np.zeros((4, 500), bool)
    diverging[1, 7] = True
    few = bridged(draws_of(model, diverging=diverging), model)
    assert pe.log_evidence(few).status == "ok" and few["log_evidence"].attrs["n_divergent"] == 1
    diverging[2, :20] = True
    found = status_of(draws_of(model, diverging=diverging), model)
    assert found.status == "doubtful_draws" and "21 of 2000 draws ended in a div" in found.message


@pytest.mark.parametrize("name", ["tune", "tuning"])
def test_flagged_warm_up(model, name):
    """PyMC and nutpie have a name each for draws of the warm-up."""
    flags = np.arange(500) < np.full((4, 1), 100)
    found = status_of(draws_of(model, **{name: flags}), model)
    assert found.status == "doubtful_draws" and "400 draws belong to the warm-up" in found.message


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["nutpie", "numpyro", "blackjax"])
def test_draws_of_other_samplers(model, sampler):
    pytest.importorskip(sampler)
    with model:
        idata = pm.sample(chains=4, nuts_sampler=sampler, random_seed=1, progressbar=False)
    found = pe.log_evidence(bridged(idata, model))
    assert found.status == "ok" and abs(found.value - EXACT) < 4.0 * found.mcse


def test_warm_up_without_a_flag(model):
    """Chains that come from afar have a large R-hat, or contradict importance sampling."""
    idata = draws_of(model, n_draws=500)
    start = np.array([20.0, -20.0, 10.0, -10.0])[:, None] * np.exp(-np.arange(500) / 20.0)
    idata["posterior"]["mu"].values[:] += start
    assert status_of(idata, model).status in ("doubtful_draws", "inconsistent")


def test_draws_of_another_posterior(model):
    """The same variables, with a posterior that is too wide."""
    idata = draws_of(model, n_draws=1000)
    mu = idata["posterior"]["mu"].values
    mu[:] = MEAN + 2.0 * (mu - MEAN)
    assert status_of(idata, model).status in ("inconsistent", "missed_mass")


def test_thinned_draws_are_fine(model):
    """They are fewer, and no less from the posterior."""
    idata = draws_of(model, n_draws=2000).isel(draw=slice(None, None, 4))
    assert pe.log_evidence(bridged(idata, model)).status == "ok"


# what is refused ----------------------------------------------------------------------------------


def without(idata, name):
    return xr.DataTree.from_dict({n: idata[n].to_dataset() for n in idata.children if n != name})


def test_other_kinds_of_arguments(model, idata):
    """A trace or a dataset is a common mistake."""
    for wrong in (None, idata["posterior"].to_dataset(), {"mu": 1.0}, "idata"):
        with pytest.raises(TypeError, match="idata must be a DataTree with posterior draws, got"):
            bridged(wrong, model)
    with pytest.raises(TypeError, match="idata must be a DataTree"):
        pe.sample_evidence(model, method=pe.Bridge)


def test_a_tree_without_posterior(model, idata):
    """As pm.sample_prior_predictive returns one."""
    with pytest.raises(ValueError, match="idata must have the group 'posterior'"):
        bridged(without(idata, "posterior"), model)


def test_missing_variables(model, idata):
    """Draws of another model, or with var_names."""
    other = posterior_tree(model, {"nu": np.zeros((4, 500))})
    with pytest.raises(ValueError, match="idata must hold draws of 'mu'"):
        bridged(other, model)


def test_other_dimensions(idata):
    """Three groups instead of one."""
    with pytest.raises(ValueError, match=r"idata must hold draws of 'mu' of shape \(2,\)"):
        bridged(idata, build(shape=(2,)))


def test_other_data(model, idata):
    """The evidence of other data would be compared."""
    with pytest.raises(ValueError, match="idata must hold the posterior given the data"):
        bridged(idata, build(DATA + 1.0))


def test_other_constant_data(model, idata):
    """Predictors that were exchanged after sampling."""
    other = build()
    with other:
        pm.set_data({"x": np.zeros(3)})
    with pytest.raises(ValueError, match="other values of 'x'"):
        bridged(idata, other)


def test_draws_outside_the_support():
    """A scale that is negative belongs to another model."""
    with pm.Model() as model:
        pm.Normal("y", 0.0, pm.HalfNormal("sigma", 1.0), observed=DATA)
    idata = posterior_tree(model, {"sigma": np.random.default_rng(1).normal(size=(4, 500))})
    with pytest.raises(ValueError, match="idata must lie inside the support"):
        bridged(idata, model)


def test_draws_without_a_likelihood():
    """Inside the support of the prior, and outside of that of the data."""
    with pm.Model() as model:
        top = pm.HalfNormal("top", 5.0)
        pm.Uniform("y", 0.0, top, observed=DATA)
    idata = posterior_tree(model, {"top": np.random.default_rng(1).uniform(0.1, 4.0, (4, 500))})
    with pytest.raises(ValueError, match="idata must lie inside the support of the posterior, got"):
        bridged(idata, model)


def test_hardly_any_draws(model):
    """No density can be fitted to them."""
    with pytest.raises(ValueError, match="idata must hold at least 50 posterior draws, got 48"):
        bridged(draws_of(model, n_draws=12), model)
    found = status_of(draws_of(model, n_draws=13), model)
    assert found.status == "doubtful_draws"


@pytest.mark.parametrize("name", ["sprinkler", "interval_cut_normal", "no_free_variable"])
def test_models_without_a_bridge(name):
    """Discrete variables, a prior of unknown mass, nothing to fit."""
    model = SYSTEMS[name].build()
    idata = xr.DataTree.from_dict({"posterior": xr.Dataset()})
    with pytest.raises(pe.ModelError, match="bridge sampling needs a model of continuous"):
        bridged(idata, model)


def test_native_targets(idata):
    """Their states have no density to fit."""
    with pytest.raises(ValueError, match=r"bridge sampling needs a pymc\.Model"):
        pe.sample_evidence(pe.Ising(4), method=pe.Bridge(idata), progressbar=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [("schedule", "linear"), ("reference", "laplace"), ("path", "data_points"),
     ("idata_kwargs", {"log_likelihood": True})],
)  # fmt: skip
def test_arguments_without_a_use(idata, model, name, value):
    """They would be ignored in silence."""
    with pytest.raises(ValueError, match=rf"{name} must be left out with pe\.Bridge"):
        pe.sample_evidence(model, method=pe.Bridge(idata), progressbar=False, **{name: value})
