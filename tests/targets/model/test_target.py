"""A PyMC model as a target: coordinates, populations, pickling, and what it tells of itself."""

import json
import pickle
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import stats

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.targets.model import cache as at_hand
from pm_evidence.targets.model.cache import find_model, target_of
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.testing import exact_systems

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


def seed(n=1):
    return np.random.SeedSequence(n)


@pytest.fixture(scope="module")
def model():
    """Continuous, discrete, circular, pm.Data, coordinates and a deterministic, in few numbers."""
    coords = {"row": ["a", "b", "c"], "side": ["left", "right"]}
    with pm.Model(coords=coords) as model:
        x = pm.Data("x", np.array([-1.0, 0.0, 1.0]), dims="row")
        slope = pm.Normal("slope", 0, 1, dims="side")
        k = pm.Binomial("k", 3, 0.4)
        direction = pm.VonMises("direction", 0.0, 1.0)
        scale = pm.HalfNormal("scale", 1)
        pm.Poisson("n", 2)
        mean = pm.Deterministic("mean", slope.sum() * x + k + pm.math.cos(direction), dims="row")
        pm.Normal("y", mean, scale, observed=np.array([0.5, 1.5, 2.0]), dims="row")
    return model


@pytest.fixture(scope="module")
def target(model):
    return PyMCTarget(model)


# --- coordinates ---


def test_coordinates(target):
    """Kernels move exactly these positions: a discrete one among the continuous never moves."""
    assert target.n_dim == 6
    assert target.layout.shapes == [(2,), (), (), (), ()]
    np.testing.assert_array_equal(target.continuous, [0, 1, 3, 4])
    np.testing.assert_array_equal(target.discrete, [2, 5])
    np.testing.assert_array_equal(target.lower, [0, -np.inf])
    np.testing.assert_array_equal(target.upper, [3, np.inf])
    np.testing.assert_array_equal(target.period, [0, 0, 0, 2 * np.pi, 0, 0])
    assert target.log_prior_mass == 0.0


def test_densities_of_prior_draws(target, model):
    """Log prior, with the Jacobian of the scale, and log likelihood against scipy."""
    particles = target.draw(20, seed())
    slope, k, direction = particles.x[:, :2], particles.x[:, 2], particles.x[:, 3]
    log_scale, n = particles.x[:, 4], particles.x[:, 5]
    log_prior = (
        stats.norm.logpdf(slope).sum(axis=1)
        + stats.binom(3, 0.4).logpmf(k)
        + stats.vonmises(1.0).logpdf(direction)
        + stats.halfnorm.logpdf(np.exp(log_scale))
        + log_scale
        + stats.poisson(2).logpmf(n)
    )
    mean = slope.sum(axis=1)[:, None] * [-1.0, 0.0, 1.0] + (k + np.cos(direction))[:, None]
    y = np.array([0.5, 1.5, 2.0])
    log_likelihood = stats.norm.logpdf(y, mean, np.exp(log_scale)[:, None]).sum(axis=1)
    np.testing.assert_allclose(particles.log_density[:, 0], log_prior, rtol=1e-7)
    np.testing.assert_allclose(particles.log_density[:, 1], log_likelihood, rtol=1e-12)


def test_draws_number_and_seed(target):
    """As many as asked for, and the same for the same seed."""
    assert len(target.draw(1, seed())) == 1
    one, two = target.draw(50, seed(3)), target.draw(50, seed(3))
    np.testing.assert_array_equal(one.x, two.x)
    np.testing.assert_array_equal(one.log_density, two.log_density)
    assert not np.array_equal(one.x, target.draw(50, seed(4)).x)


