"""What users hand to state-space models, random effects and native targets is refused by name."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_evidence as pe
from pm_evidence.targets.estimated.user_input import given_value, model_of

Y = np.linspace(-1.0, 1.0, 6)


def normal(*arguments):
    return pm.Normal.dist(sum(arguments), 1.0)


STATE_SPACE = {
    "name": "y",
    "init": lambda: pm.Normal.dist(0.0, 1.0),
    "transition": lambda h, t: pm.Normal.dist(h, 1.0),
    "emission": lambda h, t: pm.Normal.dist(h, 1.0),
    "observed": Y,
}
RANDOM_EFFECTS = {
    "name": "y",
    "effects": lambda: pm.Normal.dist(0.0, 1.0),
    "emission": lambda u, i: pm.Normal.dist(u, 1.0),
    "groups": [0, 0, 1, 1, 2, 2],
    "observed": Y,
}
WRONG_FOR_BOTH = [
    ("name", None, r"name must be a string, got None"),
    ("name", " ", r"name must not be empty"),
    ("name", "mu", r"name must be new in the model, got 'mu', which is taken"),
    ("observed", [[1.0], [1.0, 2.0]], r"observed( of 'y')? must be an array, got "),
    ("observed", np.array(["a"] * 6), r"observed( of 'y')? must be num"),
    ("observed", np.array([None] * 6), r"observed( of 'y')? must be num"),
    ("observed", np.ma.masked_array(["a"] * 6, [True] + [False] * 5), r"observed( of 'y')? must"),
    ("observed", None, r"observed( of 'y')? must be num"),
    ("emission", lambda: pm.Normal.dist(0, 1), r"emission must be a function of 2 arguments"),
    ("emission", print, r"emission must return a distribution, got NoneType"),
    ("n_particles", np.ones(2), r"n_particles must be a whole number"),
    ("n_particles", 10**13, r"n_particles must be at most 1,000,000"),
    ("dims", 5, r"dims must be a name or a tuple of names, got 5"),
    ("dims", "nowhere", r"dims must name dimensions of the model, \[\], got 'nowhere'"),
    ("model", "mine", r"model must be of type Model, got 'mine'"),
]


@pytest.mark.parametrize(("parameter", "value", "message"), WRONG_FOR_BOTH)
@pytest.mark.parametrize(
    ("add", "good"),
    [(pe.StateSpace, STATE_SPACE), (pe.RandomEffects, RANDOM_EFFECTS)],
    ids=["state space", "random effects"],
)
def test_estimated_variables(add, good, parameter, value, message):
    """Refused where it is written, and nothing of it stays in the model."""
    with pm.Model() as model:
        pm.Normal("mu", 0, 1)
        with pytest.raises((ValueError, TypeError), match=f"^{message}"):
            add(**{**good, parameter: value})
    assert list(model.named_vars) == ["mu"]


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("init", lambda h: h, r"init must be a function of 0 arguments"),
        ("ess", np.ones(2), r"ess must lie between 0 and 1, got an array"),
        ("ess", True, r"ess must lie between 0 and 1, got True"),
        ("filter", None, r"filter must be one of"),
    ],
)
def test_state_space(parameter, value, message):
    with pm.Model(), pytest.raises((ValueError, TypeError), match=f"^{message}"):
        pe.StateSpace(**{**STATE_SPACE, parameter: value})


def test_a_look_ahead_of_other_arguments():
    with pm.Model(), pytest.raises(TypeError, match=r"^look_ahead must be a function of 3 arg"):
        pe.StateSpace(**STATE_SPACE, filter="auxiliary", look_ahead=lambda h: h)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (None, r"groups must give the group of each of the 6 observations"),
        ([[0], [0, 1]], r"groups must be an array"),
        (np.zeros(6, complex), r"groups must be whole numbers or labels, got dtype complex128"),
        ([0, 1], r"groups must give the group of each of the 6"),
    ],
)
def test_groups(groups, message):
    with pm.Model(), pytest.raises(ValueError, match=f"^{message}"):
        pe.RandomEffects(**{**RANDOM_EFFECTS, "groups": groups})


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (pe.Ising, {"shape": 10**13}, r"shape must be at most 100,000,000, got 10000000000000"),
        (pe.Ising, {"shape": (10**6, 10**6)}, r"shape must make at most 100,000,000 sites, got 1e"),
        (pe.Ising, {"shape": "ab"}, r"shape must be a whole number"),
        (pe.Ising, {"shape": (2, 2, 2, 2)}, r"shape must have two or three sizes"),
        (pe.Ising, {"shape": np.array([4, 4])}, r"shape must be a whole number .*got an array"),
        (pe.Ising, {"coupling": 1e300}, r"coupling must be at most 1e\+06 in size"),
        (pe.Ising, {"coupling": np.complex128(1)}, r"coupling must be a finite number"),
        (pe.Ising, {"field": -1e9}, r"field must be at most"),
        (pe.Ising, {"periodic": 1}, r"periodic must be True or False, got 1"),
        (pe.Potts, {"q": 10**13}, r"q must be at most 250, got 10000000000000"),
        (pe.Potts, {"q": 2.0}, r"q must be a whole number"),
        (pe.Gaussian, {"sd": np.complex128(1)}, r"sd must be a finite number above 0"),
        (pe.Gaussian, {"sd": 1e300}, r"sd must have a square that a float can hold, .*got 1e\+300"),
        (pe.Gaussian, {"start_sd": 1e-300}, r"start_sd must have a square that a float can hold"),
        (pe.Gaussian, {"mean": -1e300}, r"mean must have a square that a float can hold"),
        (pe.Gaussian, {"mean": True}, r"mean must be a finite number, got True"),
        (pe.Gaussian, {"tau": (0.1, np.complex128(1))}, r"tau must be a number from 0 to below 1"),
        (pe.Gaussian, {"tau": np.ones(2)}, r"tau must be a number from 0 to below 1.*an array"),
    ],
)
def test_native_targets(target, options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        target(**options)


@pytest.mark.parametrize(
    ("target", "states"),
    [
        (pe.Ising(4), np.full((3, 4, 4), "a")),
        (pe.Ising(4), np.full((3, 4, 4), np.nan)),
        (pe.Ising(4), np.full((3, 4, 4), None)),
        (pe.Ising(4), np.empty((0, 4, 4))),
        (pe.Ising(4), np.float64(1.0)),
        (pe.Potts(4, q=3), np.full((3, 4, 4), 3)),
        (pe.Potts(4, q=3), np.full((3, 4, 4), 1j)),
        (pe.Gaussian(), np.array(["a"])),
        (pe.Gaussian(), []),
    ],
)
def test_states_of_native_targets(target, states):
    """Compiled loops index by colours, and count on spins of -1 and 1."""
    with pytest.raises(ValueError, match=r"^starts must"):
        target.check(states, "starts")


@pytest.mark.parametrize(
    ("sampler", "options", "message"),
    [
        (pe.SMC, {"islands": 10**13}, r"islands must be at most 100,000"),
        (pe.SMC, {"chain_length": 10**13}, r"chain_length must be at most"),
        (pe.SMC, {"resample_below": np.ones(2)}, r"resample_below must lie between 0 and 1"),
        (pe.AIS, {"n_stages": 10**13}, r"n_stages must be at most 1,000,000"),
        (pe.AISEL, {"resample_below": "x"}, r"resample_below must lie between 0 and 1"),
        (pe.AISEL, {"resample_below": 0.5}, r"resample_below needs chain_length=1, got 5"),
        (pe.AISEL, {"renewal": np.ones(2)}, r"renewal must lie between 0 and 1"),
        (pe.AISEL, {"burn_in": 10**13}, r"burn_in must be at most"),
    ],
)
def test_samplers(sampler, options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        sampler(**options)


# --- the checks themselves ---


def test_values_of_arrays_constants_data_and_graphs():
    with pm.Model():
        data = pm.Data("data", [1.0, 2.0])
    for given in ([1.0, 2.0], pt.constant([1.0, 2.0]), data, pt.arange(2.0) + 1.0):
        np.testing.assert_array_equal(given_value("observed", given), [1.0, 2.0])
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    np.testing.assert_array_equal(given_value("observed", masked), [1.0, 2.0])


def test_a_name_that_is_taken():
    with pm.Model() as model:
        pm.Normal("x")
    with pytest.raises(ValueError, match="name must be new in the model, got 'x'"):
        model_of("x", model, None)
    assert model_of("y", model, None) is model
