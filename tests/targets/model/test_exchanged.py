"""Targets that share compiled code and read other arrays."""

import numpy as np

from pm_evidence.targets.model.coordinates import Centring
from pm_evidence.targets.model.exchanged import ExchangedTarget
from pm_evidence.targets.model.reparameterised import ReparameterisedTarget
from pm_evidence.testing import exact_systems


def test_exchanged_arrays_are_read_by_the_same_code():
    """A density with the arrays of another target would give a wrong evidence."""
    model = exact_systems()["eight_schools_half_normal_centred"].build()
    first = ReparameterisedTarget(model)
    assert isinstance(first, ExchangedTarget)
    x = first.draw(20, np.random.SeedSequence(1)).x
    before = first.differentiable.values(x)
    other = first.centred_by(Centring.common(0.7, len(first.variables)))
    assert other.differentiable.address == first.differentiable.address
    assert not np.allclose(other.differentiable.values(x), before)
    back = other.centred_by(first.centring)
    np.testing.assert_array_equal(back.differentiable.values(x), before)
    np.testing.assert_array_equal(first.differentiable.values(x), before)
