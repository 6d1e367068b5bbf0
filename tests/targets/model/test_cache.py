"""One target for one model: found, kept, sent to other processes and compiled anew on a change."""

import json
import pickle
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from scipy import stats

import pm_evidence as pe
from pm_evidence.targets.model import cache
from pm_evidence.targets.model.cache import find_model, model_in, target_of
from pm_evidence.targets.model.target import PyMCTarget
from tests.models import shared
from tests.targets.values import in_python

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


def seed(n=1):
    return np.random.SeedSequence(n)


# --- pickling ---


def test_pickle_gives_the_same_numbers():
    """Workers in other processes must draw and weigh as this one does, bit for bit."""
    target = target_of(shared("schools").model)
    again = pickle.loads(pickle.dumps(target))
    one, two = target.draw(30, seed(9)), again.draw(30, seed(9))
    np.testing.assert_array_equal(one.x, two.x)
    np.testing.assert_array_equal(one.log_density, two.log_density)
    gradients = [t.differentiable.evaluate(one.x)[1] for t in (target, again)]
    np.testing.assert_array_equal(*gradients)
    assert again.n_dim == target.n_dim and again.layout.shapes == target.layout.shapes


def test_pickle_keeps_the_options():
    """A worker that anneals to the data instead of the potential estimates something else."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Potential("tilt", -x)
        pm.Normal("y", x, 1, observed=0.5)
    target = in_python(model, potentials_only=True, compile_kwargs={"name": "mine"})
    again = pickle.loads(pickle.dumps(target))
    assert again.potentials_only and again.compile_kwargs == {"name": "mine"}


def test_one_model_is_compiled_once_per_process(target, monkeypatch):
    """A worker gets the target with every block: compiling each time would take minutes."""
    pickled = pickle.dumps(target)
    first = pickle.loads(pickled)
    made = []
    monkeypatch.setattr(cache, "PyMCTarget", lambda *a, **k: made.append(a))
    assert pickle.loads(pickled) is first and pickle.loads(pickled) is first
    assert not made


# --- one target for one model ---


@pytest.fixture
def nothing_kept(monkeypatch):
    monkeypatch.setattr(cache, "_KEPT", {})


def simple(observed=1.0):
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Normal("y", x, pm.Data("scale", 1.0), observed=pm.Data("seen", [observed]))
    return model


def test_a_model_that_is_kept_is_not_compiled_again(nothing_kept):
    """A user who samples twice would wait twice."""
    model = simple()
    first = target_of(model)
    assert target_of(model) is first
    assert target_of(model, potentials_only=True) is not first
    assert target_of(model) is first
    assert target_of(simple()) is not first


def changed_data(model):
    pm.set_data({"seen": [2.0]})


def changed_scale(model):
    pm.set_data({"scale": 3.0})


def added_potential(model):
    pm.Potential("p", -model["x"])


def added_deterministic(model):
    pm.Deterministic("twice", 2 * model["x"])


def added_variable(model):
    pm.Normal("z", model["x"], 1, observed=0.0)


@pytest.mark.parametrize(
    "change", [changed_data, changed_scale, added_potential, added_deterministic, added_variable]
)
def test_a_model_that_has_changed_is_compiled_again(change, nothing_kept):
    """The evidence of yesterday's data would be returned for today's."""
    model = simple()
    first = target_of(model)
    with model:
        change(model)
    second = target_of(model)
    assert second is not first
    assert second.constrained.names == [v.name for v in (*model.free_RVs, *model.deterministics)]


# --- other processes ---


CHILD = """
import json, pickle, sys, warnings
warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
import numpy as np
target = pickle.load(open(sys.argv[1], "rb"))
print(json.dumps(target.prior_points(25, np.random.SeedSequence(7)).tolist()))
"""


def test_another_process_draws_the_same(tmp_path):
    """Also where draws use several generators, whose order must not depend on the process."""

    def shifted(scale, size):
        return pm.Normal.dist(0, 1, size=size) + pm.Exponential.dist(scale, size=size)

    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        b = pm.CustomDist("b", 2.0, dist=shifted, logp=lambda v, s: -(v**2), shape=2)
        c = pm.Gamma("c", 2.0, 1.0)
        pm.Normal("y", a + b.sum(), c, observed=0.5)
    target = PyMCTarget(model)
    path = tmp_path / "target.pkl"
    path.write_bytes(pickle.dumps(target))
    run = subprocess.run(
        [sys.executable, "-c", CHILD, path], capture_output=True, text=True, check=True
    )
    x = json.loads(run.stdout.splitlines()[-1])
    np.testing.assert_array_equal(x, target.prior_points(25, seed(7)))


# --- finding the model ---


def test_find_model(model):
    """As in PyMC: by argument, or by the context."""
    assert find_model(model) is model
    with model:
        assert find_model(None) is model
    with pm.Model():
        assert find_model(model) is model  # the argument counts


def test_no_model_at_all():
    """Outside any context there is nothing to find."""
    with pytest.raises(TypeError, match=r"target must be given outside a model context: pass"):
        find_model(None)


@pytest.mark.parametrize("n", [3, 100])
def test_data_changed_in_place(n):
    """Constants are the user's own arrays: old code would get the fingerprint of new data."""
    y, factor = np.linspace(0, 1, n), np.linspace(1, 2, n)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        pm.Normal("y", a * factor, 1, observed=y)
    old = target_of(model)
    kept = old.observed_data()["y"]
    assert target_of(model) is old
    model.rvs_to_values[model["y"]].data[:] = y + 1
    new = in_python(model, target_of)
    assert new is not old
    np.testing.assert_array_equal(new.observed_data()["y"], y + 1)
    np.testing.assert_array_equal(kept, y)
    exact = stats.norm.logpdf(y + 1, 0.5 * factor).sum()
    np.testing.assert_allclose(new.evaluate(np.array([[0.5]])).log_density[0, 1], exact)


