"""Parameters in the form that compiled code reads."""

import numpy as np

from pm_evidence.families.rbm.layers import layer_of


def test_rounded_up_to_words():
    """What lies beyond the last unit must add nothing, and cannot be drawn."""
    weights = np.arange(6.0).reshape(2, 3)
    layer = layer_of(weights, np.ones(3), np.full(3, 2.0))
    assert layer.weights.shape == (64, 64) and layer.bias.shape == layer.base.shape == (64,)
    np.testing.assert_array_equal(layer.weights[:2, :3], weights)
    assert layer.weights.sum() == weights.sum() and layer.bias.sum() == 3 and layer.base.sum() == 6
    np.testing.assert_array_equal(layer.there, [0b111])
    assert layer.weights.ctypes.data % 64 == 0
