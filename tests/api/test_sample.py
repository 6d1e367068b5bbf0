"""The entry point: what users type, what they get, and what they are told when it cannot work."""

from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import pm_evidence as pe
from tests.api.refusals import check_refusals
from tests.models import DESIGN, NOISE, PRIOR_SD, ROWS, X, Y, exact_line, shared

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

# |value - exact| in units of the reported error. With 16 islands the error has 15 degrees of
# freedom, and 4.4 of them are passed once in 2,000 times; all seeds are fixed.
ERRORS = 4.4


def sample(target=None, **kwargs):
    """Call with little to do, in silence and from a fixed seed: one round of 1,600 draws."""
    options = {"draws": 1600, "target_mcse": None, "random_seed": 1, "progressbar": False}
    return pe.sample_evidence(target, **options | kwargs)


def check_value(dt, exact):
    """Compare the recommended estimate with the exact value, and refuse a useless error."""
    estimate = pe.log_evidence(dt)
    assert estimate.status == "ok"
    assert abs(estimate.value - exact) < ERRORS * estimate.mcse + 1e-9
    assert estimate.mcse < 0.2
    assert estimate.lower < estimate.value < estimate.upper


# --- one conjugate model, run once ---


@pytest.fixture(scope="module")
def line():
    return shared("line").model


@pytest.fixture(scope="module")
def dt(line):
    return sample(line, draws=8000, idata_kwargs={"log_likelihood": True, "log_prior": True})


def exact_posterior():
    """Mean and covariance of the coefficients."""
    cov = np.linalg.inv(DESIGN.T @ DESIGN / NOISE**2 + np.diag(1 / PRIOR_SD**2))
    return cov @ DESIGN.T @ Y / NOISE**2, cov


def test_value(dt):
    """The number that all of this is for."""
    check_value(dt, exact_line())


def test_every_estimator_agrees_with_the_exact_value(dt):
    """One that is off by many of its own errors must not stand beside the others as good."""
    for name in dt["log_evidence"]["estimator"].values:
        estimate = pe.log_evidence(dt, estimator=str(name))
        assert abs(estimate.value - exact_line()) < ERRORS * estimate.mcse


def test_posterior_moments(dt):
    """Draws with equal weights from the posterior: 16 islands of 500, so 0.1 sd is far off."""
    mean, cov = exact_posterior()
    sd = np.sqrt(cov.diagonal())
    draws = dt["posterior"]["coefficient"].values.reshape(-1, 2)
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / sd, 0.0, atol=0.1)
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(sd, sd), cov / np.outer(sd, sd), atol=0.1)


def test_posterior_is_labelled_as_pm_sample_does(dt):
    """Names, dimensions and coordinates: everything of ArviZ goes by them."""
    posterior = dt["posterior"].to_dataset()
    assert set(posterior.data_vars) == {"coefficient", "mean", "total"}
    assert posterior["coefficient"].dims == ("chain", "draw", "term")
    assert posterior["mean"].dims == ("chain", "draw", "row")
    assert posterior["total"].dims == ("chain", "draw")
    assert list(posterior["row"].values) == ROWS
    assert list(posterior["term"].values) == ["intercept", "slope"]
    assert posterior.sizes["chain"] == 4 and posterior.sizes["draw"] == 2000


def test_data_and_sample_stats(dt):
    """The groups that PyMC writes beside the posterior."""
    np.testing.assert_array_equal(dt["observed_data"]["y"].values, Y)
    assert dt["observed_data"]["y"].dims == ("row",)
    np.testing.assert_array_equal(dt["constant_data"]["x"].values, X)
    coefficient = dt["posterior"]["coefficient"].values
    lp = stats.norm.logpdf(coefficient, 0, PRIOR_SD).sum(axis=-1)
    lp += stats.norm.logpdf(Y, coefficient @ DESIGN.T, NOISE).sum(axis=-1)
    np.testing.assert_allclose(dt["sample_stats"]["lp"].values, lp, rtol=1e-10)
    assert dt["posterior"].attrs["sampling_time"] > 0


def test_pointwise_groups(dt):
    """log_likelihood=True and log_prior=True, as in pm.sample."""
    coefficient = dt["posterior"]["coefficient"].values
    pointwise = stats.norm.logpdf(Y, coefficient @ DESIGN.T, NOISE)
    np.testing.assert_allclose(dt["log_likelihood"]["y"].values, pointwise, rtol=1e-6)
    prior = stats.norm.logpdf(coefficient, 0, PRIOR_SD)
    np.testing.assert_allclose(dt["log_prior"]["coefficient"].values, prior, rtol=1e-6)
    assert dt["log_likelihood"]["y"].dims == ("chain", "draw", "row")