def test_wrap(target):
    """Circular coordinates come back to (-pi, pi]; all others stay where they are."""
    x = np.tile(np.arange(6.0) * 10, (3, 1))
    x[:, 3] = [0.5, 0.5 + 4 * np.pi, 0.5 - 6 * np.pi]
    wrapped = target.wrap(x.copy())
    np.testing.assert_allclose(wrapped[:, 3], 0.5, rtol=1e-12)
    np.testing.assert_array_equal(np.delete(wrapped, 3, 1), np.delete(x, 3, 1))
    densities = [target.evaluate(rows).log_density[:, 1] for rows in (x, wrapped)]
    np.testing.assert_allclose(*densities, rtol=1e-9)


def test_describe_is_on_the_models_scale(target):
    """A user does not know scale_log__, and looks for scale."""
    text = target.describe(np.array([1.0, 2.0, 3.0, 0.25, np.log(7.0), 4.0]))
    assert text == "{slope=[1.0, 2.0], k=3, direction=0.25, scale=7.0, n=4}"
    assert target.describe(np.zeros(6), limit=2) == "{slope=[0.0, 0.0], k=0, ...}"


# --- what the results need ---


def test_names_data_and_coordinates(target):
    """The groups of the DataTree are filled from these."""
    np.testing.assert_array_equal(target.observed_data()["y"], [0.5, 1.5, 2.0])
    assert target.observed_data().keys() == {"y"}
    np.testing.assert_array_equal(target.constant_data()["x"], [-1.0, 0.0, 1.0])
    coords, dims = target.coords_and_dims()
    assert list(coords["row"]) == ["a", "b", "c"] and list(coords["side"]) == ["left", "right"]
    assert list(dims["mean"]) == ["row"] and list(dims["slope"]) == ["side"]


def test_pointwise_log_densities(target, model):
    """PyMC's own groups, for draws that PyMC did not make."""
    values = target.constrained.values(target.draw(8, seed(2)).x)
    free = [rv.name for rv in model.free_RVs]
    data = {
        name: (("chain", "draw", *map(str, range(values[name].ndim - 1))), values[name][None])
        for name in free
    }
    data["slope"] = (("chain", "draw", "side"), values["slope"][None])
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset(data)})
    target.add_log_densities(tree, ["log_likelihood", "log_prior"])
    expected = stats.norm.logpdf([0.5, 1.5, 2.0], values["mean"], values["scale"][:, None])
    np.testing.assert_allclose(tree["log_likelihood/y"].values[0], expected, rtol=1e-6)
    np.testing.assert_allclose(
        tree["log_prior/k"].values[0], stats.binom(3, 0.4).logpmf(values["k"]), rtol=1e-6
    )


# --- potentials ---


def test_potentials_count_as_likelihood_or_alone():
    """Two runs take the constant of a tilted prior off: each must see its own terms."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Potential("tilt", -2.0 * x)
        pm.Normal("y", x, 1, observed=0.5)
    x = np.array([[0.3], [-1.0]])
    both = PyMCTarget(model).evaluate(x).log_density
    alone = PyMCTarget(model, potentials_only=True).evaluate(x).log_density
    np.testing.assert_allclose(alone[:, 1], -2.0 * x[:, 0])
    np.testing.assert_allclose(both[:, 1], stats.norm.logpdf(0.5, x[:, 0]) - 2.0 * x[:, 0])
    np.testing.assert_allclose(both[:, 0], stats.norm.logpdf(x[:, 0]))
    np.testing.assert_array_equal(alone[:, 0], both[:, 0])


# --- no free variable ---


def test_nothing_free():
    """Every member is the empty point; the likelihood is a constant."""
    with pm.Model() as model:
        pm.Normal("y", 0, 1, observed=[0.5, 1.0])
    target = PyMCTarget(model)
    particles = target.draw(3, seed())
    assert target.n_dim == 0 and particles.x.shape == (3, 0)
    np.testing.assert_allclose(
        particles.log_density, np.tile([0.0, stats.norm.logpdf([0.5, 1.0]).sum()], (3, 1))
    )
    assert target.differentiable is None and target.log_prior_mass == 0.0


# --- what is not a number ---


def test_nan_in_the_likelihood_is_refused():
    """Never average over it: it says where, how often, and where to look."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Normal("y", pm.math.log(x), 1, observed=0.0)  # NaN below zero
    with pytest.raises(NumericalError) as caught:
        PyMCTarget(model).draw(100, seed())
    message = str(caught.value)
    assert "log likelihood must be a number below infinity, got nan at" in message
    assert "of 100 prior draws, first at {x=-" in message
    assert "NaN in the data" in message and "point_logps" in message


