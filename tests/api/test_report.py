"""The paragraph about a comparison: what it names, and what is refused."""

from functools import cache

import pandas as pd
import pymc as pm

import pm_evidence as pe
from tests.api.refusals import check_refusals


@cache
def normal(sd):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, sd)
        pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    return model


MODELS = {"narrow": normal(1), "wide": normal(5)}


@cache
def found():
    return pe.compare_models(MODELS, random_seed=1, progressbar=False, cores=1)


def test_it_names_all_that_a_reader_needs():
    text = pe.report(found(), MODELS)
    table = found().table
    for part in (
        "We compared 2 models of the same data",
        "The priors of narrow were mu ~ Normal(0, 1).",
        "The priors of wide were mu ~ Normal(0, 5).",
        f"{pe.log_evidence(found().results['wide'])} for wide, with Monte Carlo standard errors",
        f"The Bayes factor of narrow was {1 / table['bf']['wide']:.3g} against wide",
        "positive",
        "Kass and Raftery (1995)",
        "With equal prior probabilities",
        f"pm_evidence {pe.__version__} and PyMC {pm.__version__}",
    ):
        assert part in text, part
    assert "random seeds" not in text  # of 39 digits, which the seed of the comparison has made
    assert "\n" not in text and "  " not in text


def test_the_seeds_of_single_runs_are_named():
    runs = {
        name: pe.sample_evidence(model, random_seed=7, progressbar=False, cores=1)
        for name, model in MODELS.items()
    }
    assert "(random seeds 7 for narrow and 7 for wide)" in pe.report(pe.compare(runs))


def test_bare_evidences_prior_probabilities_and_problems():
    evidences = {
        "a": pe.LogEvidence(-3.0, 0.01, "bar"),
        "b": pe.LogEvidence(-9.0, 0.9, "smc", status="high_variance", message="It is large."),
    }
    text = pe.report(pe.compare(evidences, prior_probs={"a": 0.2, "b": 0.8}))
    assert "403 against b (log 6.0(9), very strong)" in text
    assert "With prior probabilities of 0.2 for a and 0.8 for b" in text
    assert "Note on b: high_variance: It is large." in text
    assert "random seeds" not in text and "priors" not in text.split("With")[0]


def test_bad_input():
    cases = [
        ({"comparison": pd.DataFrame()}, TypeError, "comparison must be what compare"),
        ({"comparison": found(), "models": {"narrow": normal(1)}}, ValueError, "must name the"),
        ({"comparison": found(), "models": {**MODELS, "wide": 3}}, TypeError, r"models\['wide'\]"),
    ]
    check_refusals(pe.report, cases)
