"""LOO beside the evidence: ArviZ's numbers, one text, and what has no LOO."""

import warnings

import numpy as np
import pytest
import xarray as xr
from arviz_stats import loo
from scipy import stats

from pm_evidence.core.records import LogEvidence
from pm_evidence.results import compare
from pm_evidence.results.elpd import EXPLANATION
from tests.results.test_average import DRAWS, first_coords, result

Y = np.array([0.3, -0.2, 1.1, 0.7, -0.6, 0.4, 0.9, -1.0, 0.2, 0.5])


def conjugate(prior_sd, *, y=Y, several=False, seed=1):
    """A normal mean with a given prior: exact draws, evidence and pointwise likelihood."""
    precision = Y.size + prior_sd**-2
    rng = np.random.default_rng(seed)
    mu = rng.normal(y.sum() / precision, precision**-0.5, DRAWS)
    covariance = np.eye(Y.size) + prior_sd**2
    value = stats.multivariate_normal(np.zeros(Y.size), covariance).logpdf(y)
    dt = result(value, 0.01, mu=mu)
    pointwise = stats.norm.logpdf(y, mu.reshape(2, -1, 1))
    dims = ("chain", "draw", "i")
    parts = {"y": (dims, pointwise)}
    if several:
        parts = {"y": (dims, pointwise[..., :4]), "z": (("chain", "draw", "j"), pointwise[..., 4:])}
    dt["log_likelihood"] = xr.Dataset(parts, coords=first_coords(dt))
    return dt


@pytest.fixture(scope="module")
def models():
    return {"vague": conjugate(100.0), "sharp": conjugate(0.5, seed=2)}


def test_the_numbers_are_those_of_arviz_and_of_the_exact_predictions(models):
    table = compare(models, loo=True)
    tree = xr.DataTree.from_dict({"log_likelihood": models["vague"]["log_likelihood"].to_dataset()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 400 draws are few for some observations
        expected = loo(tree, reff=1.0)
    row = table.loc["vague"]
    assert row["elpd_loo"] == pytest.approx(float(expected.elpd), abs=0.01)
    assert row["elpd_se"] == pytest.approx(float(expected.se), rel=0.01)
    n = Y.size - 1
    left = [np.delete(Y, i).sum() / (n + 1e-4) for i in range(Y.size)]
    exact = stats.norm.logpdf(Y, left, np.sqrt(1.0 + 1.0 / (n + 1e-4))).sum()
    assert row["elpd_loo"] == pytest.approx(exact, abs=0.2)


def test_a_vague_prior_costs_evidence_and_no_elpd(models):
    table = compare(models, loo=True)
    assert list(table.index) == ["sharp", "vague"]
    assert table.loc["vague", "log_bf"] < -4.0
    assert abs(table["elpd_diff"]).max() < 0.3
    difference = table["elpd_loo"] - table["log_evidence"]
    assert table["learning_cost"].to_numpy() == pytest.approx(difference.to_numpy())
    assert table.loc["vague", "learning_cost"] > table.loc["sharp", "learning_cost"] + 4.0
    assert table["loo_weight"].sum() == pytest.approx(1.0)


def test_the_text_says_what_differs(models):
    table = compare(models, loo=True)
    text = table.attrs[EXPLANATION]
    assert "no clear difference" in text
    assert "costs, in nats" in text
    words = " ".join(str(table).split())
    assert text in words and "elpd_loo" in words
    assert "LOO predicts each observation" in table._repr_html_()
    assert EXPLANATION not in compare(models).attrs


def test_large_pareto_k_are_in_the_warning_and_not_on_the_screen(models):
    heavy = conjugate(100.0)
    values = heavy["log_likelihood"]["y"].values
    values[..., 3] *= 40.0
    heavy["log_likelihood"] = xr.Dataset(
        {"y": (("chain", "draw", "i"), values)}, coords=first_coords(heavy)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = compare({"heavy": heavy, "sharp": models["sharp"]}, loo=True)
    assert "observations have a Pareto k above" in table.loc["heavy", "warning"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda dt: dt.drop_nodes("log_likelihood"), ValueError, "log_likelihood.: True"),
        (lambda dt: LogEvidence(-1.0, 0.1, "bar"), TypeError, "loo=True needs"),
    ],
)
def test_what_has_no_loo_is_refused(models, change, error, message):
    with pytest.raises(error, match=message):
        compare({"a": change(models["vague"]), "b": models["sharp"]}, loo=True)
