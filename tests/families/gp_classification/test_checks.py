"""What is refused, and how it is said."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.families.gp_classification.target import checked_signs

X, Y = np.linspace(0.0, 1.0, 4), np.array([1, -1, 1, -1])
K = np.eye(4)


def changed(array, index, value):
    array = np.array(array, float)
    array[index] = value
    return array


def test_bad_input_is_refused():
    for inputs, labels, options, message in (
        (X, [1, 1, 1, 1], {}, "exactly two classes, got 1"),
        (X, [1, 2, 3, 1], {}, "exactly two classes, got 3"),
        (X, [1.0, np.nan, 0.0, 1.0], {}, r"labels\[1\]=nan"),
        (X, [], {}, "labels must have one entry"),
        (X, [[1, -1]], {}, "labels must have one entry"),
        (X, [None, 1, 0, 1], {}, "labels must be numbers"),
        (changed(X, 2, np.nan), Y, {}, r"inputs\[2, 0\]=nan"),
        (X[:3], Y, {}, "one row for each of the 4 labels"),
        (np.zeros((4, 2, 2)), Y, {}, "one row for each of the 4 labels"),
        (["a", "b", "c", "d"], Y, {}, "inputs must hold real numbers"),
        (None, Y, {}, "inputs must hold real numbers"),
        (X, Y, {"length_scale": 0.0}, "length_scale must be a finite number above 0"),
        (X, Y, {"amplitude": np.inf}, "amplitude must be a finite number above 0"),
        (X, Y, {"amplitude": 1e60}, "amplitude must be at most 1e\\+50"),
        (None, Y, {"covariance": 1e101 * K}, "entries of at most 1e\\+100"),
        (1e308 * X, Y, {"length_scale": 1e-10}, "covariance must be finite"),
        (X, Y, {"covariance": "matern"}, "covariance must be 'squared_exponential'"),
        (X, Y, {"covariance": K}, "inputs must be None"),
        (None, Y, {"covariance": np.eye(3)}, "got shape \\(3, 3\\)"),
        (None, Y, {"covariance": changed(K, (0, 1), np.inf)}, r"covariance\[0, 1\]=inf"),
        (None, Y, {"covariance": changed(K, (0, 1), 0.5)}, "covariance must be symmetric"),
        (None, Y, {"covariance": -2.0 * K}, "positive definite, got a matrix with the eigenvalue"),
        (None, Y, {"covariance": 0.0 * K, "representation": "latent"}, "pass jitter"),
        (X, Y, {"covariance": lambda x: 1 / 0}, "which raised ZeroDivisionError"),
        (X, Y, {"jitter": -1.0}, "jitter must not be negative"),
        (X, Y, {"order": "best"}, "order must be one of"),
        (X, Y, {"order": [0, 1, 2, 2]}, "each of the 4 data points once"),
        (X, Y, {"order_seed": -1}, "order_seed must be"),
        (X, Y, {"representation": "dual"}, "representation must be one of"),
        (X, Y, {"reference": "laplace"}, "reference must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            pe.gp.GPClassification(inputs, labels, **options)


@pytest.mark.parametrize(
    "labels", [Y, (Y > 0).astype(int), Y > 0, np.where(Y > 0, "b", "a"), 2.5 * Y]
)
def test_any_two_classes_are_labels(labels):
    """Signs follow the sorted order of the classes, as in scikit-learn."""
    signs, classes = checked_signs(labels)
    np.testing.assert_array_equal(signs, Y)
    assert classes[1] == labels[0] and classes[0] == labels[1]


def test_covariances_of_all_kinds_agree():
    """A matrix, a function, and the name."""
    named = pe.gp.GPClassification(X, Y, length_scale=0.5, amplitude=2.0).prior_covariance

    def function(x):
        return 4.0 * np.exp(-0.5 * ((x - x.T) / 0.5) ** 2)

    called = pe.gp.GPClassification(X, Y, covariance=function).prior_covariance
    given = pe.gp.GPClassification(None, Y, covariance=named).prior_covariance
    np.testing.assert_allclose(called, named, rtol=1e-12)
    np.testing.assert_array_equal(given, named)


def test_jitter_is_added_where_it_is_named_only():
    """A singular covariance stays singular unless the user says otherwise."""
    x = np.array([0.0, 0.0, 1.0, 1.0])
    assert pe.gp.GPClassification(x, Y).prior_covariance[0, 0] == 1.0
    with pytest.raises(ValueError, match="jitter"):
        pe.gp.GPClassification(x, Y, representation="latent")
    jittered = pe.gp.GPClassification(x, Y, representation="latent", jitter=0.1)
    np.testing.assert_allclose(jittered.prior_covariance.diagonal(), 1.1)
