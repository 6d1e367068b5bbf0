"""Annealing both ways on PyMC models, as users call it."""

import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pm_evidence as pe
from pm_evidence.targets.model.cache import target_of
from tests.api.refusals import check_refusals
from tests.models import shared
from tests.posteriors import posterior_tree
from tests.systems.deceptive import Modes
from tests.systems.exact import exact_systems

NORMAL = shared("normal")
LOG_Z = NORMAL.log_evidence
TWO_SIDED = {
    *("bar", "histogram", "jarzynski", "jarzynski_reverse", "lower_bound", "upper_bound"),
    *("cumulant", "cumulant_forward", "cumulant_reverse"),
}


# A spike of a twentieth of the slab's width, in 20 dimensions, that outweighs it by ten nats.
SPIKE_IN_SLAB = Modes(20, (0.0, 0.0), (1.0, 0.05), (1.0, np.exp(10.0)), prior_sd=1.0)


def sample(model=NORMAL.model, **kwargs):
    kwargs = {
        "random_seed": 1,
        "progressbar": False,
        "method": "ais",
        "draws": 300,
        "target_mcse": None,
    } | kwargs
    return pe.sample_evidence(model, **kwargs)


@pytest.fixture(scope="module")
def run():
    return sample()


def observed():
    return NORMAL.model.rvs_to_values[NORMAL.model["y"]].data


@pytest.fixture(scope="module")
def idata():
    """Exact draws of the posterior, in two chains."""
    precision = len(observed()) + 0.25
    rng = np.random.default_rng(1)
    mu = rng.normal(observed().sum() / precision, precision**-0.5, (2, 200))
    return posterior_tree(NORMAL.model, {"mu": mu}, diverging=np.zeros((2, 200), bool))


# --- results ---


def test_all_estimators_and_both_bounds(run):
    names = set(run["log_evidence"]["estimator"].values)
    assert TWO_SIDED | {"bridge", "importance"} == names
    evidence = pe.log_evidence(run)
    assert evidence.estimator == "bar" and evidence.status == "ok"
    assert abs(evidence.value - LOG_Z) < 4 * evidence.mcse
    lower, upper = (pe.log_evidence(run, estimator=f"{side}_bound") for side in ("lower", "upper"))
    assert lower.value - 4 * lower.mcse < LOG_Z < upper.value + 4 * upper.mcse
    assert lower.status == upper.status == "bound"
    assert "strict" in lower.message and "if the reverse paths start" in upper.message


def test_work_of_both_directions_is_stored(run, tmp_path):
    """Every estimator can be computed again from a file."""
    run.to_netcdf(tmp_path / "run.nc")
    with xr.open_datatree(tmp_path / "run.nc") as again:
        work = again["work"].to_dataset().load()
    assert work["forward"].shape == work["reverse"].shape == (300,)
    found = pe.estimators.bar(
        work["forward"].values,
        work["reverse"].values,
        reverse_blocks=work["reverse_path_origin"].values,
    )
    assert found == pe.log_evidence(run)
    assert run["annealing"]["energy_mean"].dims == ("direction", "stage")
    assert list(run["annealing"]["direction"].values) == ["forward", "reverse"]


def test_hysteresis_has_the_right_sign(run):
    """Forward populations lag behind at higher energies, reverse ones at lower."""
    energy = run["annealing"]["energy_mean"]
    gap = energy.sel(direction="forward") - energy.sel(direction="reverse")
    assert float(gap.mean()) > 0


def test_discrete_model_has_no_bridge():
    known = shared("mixed")
    dt = sample(known.model)
    evidence = pe.log_evidence(dt)
    assert "bridge" not in dt["log_evidence"]["estimator"].values
    assert abs(evidence.value - known.log_evidence) < 4 * evidence.mcse


# --- starts ---


def test_starts_from_the_users_posterior(idata):
    dt = sample(method=pe.methods.AIS(reverse_start=idata))
    evidence = pe.log_evidence(dt)
    assert evidence.status == "ok" and abs(evidence.value - LOG_Z) < 4 * evidence.mcse
    assert dt["log_evidence"].attrs["reverse_start"] == "given"
    assert "smc" not in dt["log_evidence"]["estimator"].values
    origin = dt["work"]["reverse_path_origin"].values
    assert 8 <= len(np.unique(origin)) <= 16


def test_starts_that_contradict_themselves_give_a_warning(idata):
    """Reverse paths from there would certify what they have not seen; sound ones pass above."""
    doubtful = idata.copy(deep=True)
    diverging = doubtful["sample_stats"]["diverging"]
    doubtful["sample_stats"]["diverging"] = diverging.where(diverging["draw"] >= 3, True)
    n_chains, n = diverging.sizes["chain"], diverging.size
    with pytest.warns(
        pe.EvidenceWarning,
        match=rf"but {3 * n_chains} of {n} draws ended in a divergence: .* non-centred model",
    ):
        sample(method=pe.methods.AIS(reverse_start=doubtful))
    apart = idata.copy(deep=True)
    moved = apart["posterior"]["mu"]
    apart["posterior"]["mu"] = moved.where(moved["chain"] > 0, moved + 0.4)
    with pytest.warns(pe.EvidenceWarning, match=r"but R-hat of 'mu' is 1\.\d\d, above 1\.05"):
        sample(method=pe.methods.AIS(reverse_start=apart))


SLOW = ["ordered_three", "dirichlet_multinomial", "von_mises"]


