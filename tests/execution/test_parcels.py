"""Parcels: large parts travel once, and nothing else changes."""

import pickle
import threading
from dataclasses import dataclass

import numpy as np
import pytest

from pm_evidence.execution import blocks as module
from pm_evidence.execution.blocks import NOT_PICKLED, Lacking, pickled


@dataclass(frozen=True)
class Thing:
    number: int
    large: bytes
    array: np.ndarray


@pytest.fixture
def things(monkeypatch):
    """Two objects that share a large part, for a process that has received nothing yet."""
    monkeypatch.setattr(module, "_KEPT", type(module._KEPT)())
    rng = np.random.default_rng(3)
    shared = rng.bytes(100_000)
    return [Thing(number, shared, rng.normal(size=5)) for number in (1, 2)]


def assert_equal(one, other):
    assert (one.number, one.large) == (other.number, other.large)
    assert np.array_equal(one.array, other.array)


def test_a_parcel_holds_the_object(things):
    for made, thing in zip(pickled(things), things, strict=True):
        assert_equal(pickle.loads(pickle.dumps(made)).opened(), thing)


@pytest.mark.parametrize("by_value", [False, True])
def test_large_parts_are_needed_once(things, by_value):
    first, second = pickled(things, by_value=by_value)
    assert len(first.head) < 2000 and list(first.large) == list(second.large)
    with pytest.raises(Lacking):
        second.without_large().opened()
    first.opened()
    assert_equal(second.without_large().opened(), things[1])


def test_what_is_defined_in_a_notebook_is_sent_along():
    def doubled(x):
        return 2 * x

    (made,) = pickled([doubled], by_value=True)
    assert made.opened()(4) == 8
    with pytest.raises(NOT_PICKLED):
        pickled([doubled])


@pytest.mark.parametrize("by_value", [False, True])
def test_what_cannot_be_pickled_is_an_error(by_value):
    with pytest.raises(NOT_PICKLED):
        pickled([threading.Lock()], by_value=by_value)