def test_record_of_the_run(dt):
    """Who, what, from which data: so that the number can be trusted next year."""
    attrs = dt["log_evidence"].attrs
    assert attrs["method"] == "smc" and attrs["random_seed"] == 1
    assert attrs["recommended"] in dt["log_evidence"]["estimator"].values
    assert attrs["potentials"] == "likelihood" and attrs["log_prior_mass"] == 0.0
    assert attrs["n_nan"] == 0 and attrs["n_evaluations"] > 0
    for name in ("pm_evidence", "pymc", "pytensor", "numba"):
        assert attrs[f"{name}_version"]
    assert len(attrs["fingerprint"]) == 64
    assert dt["work"]["forward"].shape == (16,)
    beta = dt["annealing"]["beta"].values
    assert beta[0] == 0.0 and beta[-1] == 1.0 and (np.diff(beta) > 0).all()


@pytest.mark.parametrize("engine", ["h5netcdf", "zarr"])
def test_round_trip(dt, engine, tmp_path):
    """What was saved is what is read, to the last bit, evidence included."""
    path = tmp_path / "run"
    if engine == "zarr":
        dt.to_zarr(path)
    else:
        dt.to_netcdf(path, engine=engine)
    with xr.open_datatree(path, engine=engine) as again:
        xr.testing.assert_identical(again.load(), dt)
        assert pe.log_evidence(again) == pe.log_evidence(dt)


# --- which model ---


def same_numbers(one, two):
    """Compare two runs bit for bit, up to their times."""
    for name in ("posterior", "sample_stats", "log_evidence", "work", "annealing"):
        xr.testing.assert_equal(one[name].to_dataset(), two[name].to_dataset())
    return True


@pytest.fixture(scope="module")
def short(line):
    return sample(line)


def test_the_model_may_come_by_context_or_by_name(line, short):
    """As with pm.sample."""
    assert same_numbers(sample(model=line), short)
    with line:
        assert same_numbers(sample(), short)
    with pm.Model():
        assert same_numbers(sample(line), short)  # the argument counts, not the context


def test_one_model_has_to_be_given(line):
    """To choose one of two would be a guess, and outside a context there is none."""
    check_refusals(
        sample,
        [
            (
                {"target": line, "model": line},
                TypeError,
                r"target and model are two names .*pass only one",
            ),
            (
                {},
                TypeError,
                r"outside a model context: pass the model, as in .*, or call inside `with model:`",
            ),
            *(
                ({"target": each}, TypeError, r"target must be a pymc\.Model, got \w+; pass the mo")
                for each in (5, "smc", np.ones(3), pm.Normal)
            ),
        ],
    )
    with pytest.raises(TypeError, match="positional"):
        pe.sample_evidence(line, "smc")  # draws to one user, and a seed to another


def test_new_data_are_seen():
    """The second evidence is that of the new data, though nothing is compiled anew."""
    with pm.Model() as model:
        x = pm.Data("x", X)
        coefficient = pm.Normal("coefficient", 0, PRIOR_SD, shape=2)
        seen = pm.Data("seen", Y)
        pm.Normal("y", coefficient[0] + coefficient[1] * x, NOISE, observed=seen)
    check_value(sample(model), exact_line())
    with model:
        pm.set_data({"x": X[:4], "seen": Y[:4] + 1})
    second = sample(model)
    check_value(second, exact_line(Y[:4] + 1, X[:4]))
    np.testing.assert_array_equal(second["observed_data"]["y"].values, Y[:4] + 1)


# --- the same seed, the same numbers ---


# --- methods, schedules, kernels ---


@pytest.mark.parametrize(
    "method", ["auto", "smc", "ais", pe.methods.SMC, pe.methods.AIS(n_stages=60, ess=0.7)]
)
def test_methods(line, method):
    """By name, by class, or with options of their own."""
    dt = sample(line, method=method, draws=200)
    check_value(dt, exact_line())
    expected = "ais" if "AIS" in repr(method) or method == "ais" else "smc"
    assert dt["log_evidence"].attrs["method"] == expected


# --- models of other kinds ---