def test_infinite_density_is_refused():
    """An evidence of infinity is a mistake in the model."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Potential("p", pm.math.switch(x > 0, np.inf, 0.0))
    with pytest.raises(NumericalError, match=r"log likelihood .* got inf at \d+ of 100"):
        PyMCTarget(model).draw(100, seed())


def test_minus_infinity_is_legal():
    """Weight zero: such draws are kept, and count."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Potential("p", pm.math.switch(x > 0, 0.0, -np.inf))
    particles = PyMCTarget(model).draw(1000, seed())
    assert len(particles) == 1000
    dead = particles.log_density[:, 1] == -np.inf
    np.testing.assert_array_equal(dead, particles.x[:, 0] <= 0)
    assert 400 < dead.sum() < 600


# --- frozen ---


def test_new_data_make_a_new_target():
    """The target in hand keeps its data; one that is made afterwards has the new ones."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Normal("y", x, 1, observed=pm.Data("seen", np.array([1.0, 2.0])))
    old = PyMCTarget(model)
    before = old.evaluate(np.zeros((1, 1))).log_density
    with model:
        pm.set_data({"seen": np.array([1.0, 2.0, 3.0])})
    np.testing.assert_array_equal(old.evaluate(np.zeros((1, 1))).log_density, before)
    new = PyMCTarget(model).evaluate(np.zeros((1, 1))).log_density
    assert new[0, 1] == pytest.approx(stats.norm.logpdf([1.0, 2.0, 3.0]).sum())


# --- pickling ---


def test_pickle_gives_the_same_numbers(target):
    """Workers in other processes must draw and weigh as this one does, bit for bit."""
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
    target = PyMCTarget(model, potentials_only=True, compile_kwargs={"name": "mine"})
    again = pickle.loads(pickle.dumps(target))
    assert again.potentials_only and again.compile_kwargs == {"name": "mine"}
    x = np.array([[0.3]])
    np.testing.assert_array_equal(again.evaluate(x).log_density, target.evaluate(x).log_density)


def test_one_model_is_compiled_once_per_process(target, monkeypatch):
    """A worker gets the target with every block: compiling each time would take minutes."""
    pickled = pickle.dumps(target)
    first = pickle.loads(pickled)
    made = []
    monkeypatch.setattr(at_hand, "PyMCTarget", lambda *a, **k: made.append(a))
    assert pickle.loads(pickled) is first and pickle.loads(pickled) is first
    assert not made


# --- one target for one model ---


@pytest.fixture
def nothing_kept(monkeypatch):
    monkeypatch.setattr(at_hand, "_KEPT", type(at_hand._KEPT)())


def simple(observed=1.0):
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Normal("y", x, pm.Data("scale", 1.0), observed=pm.Data("seen", [observed]))
    return model


def test_a_model_at_hand_is_not_compiled_again(nothing_kept):
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
    x = np.array([[0.7]])
    expected = PyMCTarget(model).evaluate(x).log_density
    np.testing.assert_array_equal(second.evaluate(x).log_density, expected)
    assert second.constrained.names == [v.name for v in (*model.free_RVs, *model.deterministics)]


def test_other_options_are_another_target(nothing_kept):
    """compile_kwargs that were ignored on the second call would puzzle their user."""
    model = simple()
    first = target_of(model)
    assert target_of(model, compile_kwargs={"name": "other"}) is not first


def test_few_models_are_kept(nothing_kept):
    """A loop over many models, or a long-lived worker, would run out of memory."""
    models = [simple() for _ in range(at_hand._MAX_KEPT + 2)]
    targets = [target_of(model) for model in models]
    assert len(at_hand._KEPT) == at_hand._MAX_KEPT
    assert target_of(models[-1]) is targets[-1]
    assert target_of(models[0]) is not targets[0]


# --- other processes ---


CHILD = """
import json, pickle, sys, warnings
warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
import numpy as np
target = pickle.load(open(sys.argv[1], "rb"))
particles = target.draw(25, np.random.SeedSequence(7))
print(json.dumps([particles.x.tolist(), particles.log_density.tolist()]))
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
    assert target._prior._compiled is None
    path = tmp_path / "target.pkl"
    path.write_bytes(pickle.dumps(target))
    run = subprocess.run(
        [sys.executable, "-c", CHILD, path], capture_output=True, text=True, check=True
    )
    x, log_density = json.loads(run.stdout.splitlines()[-1])
    here = target.draw(25, seed(7))
    np.testing.assert_array_equal(x, here.x)
    np.testing.assert_array_equal(log_density, here.log_density)