@pytest.mark.parametrize(
    "name", ["gamma_poisson", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_users_draws_are_mapped_back(name):
    """To the unconstrained scale and forth again they are the same."""
    target = target_of(exact_systems()[name].build())
    x = target.draw(5, np.random.SeedSequence(1)).x
    named = {key: value[None] for key, value in target.posterior(x).items()}
    again = target.unconstrained.values(named)
    np.testing.assert_allclose(target.wrap(again), target.wrap(x.copy()), rtol=1e-6, atol=1e-8)


def test_a_wrong_posterior_contradicts_the_forward_paths(idata):
    """Draws that sit elsewhere are caught: the work does not obey the fluctuation theorem.

    Either the work shows it, or importance sampling, which is then recommended instead.
    """
    moved = idata.copy(deep=True)
    moved["posterior"]["mu"] = moved["posterior"]["mu"] + 1.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        dt = sample(method=pe.methods.AIS(reverse_start=moved, n_stages=20), draws=1000)
    assert pe.log_evidence(dt, estimator="bar").status in ("inconsistent", "missed_mass")
    found = pe.log_evidence(dt)
    assert found.status == "inconsistent" or abs(found.value - LOG_Z) < 5 * found.mcse


def test_bad_starts(idata):
    cases = [
        (3, TypeError, "reverse_start must be a DataTree"),
        (xr.DataTree(), ValueError, "reverse_start must have the group 'posterior'"),
        (idata.filter(lambda n: n.name != "observed_data"), ValueError, "of this model"),
    ]
    check_refusals(
        lambda start: sample(method=pe.methods.AIS(reverse_start=start)),
        [({"start": start}, error, message) for start, error, message in cases],
    )


def test_posterior_of_another_model_or_of_other_data(idata):
    models = {}
    for name, shift in (("mu", 1.0), ("nu", 0.0)):
        with pm.Model() as models[name]:
            pm.Normal("y", pm.Normal(name, 0, 1), 1, observed=observed() + shift)
    for name, message in (
        ("mu", r"data of this model, got draws given y \(5,\)"),
        ("nu", r"draws of 'nu' of shape \(\), got none"),
    ):
        with pytest.raises(ValueError, match=message):
            sample(models[name], method=pe.methods.AIS(reverse_start=idata))


# --- verdicts ---


@pytest.mark.parametrize(("method", "missed_by"), [("smc", "smc"), ("ais", "bar")])
def test_a_phase_transition_is_found(method, missed_by):
    """A narrow spike in a wide slab, in 20 dimensions: no annealing meets it on its way.

    The survey does, and the estimate that rests on what it found is recommended, and says why.
    """
    dt, log_z = sample(SPIKE_IN_SLAB.build(), method=method), SPIKE_IN_SLAB.log_evidence()
    evidence = pe.log_evidence(dt)
    assert evidence.estimator == "importance" and evidence.status == "ok"
    assert abs(evidence.value - log_z) < 4 * evidence.mcse < 0.2
    missed = pe.log_evidence(dt, estimator=missed_by)
    assert missed.status == "missed_mass" and log_z - missed.value > 5
    assert "importance" in missed.message


def test_too_few_stages_miss_what_importance_sampling_finds():
    """One stage from the prior to the posterior in ten dimensions is no annealing."""
    system = exact_systems()["gaussian_10"]
    dt = sample(system.build(), method=pe.methods.AIS(n_stages=1), schedule=[0, 1])
    evidence = pe.log_evidence(dt)
    assert (evidence.estimator, evidence.status) == ("importance", "ok")
    assert abs(evidence.value - system.log_evidence) < 4 * evidence.mcse < 0.1
    assert pe.log_evidence(dt, estimator="bar").status == "missed_mass"
    assert pe.log_evidence(dt, estimator="histogram").status == "no_overlap"


# --- precision on demand ---


@pytest.mark.parametrize("method", ["smc", "ais"])
def test_rounds_go_on_to_the_target(method):
    known = shared("mixed")
    once = sample(known.model, method=method)
    target = 0.6 * pe.log_evidence(once).mcse
    dt = sample(known.model, method=method, target_mcse=target)
    evidence = pe.log_evidence(dt)
    assert evidence.mcse <= target and evidence.status == "ok"
    assert abs(evidence.value - known.log_evidence) < 4 * evidence.mcse
    assert len(dt["work"]["forward"]) > 1.5 * len(once["work"]["forward"])


def test_first_round_is_enough_where_it_is(run):
    """No more is computed than without a target, and the numbers are the same."""
    assert np.array_equal(run["work"]["forward"], sample(target_mcse=10.0)["work"]["forward"])


@pytest.mark.parametrize(
    ("limit", "status"), [({"max_draws": 700}, "max_draws"), ({"max_time": 1e-3}, "max_time")]
)
def test_limits_stop_and_say_so(limit, status):
    with pytest.warns(pe.EvidenceWarning, match=f"would have exceeded {status}"):
        dt = sample(target_mcse=1e-4, **limit)
    assert pe.log_evidence(dt).status == status
    assert len(dt["work"]["forward"]) <= 700


def test_bad_limits():
    target = {"target_mcse": 0.1}
    cases = [
        ({"target_mcse": 0.0}, "target_mcse must be a finite number above 0"),
        ({**target, "max_time": -1}, "max_time must be a finite number above 0"),
        ({**target, "max_draws": 299}, "max_draws must be a whole number of at least 300"),
        ({"max_draws": 5000}, "max_draws needs target_mcse"),
        ({"method": pe.methods.AIS(), "kernel": "nuts"}, "kernel must be one of"),
    ]
    check_refusals(sample, [(given, ValueError, message) for given, message in cases])
