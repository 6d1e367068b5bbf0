"""What Python code in a model raises reaches the user as it was raised, wherever it happens."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pymc as pm
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pm_evidence as pe

pytestmark = [
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning"),
    pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning"),
]


def everywhere():
    return True


def in_a_worker():
    return multiprocessing.parent_process() is not None


class Fails(Op):
    """Returns its input where ``when()`` is false, and raises an exception where it is true."""

    __props__ = ("when",)

    def __init__(self, when):
        self.when = when

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        if self.when():
            raise ArithmeticError("the user's own message")
        outputs[0][0] = inputs[0] * 1.0


def model_of(when):
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Normal("y", Fails(when)(x).sum(), 1, observed=1.0)
    return model


def sample(when, **options):
    with pytest.raises(ArithmeticError, match="the user's own message"):
        pe.sample_evidence(model_of(when), draws=100, random_seed=1, progressbar=False, **options)


def test_in_the_pilot():
    """The user must not get a SystemError of the interpreter about a compiled function."""
    sample(everywhere)


@pytest.mark.slow
def test_in_a_worker():
    """The same where another process runs it, whose exceptions come back without their causes."""
    context = multiprocessing.get_context("spawn")  # a fork might copy a lock that is held
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        sample(in_a_worker, executor=executor)