def test_no_free_variable():
    """Its evidence is its likelihood, without an error."""
    known = shared("no variable")
    for method in ("smc", "ais"):
        dt = sample(known.model, method=method, idata_kwargs={"log_likelihood": True})
        estimate = pe.log_evidence(dt)
        assert estimate.value == pytest.approx(known.log_evidence)
        assert estimate.mcse == 0.0 and estimate.status == "ok"
        assert "posterior" not in dt.children and "observed_data" in dt.children


def test_potentials_as_likelihood_or_as_prior():
    """Part of the prior, a potential leaves its normalising constant behind, with its error."""
    known = shared("potential")
    constant = -0.5 * np.log(5.0)  # of exp(-d^2), where d is normal with a variance of two
    one = sample(known.model, draws=4800)
    check_value(one, known.log_evidence + constant)
    two = sample(known.model, draws=4800, potentials="prior")
    check_value(two, known.log_evidence)
    assert two["log_evidence"].attrs["potentials"] == "prior"
    # the posterior is the same, and the error holds that of the constant as well
    assert pe.log_evidence(two).mcse > pe.log_evidence(one).mcse
    xr.testing.assert_equal(one["posterior"].to_dataset(), two["posterior"].to_dataset())


# --- what is stored, and what is shown ---


def test_coords_and_dims_of_the_user(line):
    """They add to the model's, and win over them."""
    rows = [name.upper() for name in ROWS]
    options = {"coords": {"part": ["i", "j"], "row": rows}, "dims": {"coefficient": ["part"]}}
    posterior = sample(line, draws=320, idata_kwargs=options)["posterior"]
    assert posterior["coefficient"].dims == ("chain", "draw", "part")
    assert list(posterior["part"].values) == ["i", "j"]
    assert list(posterior["row"].values) == rows


# --- what cannot be relied on ---


def test_statuses_warn():
    """An estimate from a handful of draws must not pass in silence."""
    steep = pe.mixtures.Gaussian(start_mean=0.0, start_sd=1.0, mean=0.5, sd=1e-3)
    with pytest.warns(
        pe.EvidenceWarning, match=r"status '(dominated|high_variance|heavy_tail)': .*more draws"
    ):
        dt = sample(steep, method=pe.methods.AIS(direction="forward"), schedule=[0, 1], draws=400)
    assert pe.log_evidence(dt).status in ("dominated", "high_variance", "heavy_tail")
    assert pe.log_evidence(dt).message


def test_nan_among_the_proposals_is_told():
    """They are refused, so the evidence is that of a part of the model: that must be known."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu + 1e-12 * pm.math.sqrt(5.0 - mu), 0.3, observed=[4.8])
    with pytest.warns(pe.EvidenceWarning, match=r"NaN at \d+ of \d+ proposals; they were rejected"):
        dt = sample(model, draws=3200)
    assert dt["log_evidence"].attrs["n_nan"] > 0


def test_no_support_without_free_variables():
    """Minus infinity is the exact answer here, and comes with a warning."""
    with pm.Model() as model:
        pm.Uniform("y", 0, 1, observed=[-1.0])
    with pytest.warns(pe.EvidenceWarning, match=r"status 'no_support'"):
        dt = sample(model)
    assert pe.log_evidence(dt).value == -np.inf


# --- models that are refused ---

CHAIN = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
THREE = np.array([0.1, 0.2, 0.3])


def minibatch():
    batch = pm.Minibatch(np.arange(10.0), batch_size=3)
    pm.Normal("y", pm.Normal("a"), 1, observed=batch, total_size=10)


def simulator():
    pm.Simulator("y", lambda rng, a, size: rng.normal(a, size=size), pm.Normal("a"), observed=THREE)


def partly_observed():
    seen = np.ma.masked_array(THREE, mask=[False, True, False])
    with pytest.warns(pm.exceptions.ImputationWarning):
        pm.MvNormal("y", np.zeros(3), cov=np.eye(3), observed=seen)


def no_random():
    odd = pm.CustomDist("odd", logp=lambda value: -0.5 * value**2)
    pm.Normal("y", odd, 1, observed=THREE)


REFUSED = {
    "flat": (lambda: pm.Normal("y", pm.Flat("a"), 1, observed=THREE), r"a ~ pm\.Flat"),
    "half_flat": (lambda: pm.Normal("y", 0, pm.HalfFlat("a"), observed=THREE), r"a ~ pm\.HalfFlat"),
    "icar": (lambda: pm.Normal("y", pm.ICAR("a", W=CHAIN), 1, observed=THREE), r"a ~ pm\.ICAR"),
    "nothing_observed": (lambda: pm.Normal("a"), r"at least one observed variable"),
    "total_size": (
        lambda: pm.Normal("y", pm.Normal("a"), 1, observed=THREE, total_size=100),
        r"total_size.* on y",
    ),
    "minibatch": (minibatch, r"total_size.* on y"),
    "simulator": (simulator, r"y ~ pm\.Simulator"),
    "partly_observed_mvnormal": (partly_observed, r"y_unobserved of a multivariate"),
    "custom_dist_without_random": (no_random, r"drawing odd failed: .* random= function"),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pm.Simulator itself
def test_models_without_an_evidence():
    """Refused before anything is compiled, with the variable's name, the reason and the remedy."""

    def sample_model(build):
        with pm.Model() as model:
            build()
        sample(model)

    check_refusals(
        sample_model,
        [({"build": build}, pe.ModelError, message) for build, message in REFUSED.values()],
    )


