"""Models that are written as loops: their equal terms are one term of an array."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import scan, wrap_py
from pytensor.graph.traversal import ancestors

import pm_evidence as pe
from pm_evidence.targets.model.log_density import FEWEST, densities_of, joined
from pm_evidence.targets.model.target import PyMCTarget
from tests.targets.model.distributions import DISTRIBUTIONS, build, data_of
from tests.targets.values import evaluated_in_python, in_python

# Those that have no density in a loop, or need a package.
NOT_IN_LOOPS = {"DiracDelta", "PolyaGamma", "WishartBartlett"}
N = 10
RNG = np.random.default_rng(48)
X, Y = RNG.normal(size=(N, 6, 2)), RNG.normal(size=(N, 6))


def effects(n):
    """A variable and its data for each turn of a loop."""
    with pm.Model() as model:
        mean, scale = pm.Normal("mean"), pm.HalfNormal("scale")
        for k in range(n):
            effect = pm.Normal(f"effect{k}", mean, scale)
            pm.Normal(f"y{k}", effect, 1, observed=Y[k % N])
    return model


def elements():
    """Elements, rows and several elements of an array, and constants of each turn."""
    with pm.Model() as model:
        a, b = pm.Normal("a", shape=N), pm.Normal("b", shape=(N, 2))
        sd = pm.HalfNormal("sd", shape=N + 1)
        for k in range(N):
            pm.Normal(f"y{k}", a[k] + X[k] @ b[k], sd[k], observed=Y[k])
            pm.Poisson(f"count{k}", pm.math.exp(a[k] * b[k, 1]), observed=k % 3)
            pm.StudentT(f"t{k}", nu=4.0, mu=a[np.array([0, k])], sigma=sd[0], observed=Y[k, :2])
    return model


def chosen_by_flags():
    """Elements of a group are often chosen by a comparison."""
    group = np.arange(2 * N) % N
    with pm.Model() as model:
        a, b = pm.Normal("a", shape=2 * N), pm.Normal("b", shape=(N, 2 * N))
        for k in range(N):
            pm.Normal(f"y{k}", a[group == k], 1, observed=Y[k, :2])
            pm.Normal(f"z{k}", b[k, group == k], 1, observed=Y[k, :2])
            pm.Normal(f"w{k}", b[k][np.array([k, 2 * k])], 1, observed=Y[k, :2])
    return model


def rows_and_columns():
    """Columns, parts of rows, and rows counted from the end."""
    with pm.Model() as model:
        b = pm.Normal("b", shape=(N, N))
        for k in range(N):
            pm.Normal(f"column{k}", b[:, k], 1, observed=Y[:, 0])
            pm.Normal(f"part{k}", b[k, 1:3], 1, observed=Y[k, :2])
            pm.Normal(f"last{k}", b[-k, :2], 1, observed=Y[k, :2])
    return model


def with_itself():
    """A variable is compared with the first one, which is itself in the first turn."""
    with pm.Model() as model:
        a = [pm.Normal(f"a{k}", 0, 1.0 + k) for k in range(N)]
        for k in range(N):
            pm.Normal(f"y{k}", a[0] - 2 * a[k], 1, observed=Y[k])
    return model


def of_unequal_size():
    """Two sizes, of which one has too few turns to be joined, and another distribution."""
    with pm.Model() as model:
        a = pm.Normal("a", shape=N + 4)
        for k in range(N + 3):
            pm.Normal(f"y{k}", a[k], 1, observed=Y[k % N, : 6 if k < N else 2])
        pm.Laplace("other", a[-1], 1.0, observed=Y[0])
    return model


def with_potentials():
    """Potentials, and a variable whose scale is another one in each turn."""
    with pm.Model() as model:
        scale = [pm.HalfNormal(f"scale{k}") for k in range(N)]
        a = [pm.Uniform(f"a{k}", -scale[k], 3) for k in range(N)]
        for k in range(N):
            pm.Potential(f"p{k}", -(a[k] ** 2) / (k + 1))
            pm.Exponential(f"y{k}", scale[k], observed=0.5)
    return model


def the_same_again():
    """Turns that are the same in all: each of them counts."""
    with pm.Model() as model:
        mean = pm.Normal("mean")
        for k in range(N):
            pm.Normal(f"y{k}", mean, 1, observed=[0.5, 1.5])
            pm.Potential(f"p{k}", -(mean**2))
    return model


def with_loops_and_operations_of_users():
    """What has no form for many at once is left as it is."""

    @wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])
    def cubed(x):
        return np.asarray(x**3)

    with pm.Model() as model:
        a = pm.Normal("a", shape=N)
        for k in range(N):
            pm.Potential(f"p{k}", -(cubed(a[k]) ** 2))
            steps = {"outputs_info": [a[k]], "non_sequences": [0.1 * k], "n_steps": 3}
            grown = scan(lambda x, step: 0.5 * x + step, **steps, return_updates=False)
            pm.Normal(f"y{k}", grown[-1], 1, observed=Y[k])
    return model


@pytest.mark.parametrize(
    "make",
    [
        lambda: effects(N),
        elements,
        chosen_by_flags,
        rows_and_columns,
        with_itself,
        of_unequal_size,
        with_potentials,
        the_same_again,
        with_loops_and_operations_of_users,
    ],
)
def test_the_density_is_that_of_the_model(make):
    """A number or a variable of another turn would make it that of another model.

    PyMC takes logs of some constants in single precision, which the package does not.
    """
    model = make()
    target = in_python(model)
    x = target.draw(3, np.random.SeedSequence(1)).x
    logp = model.compile_logp(sum=False, mode="FAST_COMPILE")
    names = [value.name for value in model.value_vars]
    for row, found in zip(x, target.evaluate(x).log_density, strict=True):
        point = dict(zip(names, target.layout.split(row), strict=True))
        assert found.sum() == pytest.approx(sum(term.sum() for term in logp(point)), rel=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["prior", "likelihood"])
@pytest.mark.parametrize("name", [n for n in DISTRIBUTIONS if n not in NOT_IN_LOOPS])
def test_every_distribution_in_a_loop(name, kind):
    """Stacked or not, its terms have the sum that they have one by one."""
    if getattr(DISTRIBUTIONS[name], kind) is not None:
        pytest.skip("no such term")
    data = {"observed": data_of(name)} if kind == "likelihood" else {}
    with pm.Model() as model:
        t = pm.Normal("t", 0, 0.5 if data else 0.05, shape=N)
        for k in range(N):
            build(name, f"x{k}", t[k] + 0.01 * (k + 1), **data)
        pm.Normal("y", 0, 1, observed=0.0)
    usual, _ = densities_of(model, [rv for rv in model.basic_RVs if rv.name not in ("t", "y")])
    terms = list(usual.values())
    if not terms:
        pytest.skip("its density is one of the package")
    outputs = [sum(term.sum() for term in graphs) for graphs in (joined(terms), terms)]
    target = PyMCTarget(model, backend="numpy")
    together = pytensor.function(
        model.value_vars, outputs, mode="FAST_COMPILE", on_unused_input="ignore"
    )
    for row in target._prior_points(2, np.random.SeedSequence(1)):
        parts = zip(target.layout.split(row), model.value_vars, strict=True)
        found, expected = together(*(part.astype(value.dtype) for part, value in parts))
        assert found == pytest.approx(expected, rel=1e-10, nan_ok=True)


def n_operations(n):
    graphs = PyMCTarget(effects(n)).graphs().log_density
    return sum(v.owner is not None for v in ancestors(graphs))


def test_many_turns_need_no_more_operations_than_few():
    """Each operation of each turn would be built, rewritten, differentiated and evaluated."""
    few, many = n_operations(FEWEST), n_operations(40)
    assert many < few + 3 * (40 - FEWEST)  # the inputs, and their bounds


def test_few_terms_keep_their_order():
    """The numbers of small models would change in the last digits."""
    terms = [pt.vector(f"x{k}", shape=(2,)) * (k + 1.0) for k in range(FEWEST - 1)]
    terms.insert(3, pt.exp(pt.scalar("s")))
    assert joined(terms) == terms


def test_data_that_may_change_their_shape_are_not_stacked():
    """Their lengths may differ when the model is evaluated."""
    with pm.Model() as model:
        mean = pm.Normal("mean")
        for k in range(N):
            pm.Normal(f"y{k}", mean, 1, observed=pm.Data(f"data{k}", Y[k, : 1 + k % 3]))
    target = evaluated_in_python(PyMCTarget(model))
    found = target.evaluate(np.zeros((1, 1))).log_density.sum()
    assert found == pytest.approx(float(model.compile_logp()({"mean": 0.0})), rel=1e-12)


def test_the_evidence_is_that_of_the_model_without_a_loop():
    """Of the same data: the loop has a variable for each turn, the other one has one of N."""
    with pm.Model() as whole:
        mean, scale = pm.Normal("mean"), pm.HalfNormal("scale")
        effect = pm.Normal("effect", mean, scale, shape=N)
        pm.Normal("y", effect[:, None], 1, observed=Y)
    one, other = (
        pe.log_evidence(pe.sample_evidence(model, random_seed=48, progressbar=False))
        for model in (effects(N), whole)
    )
    assert one.status == other.status == "ok"
    assert abs(one.value - other.value) < 4 * np.hypot(one.mcse, other.mcse)
