"""Arrays that are none are refused by name, and not in the words of NumPy."""

from dataclasses import replace

import numpy as np
import pytest

from pm_evidence import LogEvidence, estimators
from tests.estimators.refusals import check_refused

GOOD = np.linspace(1.0, 2.0, 20)
EVIDENCE = LogEvidence(-1.0, 0.1, "bar")

WRONG_ARRAYS = {
    "none": None,
    "text": "abc",
    "texts": ["a", "b"],
    "complex": GOOD + 1j,
    "objects": np.array([1.0, None], dtype=object),
    "ragged": [[1.0], [1.0, 2.0]],
    "matrix": np.ones((3, 3)),
    "number": 1.0,
    "empty": [],
    "nan": [1.0, np.nan],
    "minus infinity": [1.0, -np.inf],
    "masked": np.ma.masked_array([1.0, 2.0], [False, True]),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "truth values": [True, False],
    "class": np.ndarray,
}
RUNG = np.arange(20) % 3
LADDER = {"beta": np.array([0.0, 0.5, 1.0]), "energy": GOOD}
ON_LADDER = {**LADDER, "rung": RUNG}
WEIGHTED = {**LADDER, "log_z": np.zeros(3)}
ARRAYS = {
    "bar": {"work_forward": GOOD, "work_reverse": GOOD - 1.0},
    "bridge": {"works": [(GOOD, GOOD - 1.0)] * 2},
    "cumulant": {"work_forward": GOOD, "work_reverse": GOOD - 1.0},
    "cumulant_forward": {"work": GOOD},
    "cumulant_reverse": {"work": GOOD},
    "effective_sample_size": {"work": GOOD},
    "histogram": {"work_forward": GOOD, "work_reverse": GOOD - 1.0},
    "histogram_draws": {"work_forward": GOOD, "work_reverse": GOOD - 1.0},
    "histogram_posterior": {"work_forward": GOOD, "work_reverse": GOOD - 1.0},
    "importance": {"work": GOOD},
    "jarzynski": {"work": GOOD},
    "jarzynski_reverse": {"work": GOOD},
    "lower_bound": {"work": GOOD},
    "upper_bound": {"work": GOOD},
    "power_posterior": {"beta": np.linspace(0, 1, 20), "energy": np.ones((2, 20))},
    "single_run": {"work": GOOD, "relative_variance": np.ones(20)},
    "work_density": {"work_forward": GOOD, "work_reverse": GOOD - 1.0},
    "chained_bar": ON_LADDER,
    "mbar": ON_LADDER,
    "mbar_curve": ON_LADDER,
    "multistate": {"potential": np.stack([GOOD, GOOD + 1.0]), "counts": [10, 10]},
    "multistate_curve": {"potential": np.stack([GOOD, GOOD + 1.0]), "counts": [10, 10]},
    "rts": WEIGHTED,
    "rts_combined": {"beta": LADDER["beta"], "rounds": [(GOOD, np.zeros(3))]},
    "rts_combined_curve": {"beta": LADDER["beta"], "rounds": [(GOOD, np.zeros(3))]},
    "rts_curve": WEIGHTED,
    "stepping_stone": ON_LADDER,
    "ti": ON_LADDER,
    "ti_rb": WEIGHTED,
    "ts": {"rung": RUNG, "log_z": np.zeros(3)},
}
# Energies of chains are a matrix.
OF_CHAINS = {(name, "energy") for name in ("rts", "rts_curve", "ti_rb")}
OPTIONS = {
    "bar": ["forward_blocks", "reverse_blocks"],
    "cumulant": ["reverse_blocks"],
    "cumulant_forward": ["blocks"],
    "histogram": ["forward_blocks"],
    "jarzynski": ["blocks"],
    "jarzynski_reverse": ["blocks"],
    "lower_bound": ["blocks"],
    "upper_bound": ["blocks"],
    "power_posterior": ["variance"],
    **{k: ["groups"] for k in ("chained_bar", "mbar", "multistate", "rts_combined", "ti", "ts")},
    "rts": ["groups", "prior"],
    "ti_rb": ["prior"],
}


@pytest.mark.parametrize("name", ARRAYS)
def test_wrong_arrays_are_refused_by_name(name):
    """Whatever is wrong with an array, the message begins with the parameter's name."""
    estimate, good = getattr(estimators, name), ARRAYS[name]
    cases = []
    for parameter in good:
        wrong = dict(WRONG_ARRAYS)
        if (name, parameter) in OF_CHAINS:
            assert estimate(**{**good, parameter: wrong.pop("matrix")})
        message = rf"^{parameter}(\[0\])* must"
        cases += [({**good, parameter: array}, message) for array in wrong.values()]
    for parameter in OPTIONS.get(name, ()):
        wrong = ("text", "ragged", "matrix", "masked", "class", "objects")
        cases += [({**good, parameter: WRONG_ARRAYS[k]}, rf"^{parameter} must") for k in wrong]
    check_refused(estimate, cases)


def test_every_estimator_is_here():
    """A new estimator has to be checked, too."""
    others = {"difference", "optimal_allocation", "recommend"}
    assert set(ARRAYS) | others == set(estimators.__all__)


def test_other_arguments():
    """They would be found in the middle of the computation, or change the result without a word."""
    for name, options, message in [
        ("power_posterior", {"beta": np.linspace(1, 0, 20)}, "beta must rise"),
        ("power_posterior", {"variance": np.full((2, 20), -1.0)}, "variance must be at least 0"),
        ("power_posterior", {"energy": np.ones((0, 20))}, r"energy must have shape \(n_islands"),
        ("histogram_draws", {"draws": 10**13}, "draws must be at most"),
        ("bar", {"name": None}, "name must be a string"),
        ("jarzynski", {"name": 5}, "name must be a string"),
        ("upper_bound", {"exact": "yes"}, "exact must be True or False"),
        ("bridge", {"works": [(GOOD,)]}, r"works\[0\] must be a pair"),
    ]:
        given = {**ARRAYS[name], **options}
        check_refused(getattr(estimators, name), [(given, f"^{message}")], (ValueError, TypeError))


def test_what_is_no_estimate():
    with pytest.raises(TypeError, match=r"^subtrahend must be of type LogEvidence, got 1"):
        estimators.difference(EVIDENCE, 1.0)
    with pytest.raises(TypeError, match=r"^found\[1\] must be of type LogEvidence, got None"):
        estimators.recommend([replace(EVIDENCE, estimator="bridge"), None])
    with pytest.raises((TypeError, ValueError), match=r"^found"):
        estimators.recommend([])


def test_whatever_is_an_array_of_numbers_is_taken():
    """Lists, tuples and other widths of numbers are as good."""
    plain, blocks = np.arange(20.0), np.arange(20) // 2
    expected = estimators.jarzynski(plain, blocks=blocks)
    for given in (list(plain), tuple(plain), plain.astype(np.float32), plain.astype(np.int64)):
        labels = blocks.astype(np.uint8).tolist()
        assert estimators.jarzynski(given, blocks=labels) == expected
