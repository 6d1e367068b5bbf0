"""Comparisons: exact arithmetic, honest errors, and no table over different data."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

from pm_evidence.core.records import BlockRecord, LogEvidence, Role, RunRecord, StageTrace
from pm_evidence.results import compare, fingerprint, to_datatree
from pm_evidence.results import factor_of_results as bayes_factor
from pm_evidence.results.compare import ModelComparison
from tests.api.refusals import check_refusals

COLUMNS = [
    *("rank", "log_evidence", "mcse", "log_bf", "log_bf_mcse", "bf", "prob", "prob_mcse"),
    *("estimator", "status", "warning"),
]
DATA = {"y": np.array([1.0, 2.0, 3.0])}


def make_tree(value, mcse=0.1, *, observed=DATA, status="ok", message=""):
    trace = StageTrace(np.ones(1), np.ones(1), np.ones(1), np.ones(1))
    blocks = {Role.FORWARD: [BlockRecord(0, np.array([-value]), trace)]}
    record = RunRecord("ais", np.array([0.0, 1.0]), blocks)
    return to_datatree(
        record,
        [LogEvidence(value, mcse, "bar", status, message=message)],
        recommended="bar",
        posterior={},
        observed_data=observed,
        fingerprint=fingerprint(observed),
        random_seed=1,
        versions={},
    )


# The table


def test_table_of_three_models_is_exact():
    table = compare(
        {"a": make_tree(-12.0, 0.3), "b": make_tree(-10.0, 0.4), "c": make_tree(-15.0, 0.0)}
    )
    assert list(table.columns) == COLUMNS
    assert list(table.index) == ["b", "a", "c"]
    assert table.index.name == "model"
    assert table["rank"].tolist() == [1, 2, 3]
    assert table["log_evidence"].tolist() == [-10.0, -12.0, -15.0]
    assert table["mcse"].tolist() == [0.4, 0.3, 0.0]
    assert table["log_bf"].tolist() == [0.0, -2.0, -5.0]
    assert table["log_bf_mcse"].tolist() == [0.0, 0.5, 0.4]
    assert table["bf"].tolist() == np.exp([0.0, -2.0, -5.0]).tolist()
    weights = np.exp([0.0, -2.0, -5.0])
    np.testing.assert_allclose(table["prob"], weights / weights.sum(), rtol=1e-14)
    assert table["estimator"].tolist() == ["bar"] * 3
    assert table["status"].tolist() == ["ok"] * 3
    assert table["warning"].tolist() == [""] * 3
    numeric = table.drop(columns=["rank", "estimator", "status", "warning"])
    assert (numeric.dtypes == np.float64).all()


def test_probability_error_is_the_delta_method():
    """Against central differences of the softmax itself."""
    value, mcse, prior = np.array([-1.0, -1.5, -3.0]), np.array([0.1, 0.2, 0.3]), [1.0, 2.0, 5.0]
    table = compare(
        {
            str(i): LogEvidence(v, s, "bar")
            for i, (v, s) in enumerate(zip(value, mcse, strict=True))
        },
        prior_probs=prior,
    ).sort_index()

    def prob(log_z):
        weights = np.array(prior) * np.exp(log_z)
        return weights / weights.sum()

    step = 1e-5 * np.eye(3)
    slopes = np.array([(prob(value + h) - prob(value - h)) / 2e-5 for h in step])
    expected = np.sqrt(((slopes * mcse[:, None]) ** 2).sum(axis=0))
    np.testing.assert_allclose(table["prob"], prob(value), rtol=1e-14)
    np.testing.assert_allclose(table["prob_mcse"], expected, rtol=1e-8)


# Prior probabilities


@pytest.mark.parametrize("prior", [{"a": 3, "b": 1}, [3, 1], np.array([0.75, 0.25])])
def test_prior_probabilities_are_normalised_weights(prior):
    table = compare({"a": make_tree(-1.0), "b": make_tree(-1.0)}, prior_probs=prior)
    np.testing.assert_allclose(table["prob"], [0.75, 0.25], rtol=1e-14)
    assert table["log_bf"].tolist() == [0.0, 0.0]


def test_bad_prior_probabilities_are_refused():
    cases = [
        ({"a": 1.0}, r"must name every model and no other; missing: \['b'\], unknown: \[\]"),
        (
            {"a": 1.0, "b": 1.0, "c": 1.0},
            r"must name every .*missing: \[\], unknown: \['c'\]; the models",
        ),
        ([1.0], r"must have one entry per model, 2, got shape \(1,\)"),
        ([1.0, -1.0], r"must be positive and finite, got -1\.0 for 'b'; leave a model out"),
        ([0.0, 1.0], r"must be positive and finite, got 0\.0 for 'a'"),
        ({"a": np.nan, "b": 1.0}, r"must be positive and finite, got nan for 'a'"),
        ([1.0, np.inf], r"must be positive and finite, got inf for 'b'"),
    ]
    check_refusals(
        partial(compare, {"a": make_tree(-1.0), "b": make_tree(-2.0)}),
        [({"prior_probs": prior}, ValueError, "prior_probs " + said) for prior, said in cases],
    )


# Which models may be compared


def test_models_of_different_data_are_refused_by_name():
    other = {"y": np.array([1.0, 2.0, 4.0])}
    models = {
        "pooled": make_tree(-1.0),
        "logged": make_tree(-2.0, observed=other),
        "hierarchical": make_tree(-3.0),
    }
    with pytest.raises(
        ValueError,
        match=r"these differ: \{'pooled', 'hierarchical'\} from \{'logged'\}; give every",
    ):
        compare(models)
    with pytest.raises(ValueError, match=r"these differ: \{'dt1'\} from \{'dt2'\}"):
        bayes_factor(models["pooled"], models["logged"])


def test_models_whose_data_cannot_be_checked_are_allowed_with_a_warning():
    table = compare(
        {
            "observed": make_tree(-1.0),
            "potential": make_tree(-9.0, observed={}),
            "bare": LogEvidence(-19.0, 0.1, "bar"),
        }
    )
    assert table["warning"].tolist() == [
        "",
        "It has no observed data to check: make sure that all models have the same data.",
        "Its data are not known: make sure that all models have the same data.",
    ]


def test_what_is_no_model_is_refused():
    with pytest.raises(ValueError, match="models must name at least one model, got none"):
        compare({})
    bare = make_tree(-1.0).drop_nodes("log_evidence")
    with pytest.raises(ValueError, match=r"models\['b'\] must have the group 'log_evidence'"):
        compare({"a": make_tree(-1.0), "b": bare})
    with pytest.raises(TypeError, match=r"models\['a'\] must be an xarray\.DataTree, got float"):
        compare({"a": -1.0})


# Doubts


def test_close_models_are_reported_as_not_resolved():
    """0.2 nats apart with a combined error of 0.14 is a coin toss; 0.4 nats is not."""
    table = compare(
        {"a": make_tree(-1.0), "near": make_tree(-1.2), "far": make_tree(-1.4)},
    )
    first, near, far = table["warning"]
    assert first == (
        "Ranking against 'near' not resolved by this run: the difference has a 95 % "
        "interval that includes zero; use more draws or islands."
    )
    assert near.startswith("Ranking against 'a' not resolved by this run")
    assert far == ""


def test_models_that_are_equally_supported():
    """More draws would not tell them apart; the third model is close, and not as well known."""
    table = compare(
        {"a": make_tree(-1.0, 0.01), "b": make_tree(-1.005, 0.01), "c": make_tree(-1.1, 0.1)}
    )
    first, second, third = table["warning"]
    equal = "The data support {} as well: the evidences differ by less than 0.1 nats."
    assert first.startswith(equal.format("'b'") + " Ranking against 'c' not resolved")
    assert second == equal.format("'a'")
    assert third.startswith("Ranking against 'a' not resolved")


def test_a_difference_without_an_error_is_not_resolved():
    table = compare({"a": make_tree(-1.0), "b": make_tree(-9.0, np.nan)})
    assert (
        "Ranking against 'b' not resolved by this run: the difference has no known error"
        in (table["warning"].iloc[0])
    )
    assert table["log_bf_mcse"].iloc[0] == 0.0
    assert np.isnan(table["log_bf_mcse"].iloc[1])
    assert table["prob_mcse"].isna().all()
    assert not table["prob"].isna().any()


def test_status_and_its_remedy_reach_the_warning():
    bad = make_tree(-9.0, status="no_overlap", message="Use more stages.")
    table = compare({"a": make_tree(-1.0), "b": bad})
    assert table.loc["b", "status"] == "no_overlap"
    assert table.loc["b", "warning"] == (
        "no_overlap: Use more stages. See docs/statuses.md#no_overlap."
    )
    assert table.loc["a", "warning"] == ""


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_unknown_evidence_comes_last_and_is_not_guessed_around(value):
    table = compare({"broken": make_tree(value, np.nan, status="no_overlap"), "a": make_tree(-1.0)})
    assert list(table.index) == ["a", "broken"]
    assert np.isnan(table.loc["broken", "log_bf"])
    assert table["prob"].isna().all()
    assert table["prob_mcse"].isna().all()
    assert table.loc["a", "log_bf"] == 0.0
    assert (
        "Its log evidence is not known: run it again, or leave it out."
        in (table.loc["broken", "warning"])
    )


# What is shown of several models that were run in one call


def test_a_comparison_shows_what_its_table_does_not():
    results = {"a": make_tree(-10.0), "b": make_tree(-40.0)}
    found = ModelComparison(compare(results), results)
    assert repr(found) == repr(found.table)
    assert found._repr_html_() == found.table._repr_html_()
    fields = {"first_runs": {"a": make_tree(-10.0)}, "failed": {"c": "the density is <NaN>"}}
    found = ModelComparison(compare(results), results, **fields)
    assert "Run once only, as the comparison needs no smaller error: b" in repr(found)
    assert "c is left out: the density is <NaN>" in repr(found)
    assert "the density is &lt;NaN&gt;" in found._repr_html_()


# Bayes factors of a pair


def test_bayes_factor_is_exact():
    result = bayes_factor(make_tree(-10.0, 0.3), make_tree(-12.0, 0.4))
    assert (result.log_bf, result.mcse, result.bf) == (2.0, 0.5, float(np.exp(2.0)))
    assert result.lower == pytest.approx(2.0 - 1.959964 * 0.5, abs=1e-6)
    assert result.upper == pytest.approx(2.0 + 1.959964 * 0.5, abs=1e-6)
    assert result.words == "positive evidence for the first model"
    assert result.warning == ""
    assert repr(result) == (
        "BayesFactor(bf=7.39, log_bf=2.000, mcse=0.500, lower=1.020, upper=2.980, "
        'words="positive evidence for the first model")'
    )


def test_words_are_those_of_kass_and_raftery():
    for twice_log_bf, words in (
        (0.0, "no evidence for either model"),
        (0.19, "no evidence for either model"),
        (-0.21, "weak evidence for the second model"),
        (1.99, "weak evidence for the first model"),
        (2.0, "positive evidence for the first model"),
        (5.99, "positive evidence for the first model"),
        (6.0, "strong evidence for the first model"),
        (10.0, "very strong evidence for the first model"),
        (-1.0, "weak evidence for the second model"),
        (-7.0, "strong evidence for the second model"),
        (np.inf, "very strong evidence for the first model"),
    ):
        first, second = LogEvidence(0.0, 0.1, "bar"), LogEvidence(-twice_log_bf / 2, 0.1, "bar")
        assert bayes_factor(first, second).words == words


# Student's t


def test_intervals_of_differences_have_the_degrees_of_freedom_of_welch():
    """Four islands know their error badly: a normal interval would be 30 % too short."""
    one, two = LogEvidence(-1.0, 0.3, "smc", dof=3.0), LogEvidence(-2.0, 0.4, "smc", dof=5.0)
    result = bayes_factor(one, two)
    dof = 0.25**2 / (0.09**2 / 3.0 + 0.16**2 / 5.0)
    half = stats.t.ppf(0.975, dof) * 0.5
    np.testing.assert_allclose([result.lower, result.upper], [1.0 - half, 1.0 + half], rtol=1e-10)


def test_a_planted_fingerprint_is_refused():
    """The data beside the evidence decide, and without them what is stored of them."""
    wrong = make_tree(-2.0)
    wrong["log_evidence"].attrs["fingerprint"] = "0" * 64
    with pytest.raises(ValueError, match=r"models\['wrong'\] must hold the observed data that its"):
        compare({"right": make_tree(-1.0), "wrong": wrong})
    with pytest.raises(ValueError, match=r"\{'right'\} from \{'wrong'\}"):
        compare({"right": make_tree(-1.0), "wrong": wrong.drop_nodes("observed_data")})
