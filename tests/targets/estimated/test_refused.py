"""What users hand to state-space models, random effects and native targets is refused by name."""

import re
from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import BlockModelAccessError

import pm_evidence as pe
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.estimated.random_effects import GroupedData

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

Y = np.linspace(-1.0, 1.0, 6)
X = np.linspace(0.0, 1.0, 6)


def check_refused(function, errors, cases):
    """Each case is a dict of arguments and the beginning of the message."""
    for arguments, message in cases:
        try:
            function(**arguments)
        except errors as error:
            assert re.match(message, str(error)), f"{arguments}: {error}"
        else:
            pytest.fail(f"not refused: {arguments}")


# --- likelihoods that are estimated ---


def normal(*arguments):
    return pm.Normal.dist(sum(arguments), 1.0)


def state_space(**changes):
    arguments = {
        "name": "y",
        "init": lambda: pm.Normal.dist(0.0, 1.0),
        "transition": lambda h, t: pm.Normal.dist(h, 1.0),
        "emission": lambda h, t: pm.Normal.dist(h, 1.0),
        "observed": Y,
    }
    return pe.StateSpace(**{**arguments, **changes})


def random_effects(**changes):
    arguments = {
        "name": "y",
        "effects": lambda: pm.Normal.dist(0.0, 1.0),
        "emission": lambda u, i: pm.Normal.dist(u, 1.0),
        "groups": [0, 0, 1, 1, 2, 2],
        "observed": Y,
    }
    return pe.RandomEffects(**{**arguments, **changes})