def test_constants_inside_of_operations_count():
    """So do those of a graph inside of a distribution."""
    shift = np.array([1.0, 2.0, 3.0])
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        pm.CustomDist(
            "y",
            a,
            dist=lambda a, size: pm.Normal.dist(a + pt.constant(shift), 1),
            signature="()->(3)",
            observed=np.zeros(3),
        )
    before = cache.description_of(model)
    inner = model["y"].owner.op.fgraph.outputs
    constants = [v for v in ancestors(inner) if np.shape(getattr(v, "data", None)) == (3,)]
    constants[0].data[:] = 7.0
    assert cache.description_of(model) != before


# models of Bambi


def test_a_model_inside_of_another_object_is_found():
    """Bambi's models are built when they are asked for."""

    class Wrapped:
        backend = None

        def build(self):
            self.backend = SimpleNamespace(model=built)

    with pm.Model() as built:
        pm.Normal("y", pm.Normal("x", 0.0, 1.0), 1.0, observed=[1.0])
    assert model_in(Wrapped()) is built and find_model(Wrapped()) is built
    assert model_in(Wrapped) is None and model_in(None) is None and model_in(built) is built
    with pytest.raises(TypeError, match=r"target must be a pymc\.Model, got SimpleNamespace"):
        find_model(SimpleNamespace(backend=built))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_models_of_bambi_itself():
    """With group effects, whose names NumPy cannot parse as a dtype."""
    bambi, pandas = pytest.importorskip("bambi"), pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    data = pandas.DataFrame({"x": rng.normal(size=30), "g": list("abc") * 10})
    data["y"] = data["x"] + rng.normal(size=30)
    models = {name: bambi.Model(name, data) for name in ("y ~ x", "y ~ x + (1|g)")}
    found = pe.compare_models(models, random_seed=1, progressbar=False)
    assert (found.table["status"] == "ok").all()
    factor = pe.bayes_factor(*models.values(), random_seed=1, progressbar=False)
    two = found.table["log_evidence"]
    distance = factor.log_bf - (two["y ~ x"] - two["y ~ x + (1|g)"])
    assert factor.status == "ok" and abs(distance) < 0.1