def test_nan_in_the_likelihood():
    """Draws that were dropped would bias the evidence upwards; PyMC does not see such data."""
    with pm.Model() as model:
        x = pm.Data("x", 1.0)
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", pm.math.sqrt(mu + x), 1, observed=[1.0])
    message = r"nan at \d\d of 200 prior draws, first at \{mu=-1"
    with pytest.raises(pe.NumericalError, match=message):
        sample(model)
    with model:
        pm.set_data({"x": -100.0})
    message = r"log likelihood .* nan at 200 of 200 .*NaN in the data"
    with pytest.raises(pe.NumericalError, match=message):
        sample(model)


def test_no_support_anywhere():
    """The data contradict the prior: no FloatingPointError from a weight, but what to look for."""
    with pm.Model() as model:
        pm.Uniform("y", 0, pm.math.exp(pm.Normal("mu", 0, 1)), observed=[-1.0])
    runs = [
        *(("smc", schedule) for schedule in ("adaptive", "linear", [0.0, 1.0])),
        *(("ais", schedule) for schedule in ("adaptive", "linear", [0.0, 1.0])),
        *((method, "adaptive") for method in ("parallel_tempering", "simulated_tempering")),
    ]
    message = r"-inf at all \d+ draws .*outside the likelihood"
    check_refusals(
        sample,
        [
            ({"target": model, "method": method, "schedule": each}, pe.NumericalError, message)
            for method, each in runs
        ],
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Found chain dimension to be longer than draw:UserWarning")
def test_support_that_few_draws_reach():
    """Some islands may begin without a live particle: they count as zero, and nothing fails."""
    known = shared("support")
    dt = sample(known.model, draws=2000, method=pe.methods.SMC(islands=100, chain_length=5))
    assert np.isinf(dt["work"]["forward"].values).any()
    smc = pe.log_evidence(dt, estimator="smc")
    assert abs(smc.value - known.log_evidence) < ERRORS * smc.mcse
    assert (dt["posterior"]["x"].values > 1.0).all()


# --- arguments ---

BAD_ARGUMENTS = [
    ("method", "gibbs", ValueError, r"method must be one of 'auto', .*'aisel', .*got 'gibbs'"),
    ("method", "nuts", ValueError, r"got 'nuts'; .* is pe\.bridge_sampling\(idata, model\)"),
    (
        "method",
        None,
        TypeError,
        r"method must be a name .*pe\.methods\.SMC\(islands=32\), got None",
    ),
    ("method", pe.kernels.HMC, TypeError, r"method must be a name .*got the class"),
    ("draws", 0, ValueError, r"draws must be a whole number .* got 0; pass draws=1000"),
    ("draws", 1.5, ValueError, r"draws must be a whole number of at least \d+, got 1\.5"),
    ("schedule", "geometric", ValueError, r"schedule must be 'adaptive', 'linear', .*'geometric'"),
    ("schedule", [0, 0.5, 0.2, 1], ValueError, r"got betas\[2\]=0\.2 after 0\.5; sort it"),
    ("schedule", [0.1, 1], ValueError, r"schedule must rise from 0 to 1, got 0\.1 to 1\.0"),
    ("schedule", None, ValueError, r"schedule must be .* array of inverse temperatures, got None"),
    ("schedule", ["a", "b"], ValueError, r"schedule must be .* inverse temperatures, got \["),
    ("kernel", "nuts", ValueError, r"kernel must be one of .*random_walk.*got 'nuts'"),
    ("kernel", None, ValueError, r"kernel must be one of .*pe\.kernels\.HMC\(\), got None"),
    (
        "kernel",
        pe.kernels.HMC,
        ValueError,
        r"kernel must be one of .*pe\.kernels\.HMC\(\), got the class",
    ),
    ("reference", "uniform", ValueError, r"reference must be one of"),
    ("potentials", "both", ValueError, r"potentials must be one of 'likelihood', 'prior', got"),
    ("potentials", True, ValueError, r"potentials must be one of 'likelihood', 'prior', got True"),
    ("cores", 0, ValueError, r"cores must be a whole number of at least 1, got 0; pass cores=1"),
    ("cores", 1.5, ValueError, r"cores must be a whole number of at least 1, got 1\.5"),
    ("cores", "all", ValueError, r"cores must be a whole number of at least 1, got 'all'"),
    ("executor", 4, TypeError, r"executor must have a submit method .*got 4; pass for example"),
    ("executor", ProcessPoolExecutor, TypeError, r"executor must have a submit .*got the class"),
    ("random_seed", "one", ValueError, r"random_seed must be None, .*got 'one'; pass for exa"),
    ("random_seed", -1, ValueError, r"random_seed must not be negative, got -1; drop the sign"),
    ("random_seed", 10**5000, ValueError, r"random_seed must have at most 1,000 digits, got ab"),
    ("target_mcse", 1e-300, ValueError, r"target_mcse must be at least 1e-09, .*got 1e-300; pass"),
    ("random_seed", 1.0, ValueError, r"random_seed must be None, .*got 1\.0"),
    ("idata_kwargs", 5, TypeError, r"idata_kwargs must be a dict, got 5"),
    ("idata_kwargs", ["log_likelihood"], TypeError, r"idata_kwargs must be a dict, got \['log_"),
    ("idata_kwargs", {"log_lik": 1}, ValueError, r"idata_kwargs must hold only .*'log_lik'"),
    ("idata_kwargs", {"coords": 5}, TypeError, r"idata_kwargs\['coords'\] must be a dict, got 5"),
    ("idata_kwargs", {"dims": ["a"]}, TypeError, r"idata_kwargs\['dims'\] must be a dict, got \["),
    ("idata_kwargs", {"coords": {"g": 5}}, ValueError, r"'coords'\] must hold a row of labels"),
    ("idata_kwargs", {"coords": {"draw": [1]}}, ValueError, r"each dimension but chain and draw"),
    ("idata_kwargs", {"coords": {5: [1]}}, TypeError, r"keys of idata_kwargs\['coords'\] must be"),
    ("idata_kwargs", {"dims": {"x": 5}}, ValueError, r"'dims'\] must hold a list of nam"),
    ("idata_kwargs", {"dims": {"x": ["a/b"]}}, ValueError, r"slash, got 'a/b', .* to 'a_b'"),
    ("idata_kwargs", {"coords": {"a": [(1, 2), (3, 4)]}}, ValueError, r"must hold a row of lab"),
    ("idata_kwargs", {"dims": {"x": [5]}}, ValueError, r"'dims'\] must hold a list of names"),
    ("idata_kwargs", {"log_prior": 5}, ValueError, r"\['log_prior'\] must be True or False"),
    ("compile_kwargs", 5, TypeError, r"compile_kwargs must be a dict, got 5"),
    ("compile_kwargs", {"mode": "JAX"}, ValueError, r"another 'mode' than 'NUMBA', got 'JAX'"),
    ("compile_kwargs", {"bogus": 1}, ValueError, r"compile_kwargs must hold only .*got 'bogus'"),
    ("draws", 10**13, ValueError, r"draws must fit into memory, .*would take [\d,]+ GiB of"),
    ("steps", 10, TypeError, r"steps"),
]


def test_bad_arguments(line):
    """Parameter, rule, value and remedy: the user should not have to read our code."""
    check_refusals(
        lambda **options: sample(line, **options),
        [({name: value}, error, message) for name, value, error, message in BAD_ARGUMENTS],
    )


def test_bad_samplers():
    """Refused where they are written, not minutes later; a misspelt option is not ignored."""
    for sampler in (pe.methods.SMC, pe.methods.AIS):
        with pytest.raises(TypeError, match="stages"):
            sampler(stages=10)
        with pytest.raises(TypeError, match="positional"):
            sampler(10)
    with pytest.raises(ValueError, match="direction must be one of"):
        pe.methods.AIS(direction="back")
