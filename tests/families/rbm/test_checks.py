"""What users hand over is refused by name before anything is compiled."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.families.rbm.target import checked_base, checked_parameters, checked_states

W, A, B = np.zeros((4, 3)), np.zeros(4), np.zeros(3)
NAN = np.array([0.0, 0.0, np.nan])


def test_parameters():
    for arguments, message in (
        ((np.zeros(4), A, B), r"W must have the shape \(n_visible, n_hidden\)"),
        ((np.zeros((4, 0)), A, np.zeros(0)), "at least one unit in each layer"),
        ((W.T, A, B), r"visible_bias must have one number for each of the 3 visible units"),
        ((W, A, np.zeros(4)), "hidden_bias must .* 3 hidden units .* transpose W"),
        ((W, A, NAN), "hidden_bias must hold finite numbers .* got nan"),
        ((W + np.inf, A, B), "W must hold finite numbers .* got inf"),
        ((W, A + 1e9, B), "visible_bias must hold finite numbers of at most 10000"),
        (([["a"] * 3] * 4, A, B), "W must hold real numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            checked_parameters(*arguments)
        with pytest.raises(ValueError, match=message):
            pe.rbm.RBM(*arguments)


def test_bases():
    for base, message in (
        ("rates", "base must be one of"),
        ("data", "base='data' needs data, got none"),
        (np.full(3, 0.5), r"one rate for each of the 4 units .* got shape \(3,\)"),
        (np.array([0.5, 0.0, 0.5, 0.5]), "rates between 0 and 1, got 0.0"),
        (np.array([0.5, 0.5, 1.0, 0.5]), "rates between 0 and 1, got 1.0"),
        (np.array([0.5, 0.5, np.nan, 0.5]), "rates between 0 and 1, got nan"),
    ):
        with pytest.raises(ValueError, match=message):
            checked_base(base, 4, False)
        with pytest.raises(ValueError, match=message):
            pe.rbm.RBM(W, A, B, base=base)


def test_states():
    for states, message in (
        (np.zeros(4), r"data must have the shape \(n, 4\)"),
        (np.zeros((0, 4)), r"data must have the shape \(n, 4\)"),
        (np.zeros((2, 5)), r"got \(2, 5\); images"),
        (
            np.full((2, 4), 0.5),
            "0 and 1 only, got values from 0.5 to 0.5; binarise them",
        ),
        (np.full((2, 4), 255, np.uint8), "to 255; binarise"),
        (np.full((2, 4), np.nan), "to nan; leave out or fill"),
        (np.full((2, 4), "1"), "data must hold 0 and 1, got"),
    ):
        with pytest.raises(ValueError, match=message):
            checked_states("data", states, 4)
        with pytest.raises(ValueError, match=message):
            pe.rbm.RBM(W, A, B, data=states)
