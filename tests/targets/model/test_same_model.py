"""What a density of the user's own uses is a part of the model: for kept models and checkpoints.

Each kind of model is built twice with the same value, and once with another one.
"""

import logging
import os
import subprocess
import sys
import threading
import types
from pathlib import Path

import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py
from pytensor.graph.op import Op

from pm_evidence.targets.model import cache
from pm_evidence.targets.model.cache import description_of, identity_of

ROOT = Path(__file__).resolve().parents[3]
Y = np.array([0.3, 1.1, 0.8])


def custom(logp):
    """A density of the user's own for the data."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.CustomDist("y", x, logp=logp, observed=Y)
    return model


def potential(op):
    """The log likelihood as an operation."""
    with pm.Model() as model:
        pm.Potential("y", op(pm.Normal("x", 0, 1)))
    return model


module = types.ModuleType("module_of_a_user")
TABLE = {"k": 0.0}


def module_constant(k):
    module.k = k
    return custom(lambda v, mu: -0.5 * module.k * (v - mu) ** 2)


def global_table(k):
    TABLE["k"] = k
    return custom(lambda v, mu: -0.5 * TABLE["k"] * (v - mu) ** 2)


def default(k):
    def logp(v, mu, k=k):
        return -0.5 * k * (v - mu) ** 2

    return custom(logp)


class Private:
    """A callable with private state in slots."""

    __slots__ = ("_k",)

    def __init__(self, k):
        self._k = k

    def logp(self, v, mu):
        return -0.5 * self._k * (v - mu) ** 2

    def __call__(self, v, mu):
        return self.logp(v, mu)


def bound_method(k):
    return custom(Private(k).logp)


class NoProps(Op):
    """PyMC's classic black box: no ``__props__``."""

    itypes, otypes = [pt.dscalar], [pt.dscalar]

    def __init__(self, k):
        self._k = k

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(-0.5 * self._k * ((Y - inputs[0]) ** 2).sum())


def operation(k):
    return potential(NoProps(k))


def edited_operation(k):
    class Edited(NoProps):
        __props__ = ()

        if k == 1.0:

            def perform(self, node, inputs, outputs):
                outputs[0][0] = np.asarray(-0.5 * ((Y - inputs[0]) ** 2).sum())
        else:

            def perform(self, node, inputs, outputs):
                outputs[0][0] = np.asarray(-4.5 * ((Y - inputs[0]) ** 2).sum())

    return potential(Edited(1.0))


def wrapped(k):
    density = wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])
    return potential(density(lambda v: np.asarray(-0.5 * k * ((Y - v) ** 2).sum())))


def compiled(k):
    """An operation that calls a function that numba compiles."""

    @numba.njit
    def density(v):
        return -0.5 * k * ((Y - v) ** 2).sum()

    wrapper = wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])
    return potential(wrapper(lambda v: np.asarray(density(v))))


def drawn(k):
    """A prior whose draws, and not its density, depend on the value."""
    with pm.Model() as model:
        x = pm.CustomDist(
            "x",
            logp=lambda v: -0.5 * v**2,
            random=lambda rng, size=None: k * rng.normal(size=size),
        )
        pm.Normal("y", x, 1, observed=Y)
    return model


KINDS = [
    *(module_constant, global_table, default, bound_method),
    *(operation, edited_operation, wrapped, compiled, drawn),
]


@pytest.mark.parametrize("build", KINDS)
def test_what_a_density_uses_is_a_part_of_the_model(build):
    """A likelihood that was corrected between two calls must not get the result of the first."""
    first, unknown = description_of(build(1.0))
    assert not unknown
    assert identity_of(build(9.0)) != first
    assert identity_of(build(1.0)) == first


def test_another_process_describes_models_in_the_same_way():
    """Else no checkpoint would be resumed: sets, addresses and hashes differ between processes."""
    names = ", ".join(build.__name__ for build in KINDS)
    code = (
        f"from {__name__} import {names}\n"
        "from pm_evidence.targets.model.cache import identity_of\n"
        f"print([identity_of(build(1.0)) for build in ({names})])"
    )
    env = {**os.environ, "PYTHONHASHSEED": "5", "PYTHONPATH": str(ROOT)}
    there = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    assert there.stdout.strip() == str([identity_of(build(1.0)) for build in KINDS])


def test_a_run_leaves_what_operations_hold_as_it_is():
    """What compilers add to an operation would make the next call another one."""
    for build in (operation, wrapped, compiled):
        model = build(1.0)
        before = identity_of(model)
        model.compile_logp()(model.initial_point())
        assert identity_of(model) == before, build.__name__


@pytest.fixture
def built(monkeypatch):
    """The models of which a target is made; nothing is compiled."""
    models = []

    def build(model, asked):
        models.append(model)
        return types.SimpleNamespace(model=model)

    monkeypatch.setattr(cache, "_build", build)
    monkeypatch.setattr(cache, "_KEPT", {})
    monkeypatch.setattr(cache, "_SAID", set())
    return models


def test_a_model_is_compiled_again_when_what_it_uses_has_changed(built):
    """The same model object, in a notebook where a cell with a constant is run again."""
    model = global_table(1.0)
    one, same = cache.target_of(model), cache.target_of(model)
    assert one is same and len(built) == 1
    TABLE["k"] = 9.0
    assert cache.target_of(model) is not one and len(built) == 2


def test_what_cannot_be_described_is_different_and_is_said_once(built, caplog):
    """A lock has no content that can be compared; the density may depend on it."""
    lock = threading.Lock()
    model = custom(lambda v, mu: -0.5 * (v - mu) ** 2 if lock else -((v - mu) ** 2))
    assert description_of(model)[1] == ("_thread.lock",)
    with caplog.at_level(logging.WARNING, "pymc.pm_evidence"):
        assert cache.target_of(model) is not cache.target_of(model)
    assert len(built) == 2 and [r.message for r in caplog.records if "_thread.lock" in r.message]
    assert len(caplog.records) == 1
