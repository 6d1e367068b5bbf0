"""Many models in one call: effort where it is needed, and nothing is lost."""

import inspect
from functools import cache

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.api import compare_models as module
from tests.api.refusals import check_refusals

QUIET = {"progressbar": False, "cores": 1, "random_seed": 1}
Y = (0.5, 1.5)
SIGNATURE = inspect.signature(pe.sample_evidence)


@cache
def normal(mean=0.0, sd=1.0, y=Y):
    with pm.Model() as model:
        prior = pm.Data("prior", [mean, sd])  # so that all of them have the same code
        pm.Normal("y", pm.Normal("x", prior[0], prior[1]), 1.0, observed=np.array(y))
    return model


class Runs:
    """Stands for `sample_evidence`: errors are those asked for, and calls are counted."""

    def __init__(self, values, status="ok", failing=(), second=None, least=np.inf):
        self.values, self.status, self.failing, self.least = values, status, failing, least
        self.second, self.calls = second or {}, []
        self.__signature__ = SIGNATURE

    def __call__(self, model, *, target_mcse, random_seed, **options):
        name = next(n for n, m in self.values.items() if m[0] is model)
        first = name not in [n for n, _ in self.calls]
        self.calls.append((name, target_mcse))
        if name in self.failing:
            raise pe.NumericalError("the density is NaN.")
        value = self.values[name][1] if first else self.second.get(name, self.values[name][1])
        status = self.status if first else "ok"
        return tree(value, min(self.least, 0.02 if target_mcse is None else target_mcse), status)


def tree(value, mcse, status="ok"):
    """A result whose record gives the same estimate again."""
    from tests.results.test_compare import make_tree

    return make_tree(value, mcse, observed={"y": np.array(Y)}, status=status)


@pytest.fixture
def run(monkeypatch):
    def made(values, **options):
        models = {name: normal(sd=1.0 + i) for i, name in enumerate(values)}
        known = {n: (models[n], v) for n, v in values.items()}
        keys = ("status", "failing", "second", "least")
        fake = Runs(known, **{k: options.pop(k) for k in keys if k in options})
        monkeypatch.setattr(module, "sample_evidence", fake)
        monkeypatch.setattr(module, "rechecked", lambda dt, coarse: dt)
        return pe.compare_models(models, **{**QUIET, **options}), fake.calls

    return made


def test_real_models():
    """Two that are near each other, and one that is hopeless."""
    models = {"narrow": normal(), "wide": normal(sd=5.0), "far": normal(mean=30.0, sd=0.1)}
    found = pe.compare_models(models, **QUIET)
    assert list(found.table.index) == ["narrow", "wide", "far"]
    assert (found.table["status"] == "ok").all() and list(found.results) == list(models)
    assert abs(found.table["log_bf"]["wide"] + 1.103) < 4 * found.table["log_bf_mcse"]["wide"]
    assert found.table["log_bf_mcse"]["wide"] <= 0.02
    assert "narrow" in repr(found) and "narrow" in found._repr_html_()


def test_effort_goes_to_models_that_matter(run):
    found, calls = run({"a": -10.0, "b": -11.0, "hopeless": -40.0})
    fine = 0.02 / 2**0.5
    assert calls[:3] == [("a", 0.2), ("b", 0.2), ("hopeless", 0.2)]
    assert sorted(calls[3:]) == [("a", fine), ("b", fine)]
    assert set(found.first_runs) == {"a", "b"} and "hopeless" in repr(found)
    assert found.table["log_bf_mcse"]["b"] == pytest.approx(0.02)


def test_a_first_run_is_not_enough_however_small_its_error(run):
    """It searches less for further modes; unless that is all that is asked for."""
    values = {"a": -10.0, "b": -11.0}
    assert [name for name, _ in run(values, least=0.001)[1]] == ["a", "b", "a", "b"]
    assert [name for name, _ in run(values, least=0.001, target_mcse=0.3)[1]] == ["a", "b"]


def test_prior_probabilities_decide_what_is_hopeless(run):
    values = {"a": -10.0, "b": -16.0}
    assert len(run(values)[1]) == 4
    assert len(run(values, prior_probs={"a": 1.0, "b": 1e-4})[1]) == 2
    assert len(run({"a": -10.0, "b": -30.0}, prior_probs=[1e-12, 1.0])[1]) == 4


