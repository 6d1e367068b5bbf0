"""Averages over models: shares of draws, means, errors, and what is left out."""

import numpy as np
import pytest
import xarray as xr

import pm_evidence as pe
from pm_evidence.core.exceptions import EvidenceWarning
from pm_evidence.core.records import BlockRecord, LogEvidence, Role, RunRecord, StageTrace
from pm_evidence.results import average_models, summary, to_datatree
from pm_evidence.results.average import MODEL
from tests.api.refusals import check_refusals

DRAWS = 400


def result(value, mcse=0.1, *, status="ok", seed=1, predictions=True, observed=0.0, **posterior):
    """A stored run whose draws are given, each of an origin of its own."""
    nothing = StageTrace(*np.ones((4, 1)))
    record = RunRecord(
        "smc", np.array([0.0, 1.0]), {Role.FORWARD: [BlockRecord(0, np.ones(2), nothing)]}
    )
    names = {
        name: np.asarray(draws).reshape(2, DRAWS // 2, *np.shape(draws)[1:])
        for name, draws in posterior.items()
    }
    dt = to_datatree(
        record,
        [LogEvidence(value, mcse, "smc", status, message="Look.")],
        recommended="smc",
        posterior=names,
        sample_stats={"origin": np.arange(DRAWS).reshape(2, -1)},
        observed_data={"y": np.full(3, observed)},
        fingerprint=pe.results.fingerprint({"y": np.full(3, observed)}),
        random_seed=1,
        versions={},
        sample_attrs={"drawn_from": "importance"},
    )
    if predictions:
        rng = np.random.default_rng(seed)
        first = next(iter(names.values()))
        y = rng.normal(size=(2, DRAWS // 2, 3)) + first.reshape(2, DRAWS // 2, -1)[..., :1]
        dims = ("chain", "draw", "y_dim_0")
        dt["posterior_predictive"] = xr.Dataset({"y": (dims, y)}, coords=first_coords(dt))
    return dt


def first_coords(dt):
    return {name: dt["posterior"][name].values for name in ("chain", "draw")}


@pytest.fixture
def models():
    rng = np.random.default_rng(1)
    return {
        "a": result(-10.0, mu=rng.normal(0.0, 1.0, DRAWS), tau=np.ones(DRAWS)),
        "b": result(-10.0 - np.log(3.0), 0.2, mu=rng.normal(4.0, 1.0, DRAWS), seed=2),
    }


def test_models_have_their_shares_of_the_draws(models):
    mixed = average_models(models, random_seed=1)
    found = mixed["posterior"][MODEL].values
    assert found.shape == (4, 133)  # 532 of the 533 draws that use none of 400 twice
    assert (found == "a").mean() == pytest.approx(0.75, abs=1 / 532)
    probabilities = mixed["model_probabilities"]
    assert probabilities["prob"].values == pytest.approx([0.75, 0.25])
    assert probabilities["n_draws"].values.tolist() == [399, 133]
    # d p / d log Z = p (1 - p)
    assert probabilities["prob_mcse"].values == pytest.approx(
        np.full(2, 0.1875 * np.hypot(0.1, 0.2))
    )


def test_draws_are_those_of_their_models_and_belong_to_their_predictions(models):
    mixed = average_models(models, random_seed=1)
    mu, name = mixed["posterior"]["mu"].values, mixed["posterior"][MODEL].values
    y = mixed["posterior_predictive"]["y"].values
    assert (mixed["posterior_predictive"][MODEL].values == name).all()
    for key, dt in models.items():
        flat = dt["posterior"]["mu"].values.ravel()
        own = mu[name == key]
        assert np.isin(own, flat).all() and len(np.unique(own)) == own.size
        rows = [int(np.flatnonzero(flat == value)[0]) for value in own]
        expected = dt["posterior_predictive"]["y"].values.reshape(DRAWS, 3)[rows]
        np.testing.assert_array_equal(y[name == key], expected)
    assert len(set(name[0])) == 2  # mixed, and not one model after the other


def test_variables_of_some_models_are_left_out_and_named(models):
    mixed = average_models(models, random_seed=1)
    assert list(mixed["posterior"].data_vars) == ["mu"]
    assert mixed["posterior"].attrs["left_out"] == "tau"
    models["b"] = result(-11.0, mu=np.ones(DRAWS), tau=np.ones((DRAWS, 2)))
    with pytest.warns(EvidenceWarning, match="'tau' of the group 'posterior' are left out"):
        average_models(models, random_seed=1)


def test_means_use_all_draws_and_have_both_parts_of_their_error(models):
    mixed = average_models(models, random_seed=1)
    found = mixed["posterior_average"]["mu"].to_series()
    means = [dt["posterior"]["mu"].values.mean() for dt in models.values()]
    errors = [summary(dt, "mu", round_to="none").loc["mu", "mcse_mean"] for dt in models.values()]
    mean = 0.75 * means[0] + 0.25 * means[1]
    assert found["mean"] == pytest.approx(mean)
    assert found["mcse_draws"] == pytest.approx(np.hypot(0.75 * errors[0], 0.25 * errors[1]))
    of_probs = np.hypot(0.75 * (means[0] - mean) * 0.1, 0.25 * (means[1] - mean) * 0.2)
    assert found["mcse_probs"] == pytest.approx(of_probs)
    assert found["mcse"] == pytest.approx(np.hypot(found["mcse_probs"], found["mcse_draws"]))
    assert mixed["posterior_predictive_average"]["y"].sizes == {"statistic": 4, "y_dim_0": 3}


def test_the_error_of_probabilities_is_that_of_repeated_evidences(models):
    """Means with evidences that are drawn anew; the delta method is within a tenth."""
    rng, found = np.random.default_rng(2), []
    a, b = (dt["posterior"]["mu"].values.mean() for dt in models.values())
    for noise in rng.normal(size=(4000, 2)) * [0.1, 0.2]:
        p = 1.0 / (1.0 + np.exp(-np.log(3.0) - noise[0] + noise[1]))
        found.append(p * a + (1 - p) * b)
    error = average_models(models)["posterior_average"]["mu"].sel(statistic="mcse_probs")
    assert float(error) == pytest.approx(np.std(found), rel=0.1)


def test_it_is_a_tree_that_can_be_saved_and_summarised(models, tmp_path):
    from arviz_stats import summary as of_arviz

    mixed = average_models(models, random_seed=1)
    mixed.to_netcdf(tmp_path / "mixed.nc")
    with xr.open_datatree(tmp_path / "mixed.nc") as again:
        assert again["posterior"].equals(mixed["posterior"])
        assert again["posterior"][MODEL].dtype.kind == "U"
    assert float(of_arviz(mixed).loc["mu", "mean"]) == pytest.approx(1.0, abs=0.2)


def test_doubtful_evidences_warn(models):
    models["b"] = result(-11.0, status="no_overlap", mu=np.ones(DRAWS))
    with pytest.warns(EvidenceWarning, match=r"evidence of 'b' \(no_overlap\) should not be rel"):
        average_models(models)


def test_what_cannot_be_averaged_is_refused(models):
    ones = np.ones(DRAWS)
    of_type = r"models\['a'\] must be an xarray\.DataTree"
    cases = [
        (None, TypeError, "models must be a mapping of names"),
        ({}, ValueError, "models must name at least one"),
        ({"a": LogEvidence(-1.0, 0.1, "bar")}, TypeError, of_type),
        ({1: models["a"]}, TypeError, "names as keys"),
        ({**models, "c": result(-1.0, mu=ones, observed=1.0)}, ValueError, "same obs"),
        ({**models, "c": result(np.nan, mu=ones)}, ValueError, "evidences that are"),
        ({**models, "c": result(-1.0, nu=ones)}, ValueError, "share at least one"),
        ({"a": models["a"].drop_nodes("posterior")}, ValueError, "the group 'posterior'"),
        ({"a": result(-1.0, model=ones)}, ValueError, "rename it"),
    ]
    check_refusals(average_models, [({"models": given}, *said) for given, *said in cases])


def test_predictions_must_be_of_all_draws(models):
    few = models["a"]["posterior_predictive"].to_dataset().isel(draw=slice(10))
    models["a"]["posterior_predictive"] = few
    with pytest.raises(ValueError, match=r"models\['a'\] must have a value for each of its post"):
        average_models(models)
    models["a"] = models["a"].drop_nodes("posterior_predictive")
    assert "posterior_predictive" not in average_models(models).children