IN_BOTH = [
    ("name", None, r"name must be a string, got None"),
    ("name", " ", r"name must not be empty"),
    ("name", "mu", r"name must be new in the model, got 'mu', which is taken"),
    ("observed", [[1.0], [1.0, 2.0]], r"observed( of 'y')? must be an array, got "),
    ("observed", np.array(["a"] * 6), r"observed( of 'y')? must be num"),
    ("observed", np.array([None] * 6), r"observed( of 'y')? must be num"),
    ("observed", np.ma.masked_array(["a"] * 6, [True] + [False] * 5), r"observed( of 'y')? must"),
    ("observed", None, r"observed( of 'y')? must be num"),
    ("observed", [1.0, np.inf, *Y[2:]], r"observed( of 'y')? must be finite"),
    ("emission", lambda: pm.Normal.dist(0, 1), r"emission must be a function of 2 arguments"),
    ("emission", print, r"emission must return a distribution, got NoneType"),
    ("emission", lambda *_: pm.Normal("z"), r"emission must return a distribution without a name"),
    ("n_particles", np.ones(2), r"n_particles must be a whole number"),
    ("n_particles", 1, r"n_particles must be a whole number of at least 2"),
    ("n_particles", 10**13, r"n_particles must be at most 1,000,000"),
    ("dims", 5, r"dims must be a name or a tuple of names, got 5"),
    ("dims", "nowhere", r"dims must name dimensions of the model, \[\], got 'nowhere'"),
    ("model", "mine", r"model must be of type Model, got 'mine'"),
]
IN_STATE_SPACE = [
    ({"init": pm.Normal.dist(0, 1)}, "init must be a function"),
    ({"init": lambda h: h}, "init must be a function of 0 arguments"),
    ({"transition": lambda h, t: h + 1}, "transition must return a distribution"),
    (
        {"init": lambda: pm.Normal.dist(0, 1, shape=(2, 2))},
        "init must return a scalar or a vector",
    ),
    (
        {"transition": lambda h, t: pm.Normal.dist(h, 1, shape=2)},
        r"transition must return a distribution of the state, of shape \(\)",
    ),
    (
        {"emission": lambda h, t: pm.Normal.dist(pt.zeros(t), 1)},
        "emission must return a distribution of one shape",
    ),
    (
        {"transition": lambda h, t: pm.Poisson.dist(1)},
        "init and transition must both be continuous or both be discrete",
    ),
    (
        {"emission": lambda h, t: pm.Normal.dist(h, 1, shape=3)},
        "emission must return the distribution of one row of observed",
    ),
    ({"observed": np.zeros((4, 2))}, r"emission must .* of shape \(2,\), got .*; pass shape=2"),
    (
        {
            "emission": lambda h, t: pm.MvNormal.dist(h * np.ones(2), np.eye(2)),
            "observed": [[0.0, np.nan], [0.0, 0.0]],
        },
        "a row of observed may be missing in part only",
    ),
    (
        {"emission": lambda h, t: pm.Normal.dist(pm.Normal.dist(h, 1), 1)},
        "emission .* is itself drawn",
    ),
    ({"observed": [0.0, np.inf]}, "observed must be finite.*time 1"),
    ({"observed": [np.nan]}, "observed must have values that are not missing, got only NaN"),
    ({"observed": []}, "observed must have .* at least one entry"),
    ({"observed": np.zeros((2, 2, 2))}, "observed must have shape"),
    ({"filter": "kalman"}, "filter must be one of"),
    ({"filter": None}, "filter must be one of"),
    ({"filter": "guided"}, 'filter="guided" needs a proposal'),
    (
        {"proposal": lambda h, t, y: pm.Normal.dist(h, 1)},
        'proposal is for filter="guided"',
    ),
    (
        {"filter": "auxiliary", "look_ahead": lambda h, t, y: 1.0},
        "look_ahead must return a scalar",
    ),
    (
        {"filter": "auxiliary", "look_ahead": lambda h: h},
        "look_ahead must be a function of 3 arg",
    ),
    ({"resampling": "none"}, "resampling must be one of"),
    ({"ess": 2.0}, "ess must lie between 0 and 1"),
    ({"ess": np.ones(2)}, "ess must lie between 0 and 1, got an array"),
    ({"ess": True}, "ess must lie between 0 and 1, got True"),
]
IN_RANDOM_EFFECTS = [
    ({"effects": 3}, "effects must be a function"),
    ({"effects": lambda: pt.zeros(2)}, "effects must return a distribution"),
    ({"effects": lambda: pm.Poisson.dist(1)}, "effects must be continuous"),
    ({"emission": lambda u, i: pm.Normal.dist(X[i], 1)}, "emission must depend on the effects"),
    ({"emission": lambda u, i: pm.Normal.dist(u + np.ones(4), 1)}, "(?s).*(shape|broadcast)"),
    (
        {"emission": lambda u, i: pm.Normal.dist(u[0], 1)},
        "emission must return the distribution of the obs",
    ),
    (
        {"emission": lambda u, i: pm.Normal.dist(u + pm.Normal.dist(0, 1), 1)},
        "effects and emission must be .* no name in the model",
    ),
    ({"groups": None}, "groups must give the group of each of the 6 observations"),
    ({"groups": [0, 1]}, "groups must give the group of each of the 6"),
    ({"groups": [[0], [0, 1]]}, "groups must be an array"),
    (
        {"groups": np.zeros(6, complex)},
        "groups must be whole numbers or labels, got dtype complex128",
    ),
    ({"groups": [0, 0.5, 1, 1, 2, 2]}, "groups must be whole numbers or labels"),
    (
        {"groups": ["a", None, "b", "b", "b", "b"]},
        "groups must be .* every observation needs a group",
    ),
    ({"observed": [*Y[:4], np.nan, np.nan]}, ".*1 of 3 have none, the first 2"),
    ({"observed": [[1.0, np.nan], *np.ones((5, 2))]}, ".*missing as a whole"),
    ({"draws": "sobol"}, "draws must be one of"),
]


def test_estimated_variables():
    """Refused where it is written, and nothing of it stays in the model."""
    errors = (ValueError, TypeError, BlockModelAccessError, ModelError)
    with pm.Model() as model:
        pm.Normal("mu", 0, 1)
        for add, (parameter, value, message) in product((state_space, random_effects), IN_BOTH):
            check_refused(add, errors, [({parameter: value}, message)])
            assert list(model.named_vars) == ["mu"], (add, parameter, value)
        check_refused(state_space, errors, IN_STATE_SPACE)
        check_refused(random_effects, errors, IN_RANDOM_EFFECTS)
    assert list(model.named_vars) == ["mu"]


# --- native targets and samplers ---

