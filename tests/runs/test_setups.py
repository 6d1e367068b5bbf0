"""How a target enters a run: its setup, its starts, its limits, and what is said of the end."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.core.records import Facts, LogEvidence, RunRecord
from pm_evidence.families.lattice.lattice import DetouredPath, LatticePath
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.runs.anneal import anneal, warn_of
from pm_evidence.runs.defaults import annealing_setup, effort_of
from pm_evidence.runs.references import starts_from
from pm_evidence.runs.rounds import Run
from pm_evidence.targets.model.cache import target_of
from tests.models import shared

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


@pytest.fixture(scope="module")
def model():
    return shared("normal").model


def test_setups_of_models_and_lattices(model):
    setup = annealing_setup(target_of(model), "auto")
    assert isinstance(setup.path, GeometricPath) and isinstance(setup.kernel, pe.kernels.HMC)
    assert setup.n_stages is None and setup.starts is None
    lattice = annealing_setup(pe.lattices.Ising(4, 0.4), "auto")
    assert isinstance(lattice.path, DetouredPath) and lattice.n_stages == 1024
    assert lattice.starts(3, np.random.default_rng(1)).shape == (3, 4, 4)
    straight = annealing_setup(pe.lattices.Ising(4, 0.4, field=0.1), "auto")
    assert type(straight.path) is LatticePath


def regression(n):
    """A regression with ``n`` rows of two predictors; its evidence is exact."""
    rng = np.random.default_rng(3)
    design = rng.normal(size=(n, 2))
    y = design @ [0.5, -1.0] + rng.normal(size=n)
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 1, shape=2)
        pm.Normal("y", pm.math.dot(design, slopes), 1.0, observed=y)
    covariance = np.linalg.inv(np.eye(2) + design.T @ design)
    explained = y @ design @ covariance @ design.T @ y
    determinant = np.linalg.slogdet(covariance)[1]
    return model, 0.5 * (determinant + explained - y @ y - n * np.log(2.0 * np.pi))


def test_long_data_take_less_effort():
    """Six numbers are read or made for each row."""
    for rows, effort in ((100, 1.0), (5_000, 1 / 3), (100_000, 0.1)):
        assert effort_of(target_of(regression(rows)[0])) == pytest.approx(effort, rel=0.01), rows


def test_loops_of_scalars_take_less_effort():
    """Derivatives of incomplete beta functions are series, and take most of the time."""
    with pm.Model() as model:
        size = pm.Exponential("size", 1.0)
        counts = pm.NegativeBinomial.dist(mu=2.0, alpha=size)
        pm.Truncated("y", counts, lower=1, observed=[1, 3, 2, 7])
    assert effort_of(target_of(model)) == 1.0 > effort_of(target_of(model, backend="numpy"))


def test_what_has_no_setup():
    with pytest.raises(TypeError, match="have a method annealing_setup, got int"):
        annealing_setup(3, "auto")


def test_starts_of_arrays_are_grouped_by_neighbours():
    """16 groups of neighbouring draws count as independent."""
    states = np.ones((64, 4, 4), np.int8)
    starts = starts_from(pe.lattices.Ising(4, 0.4), states)
    assert starts.relaxes and starts.draws.shape == (64, 4, 4)
    np.testing.assert_array_equal(starts.group, np.repeat(np.arange(16), 4))
    assert starts_from(pe.lattices.Ising(4, 0.4), None) is None


def test_a_model_without_free_variables_is_its_likelihood():
    run, known = Run(pe.methods.SMC(), 20, 1, None, 1), shared("no variable")
    found = anneal(run, target_of(known.model))
    assert found.best.value == pytest.approx(known.log_evidence)
    assert found.best.mcse == 0.0 and found.record.facts.log_prior_mass == 0.0


def test_warnings_of_doubt_and_of_nan():
    empty = RunRecord("smc", np.array([0.0, 1.0]), {})
    doubtful = LogEvidence(-1.0, 0.1, "smc", "dominated", message="one draw has all the weight.")
    for target, said in (
        (None, "status 'dominated': one draw"),
        (target_of(shared("mixed").model), r"marginalize\(model, \['\w+'\]\)"),
        (target_of(shared("normal").model), r"weight\. See [^ ]*$"),
    ):
        with pytest.warns(pe.EvidenceWarning, match=said):
            warn_of(SimpleNamespace(best=doubtful, record=empty, target=target))
    nan = RunRecord("smc", empty.beta, {}, facts=Facts(n_nan=5, n_evaluations=100))
    fine = LogEvidence(-1.0, 0.1, "smc")
    with pytest.warns(pe.EvidenceWarning, match="NaN at 5 of 100 proposals"):
        warn_of(SimpleNamespace(best=fine, record=nan, target=None))