def test_a_doubtful_model_is_run_again_however_small_it_seems(run):
    _, calls = run({"a": -10.0, "b": -60.0}, status="missed_mass")
    assert [name for name, _ in calls] == ["a", "b", "a", "b"]


def test_the_rule_is_applied_again_when_the_best_model_changes(run):
    """Both evidences turn out to be smaller, so that c is of interest as well."""
    found, calls = run({"a": -10.0, "b": -11.0, "c": -19.0}, second={"a": -13.5, "b": -13.0})
    assert [name for name, _ in calls] == ["a", "b", "c", "a", "b", "c"]
    assert found.table.index[0] == "b"


def test_a_model_that_fails_does_not_lose_the_others(run):
    with pytest.warns(pe.EvidenceWarning, match=r"models\['b'\] could not be run"):
        found, _ = run({"a": -10.0, "b": -10.0, "c": -11.0}, failing=["b"], prior_probs=[1, 2, 1])
    assert list(found.table.index) == ["a", "c"] and list(found.failed) == ["b"]
    assert "b is left out: the density is NaN" in repr(found)


def test_bad_input():
    good = {"a": normal(), "b": normal(sd=5.0)}
    of_one = r"models\['b'\]: model must"
    cases = [
        (None, {}, TypeError, "models must be a mapping"),
        ([normal()], {}, TypeError, "models must be a mapping"),
        ({}, {}, ValueError, "at least two models, got 0"),
        ({"a": normal()}, {}, ValueError, "at least two models, got 1"),
        ({1: normal(), 2: normal()}, {}, TypeError, "names of models must be a string"),
        ({"a": normal(), "b": None}, {}, TypeError, r"models\['b'\] must be a pymc.Model"),
        ({"a": normal(), "b": normal(y=(1.0, 2.0))}, {}, ValueError, r"{'a'} from {'b'}"),
        ({"a": normal(), "b": pm.Model()}, {}, pe.ModelError, of_one),
        (good, {"steps": 1}, TypeError, "got 'steps'"),
        (good, {"target_mcse": -1}, ValueError, "target_mcse"),
        (good, {"prior_probs": [1]}, ValueError, "prior_probs"),
    ]
    check_refusals(
        pe.compare_models, [({"models": m, **QUIET, **given}, *said) for m, given, *said in cases]
    )


def interrupted_at(monkeypatch, call, estimate=True):
    """Stand for Ctrl-C during one of the runs, from 1: with an estimate until then, or without."""
    usual, count = module.sample_evidence, [0]

    def sampled(model, **options):
        count[0] += 1
        if count[0] == call and not estimate:
            raise KeyboardInterrupt
        dt = usual(model, **options)
        if count[0] == call:
            dt["log_evidence"]["status"][:] = "interrupted"
        return dt

    sampled.__signature__ = SIGNATURE
    monkeypatch.setattr(module, "sample_evidence", sampled)
    return count


MODELS = {"narrow": lambda: normal(), "wide": lambda: normal(sd=5.0), "wider": lambda: normal(sd=9)}


@pytest.mark.parametrize(("call", "results"), [(2, ["narrow"]), (3, ["narrow", "wide"])])
def test_ctrl_c_ends_the_comparison(monkeypatch, call, results):
    """What was run until then is returned, and what is missing is named."""
    interrupted_at(monkeypatch, call, estimate=False)
    with pytest.warns(pe.EvidenceWarning, match="was interrupted: the comparison is incomplete"):
        found = pe.compare_models({n: m() for n, m in MODELS.items()}, **QUIET)
    assert list(found.results) == results
    assert set(found.failed) == set(MODELS) - set(results)
    assert "Ctrl-C ended its run" in repr(found)


@pytest.mark.filterwarnings("ignore::pm_evidence.EvidenceWarning")  # other numbers each time
def test_a_checkpoint_has_a_folder_for_each_run(tmp_path):
    """Without a seed too: the same call gives the same numbers without sampling."""
    options = {"progressbar": False, "cores": 1, "checkpoint": tmp_path / "all"}
    models = {n: m() for n, m in MODELS.items()}
    first = pe.compare_models(models, **options)
    assert {"model-0-run-0", "model-1-run-0", "model-2-run-0"} <= {
        path.name for path in (tmp_path / "all").iterdir()
    }
    files = sorted((tmp_path / "all").rglob("*"))
    again = pe.compare_models(models, **options)
    assert again.table["log_evidence"].equals(first.table["log_evidence"])
    assert sorted((tmp_path / "all").rglob("*")) == files