TARGETS = [
    (
        pe.lattices.Ising,
        {"shape": 10**13},
        r"shape must be at most 100,000,000, got 10000000000000",
    ),
    (
        pe.lattices.Ising,
        {"shape": (10**6, 10**6)},
        r"shape must make at most 100,000,000 sites, got 1e",
    ),
    (pe.lattices.Ising, {"shape": "ab"}, r"shape must be a whole number"),
    (pe.lattices.Ising, {"shape": (2, 2, 2, 2)}, r"shape must have two or three sizes"),
    (
        pe.lattices.Ising,
        {"shape": np.array([4, 4])},
        r"shape must be a whole number .*got an array",
    ),
    (pe.lattices.Ising, {"coupling": 1e300}, r"coupling must be at most 1e\+06 in size"),
    (pe.lattices.Ising, {"coupling": np.complex128(1)}, r"coupling must be a finite number"),
    (pe.lattices.Ising, {"field": -1e9}, r"field must be at most"),
    (pe.lattices.Potts, {"q": 2.0}, r"q must be a whole number"),
    (pe.mixtures.Gaussian, {"sd": np.complex128(1)}, r"sd must be a finite number above 0"),
    (
        pe.mixtures.Gaussian,
        {"sd": 1e300},
        r"sd must have a square that a float can hold, .*got 1e\+300",
    ),
    (
        pe.mixtures.Gaussian,
        {"start_sd": 1e-300},
        r"start_sd must have a square that a float can hold",
    ),
    (pe.mixtures.Gaussian, {"mean": -1e300}, r"mean must have a square that a float can hold"),
    (pe.mixtures.Gaussian, {"mean": True}, r"mean must be a finite number, got True"),
    (
        pe.mixtures.Gaussian,
        {"tau": (0.1, np.complex128(1))},
        r"tau must be a number from 0 to below 1",
    ),
    (
        pe.mixtures.Gaussian,
        {"tau": np.ones(2)},
        r"tau must be a number from 0 to below 1.*an array",
    ),
]
SAMPLERS = [
    (pe.methods.SMC, {"islands": 10**13}, r"islands must be at most 100,000"),
    (pe.methods.SMC, {"chain_length": 10**13}, r"chain_length must be at most"),
    (pe.methods.SMC, {"resample_below": np.ones(2)}, r"resample_below must lie between 0 and 1"),
    (pe.methods.AIS, {"n_stages": 10**13}, r"n_stages must be at most 1,000,000"),
    (pe.methods.AISEL, {"resample_below": "x"}, r"resample_below must lie between 0 and 1"),
    (pe.methods.AISEL, {"resample_below": 0.5}, r"resample_below needs chain_length=1, got 5"),
    (pe.methods.AISEL, {"renewal": np.ones(2)}, r"renewal must lie between 0 and 1"),
    (pe.methods.AISEL, {"burn_in": 10**13}, r"burn_in must be at most"),
]


def test_native_targets_and_samplers():
    for made, options, message in (*TARGETS, *SAMPLERS):
        check_refused(made, ValueError, [(options, message)])


def test_states_of_native_targets():
    """Compiled loops index by colours, and count on spins of -1 and 1."""
    ising, potts, gaussian = pe.lattices.Ising(4), pe.lattices.Potts(4, q=3), pe.mixtures.Gaussian()
    for target, states in [
        (ising, np.full((3, 4, 4), "a")),
        (ising, np.full((3, 4, 4), np.nan)),
        (ising, np.full((3, 4, 4), None)),
        (ising, np.empty((0, 4, 4))),
        (ising, np.float64(1.0)),
        (potts, np.full((3, 4, 4), 3)),
        (potts, np.full((3, 4, 4), 1j)),
        (gaussian, np.array(["a"])),
        (gaussian, []),
    ]:
        arguments = {"states": states}
        check_refused(
            lambda states, target=target: target.check(states, "starts"),
            ValueError,
            [(arguments, "starts must")],
        )


# --- data as they are given ---


def test_labels_are_sorted_and_missing_rows_left_out():
    data = GroupedData.from_user("y", [1.0, np.nan, 3.0, 4.0], ["b", "a", "a", "b"])
    assert data.labels.tolist() == ["a", "b"] and data.n_groups == 2
    assert data.index.tolist() == [1, 0, 0, 1] and data.kept.tolist() == [0, 2, 3]
    masked = np.ma.masked_array([1, 2, 3, 4], [0, 1, 0, 0])
    again = GroupedData.from_user("y", masked, ["b", "a", "a", "b"])
    assert again.kept.tolist() == [0, 2, 3]


def test_new_data_may_differ_in_values_only():
    """Another row that is missing would need another graph."""
    data = GroupedData.from_user("y", [1.0, np.nan, 3.0], [0, 0, 1])
    np.testing.assert_array_equal(data.without_missing("y", np.array([5.0, np.nan, 6.0])), [5, 6])
    for other in ([5.0, 1.0, 6.0], [5.0, np.nan, 6.0, 7.0]):
        with pytest.raises(ModelError, match="may change in their values only"):
            data.without_missing("y", np.array(other))