# --- finding the model ---


def test_find_model(model):
    """As in PyMC: by argument, or by the context."""
    assert find_model(model) is model
    with model:
        assert find_model(None) is model
    with pm.Model():
        assert find_model(model) is model  # the argument counts


@pytest.mark.parametrize("value", [5, "model", pm, lambda: None, pt.scalar()])
def test_what_is_not_a_model(value):
    """The message says what was passed."""
    with pytest.raises(TypeError, match=r"target must be a pymc\.Model, got \w+; pass the model"):
        find_model(value)


def test_no_model_at_all():
    """Outside any context there is nothing to find."""
    with pytest.raises(TypeError, match=r"target must be given outside a model context; call"):
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
    new = target_of(model)
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
    before = at_hand._content(model)
    constants = [
        v
        for v in at_hand._with_inner([model["y"]])
        if isinstance(getattr(v, "data", None), np.ndarray) and v.data.shape == (3,)
    ]
    constants[0].data[:] = 7.0
    assert at_hand._content(model) != before


def test_a_scale_of_zero_is_impossible():
    """Far out on the log scale a standard deviation is 0, where not all densities check it."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        width = pm.Uniform("width", 0, 1)
        x = pm.ZeroSumNormal("x", sigma=scale, shape=3)
        z = pm.ZeroSumNormal("z", sigma=width, shape=3)
        pm.Normal("y", x + z, 1, observed=[0.1, 0.2, 0.3])
    target = PyMCTarget(model)
    points = np.full((4, target.n_dim), 0.5)
    points[1, 0], points[2, 1], points[3, :2] = -800, -800, (-800, 800)
    for density in (target.density, target.differentiable):
        log_density, _ = density.evaluate(points)
        assert np.isfinite(log_density[0]).all()
        assert (log_density[1:, 0] == -np.inf).all()
        assert not np.isnan(log_density).any()


# --- one compiled function ---


def test_a_continuous_model_is_compiled_once():
    """A second function without gradients took as long to compile as half of the first."""
    target = PyMCTarget(exact_systems()["data_container"].build())
    particles = target.draw(20, np.random.SeedSequence(1))
    assert target.prior_acceptance == 1.0
    target.sample_stats(particles.x)
    assert "density" not in vars(target) and particles.gradient is None
    np.testing.assert_allclose(
        particles.log_density, target.density.values(particles.x), rtol=1e-12
    )


def test_values_that_gradients_fail_at_are_kept():
    """A point where no gradient can be computed may have a density all the same."""
    target = PyMCTarget(exact_systems()["data_container"].build())
    x = np.linspace(-1.0, 1.0, 6).reshape(3, 2)
    expected = target.density.values(x)
    failing = np.where([[False], [True], [False]], np.nan, expected)
    vars(target)["differentiable"] = SimpleNamespace(values=lambda x: failing.copy())
    np.testing.assert_array_equal(target.evaluate(x).log_density, expected)
