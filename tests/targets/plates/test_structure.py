"""Which variables are local is read from graphs; couplings that are planted make them global."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.subtensor import AdvancedSubtensor

import pm_evidence as pe
from pm_evidence.targets.plates import labels

GROUP = np.repeat(np.arange(4), 3)
Y = np.linspace(-1.0, 2.0, 12)


def local_of(model: pm.Model) -> set[str]:
    table = pe.structure(model)
    return set(table.index[table.kind == "local"])


def effects(likelihood) -> pm.Model:
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        effect = pm.Normal("effect", 0, scale, shape=4)
        likelihood(effect)
    return model


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda u: pm.Normal("y", u[GROUP], 1, observed=Y),
        lambda u: pm.Normal("y", np.eye(4)[GROUP] @ u, 1, observed=Y),
        lambda u: pm.Normal("y", u[:, None], 1, observed=Y.reshape(4, 3)),
        lambda u: pm.StudentT("y", nu=3, mu=u[GROUP], sigma=1, observed=Y),
        lambda u: pm.Potential("y", -2.0 * ((u[GROUP] - Y) ** 2).sum()),
        lambda u: pm.Poisson("y", pt.exp(u)[GROUP], observed=np.arange(12)),
        lambda u: pm.OrderedLogistic("y", u[GROUP], [-1.0, 1.0], observed=np.arange(12) % 3),
        lambda u: pm.NormalMixture(
            "y", [0.3, 0.7], pt.stack([u, u + 1], axis=-1)[GROUP], 1.0, observed=Y
        ),
    ],
)
def test_effects_of_groups_are_local(likelihood) -> None:
    assert local_of(effects(likelihood)) == {"effect"}


@pytest.mark.parametrize(
    "likelihood",
    [
        # an index that couples two elements, a squared sum, and operations along the plate
        lambda u: pm.Normal("y", u[GROUP] + u[np.roll(GROUP, 1)], 1, observed=Y),
        lambda u: pm.Potential("y", -((u.sum() - 1.0) ** 2)),
        lambda u: pm.Normal("y", pt.cumsum(u)[GROUP], 1, observed=Y),
        lambda u: pm.Normal("y", pt.sort(u)[GROUP], 1, observed=Y),
        lambda u: pm.MvNormal("y", u, 0.5 * np.eye(4) + 0.5, observed=Y[:4]),
        lambda u: pm.Normal("y", np.ones((12, 4)) @ u, 1, observed=Y),
    ],
)
def test_coupled_elements_are_global(likelihood) -> None:
    assert local_of(effects(likelihood)) == set()


def test_the_larger_of_crossed_factors_is_local() -> None:
    first, second = np.arange(12) % 6, np.arange(12) // 6
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=6)
        b = pm.Normal("b", 0, 1, shape=2)
        pm.Normal("y", a[first] * b[second], 1, observed=Y)
    table = pe.structure(model)
    assert table.kind.to_dict() == {"a": "local", "b": "global"}
    assert table.reason["b"].startswith("given a")


@pytest.mark.parametrize(
    ("sizes", "is_normal", "local"),
    [
        ([3, 3], True, {"r", "site"}),  # a region with its sites is one element
        ([3, 3], False, {"site"}),
        ([2, 4], True, {"site"}),
        ([6, 6], True, {"site"}),
    ],
)
def test_sites_in_regions(sizes, is_normal, local) -> None:
    region = np.repeat([0, 1], sizes)
    n = region.size
    with pm.Model() as model:
        r = pm.Normal("r", 0, 1, shape=2)
        site = pm.Normal("site", r[region], 1, shape=n)
        if is_normal:
            pm.Normal("y", site, 1, observed=np.linspace(-1.0, 2.0, n))
        else:
            pm.Poisson("y", pt.exp(site), observed=np.arange(n))
    assert local_of(model) == local


def slopes(kind: str, *, normal: bool = True) -> pm.Model:
    """Four groups with an intercept and a slope each, in the ways in which these are written."""
    with pm.Model() as model:
        if kind == "two variables":
            effects = pm.Normal("effect", 1, 2, shape=4), pm.Normal("slope", 0, 1, shape=4)
        else:
            factor, _, _ = pm.LKJCholeskyCov(
                "factor", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=2)
            )
            if kind == "rows":
                rows = pm.MvNormal("effect", np.zeros(2), chol=factor, shape=(4, 2))
                effects = rows[:, 0], rows[:, 1]
            elif kind == "columns of noise":
                effects = factor @ pm.Normal("effect", 0, 1, shape=(2, 4))
            else:
                rows = pm.math.dot(pm.Normal("effect", 0, 1, shape=(4, 2)), factor.T)
                effects = rows[:, 0], rows[:, 1]
        mean = effects[0][GROUP] + effects[1][GROUP] * np.linspace(-1.0, 1.0, 12)
        if normal:
            pm.Normal("y", mean, 1, observed=Y)
        else:
            pm.Poisson("y", pt.exp(mean), observed=np.arange(12))
    return model


KINDS = ["two variables", "rows", "columns of noise", "rows of noise"]


@pytest.mark.parametrize("kind", KINDS)
def test_normal_effects_of_several_coordinates_are_local(kind) -> None:
    names = {"effect", "slope"} if kind == "two variables" else {"effect"}
    assert local_of(slopes(kind)) == names
    assert local_of(slopes(kind, normal=False)) < names


def test_discrete_elements() -> None:
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 2, shape=2)
        label = pm.Categorical("label", [0.4, 0.6], shape=12)
        pm.Normal("y", mean[label], 1, observed=Y)
        n = pm.Poisson("n", 5, shape=3)
        pm.Binomial("k", n, 0.5, observed=[2, 3, 1])
    table = pe.structure(model)
    assert table.integrated_by.to_dict() == {"mean": "", "label": "sum", "n": "counts"}
    assert table.elements["label"] == 12


def test_angles_are_global() -> None:
    """An integral over the line would count each angle once for every turn."""
    with pm.Model() as model:
        spread = pm.HalfNormal("spread", 1)
        angle = pm.VonMises("angle", 0, 2, shape=4)
        pm.Normal("y", pt.sin(angle)[GROUP], spread, observed=Y)
    assert local_of(model) == set()
    assert "circle" in pe.structure(model).loc["angle", "reason"]


def test_elements_of_an_operation_that_cannot_be_followed_meet(monkeypatch) -> None:
    """A run goes on with all variables; an error of the reading would end it."""

    def failing(node, *arguments):
        if isinstance(node.op, AdvancedSubtensor):
            raise ValueError("operands could not be broadcast together")
        return followed(node, *arguments)

    followed = labels._propagated
    with pm.Model() as model:
        effect = pm.Normal("effect", 0, 1, shape=3)
        pm.Normal("y", effect[np.array([0, 1, 2, 2])], 1, observed=np.zeros(4))
    assert pe.structure(model).loc["effect", "kind"] == "local"
    monkeypatch.setattr(labels, "_propagated", failing)
    assert pe.structure(model).loc["effect", "kind"] == "global"
