"""Fingerprints: equal exactly when the observed data are."""

import numpy as np

from pm_evidence.results import fingerprint

OBSERVED = {"y": np.array([1.5, np.nan, 3.25]), "z": np.array([[1, 2], [3, 4]])}


def test_fingerprint_sees_only_the_data():
    for what, same in {
        "order": {"z": OBSERVED["z"], "y": OBSERVED["y"]},
        "names": {"a": OBSERVED["y"], "b": OBSERVED["z"]},
        "dtype": {"y": OBSERVED["y"], "z": OBSERVED["z"].astype(np.int8)},
        "mask": {"y": np.ma.masked_array([1.5, 7.0, 3.25], [0, 1, 0]), "z": OBSERVED["z"]},
        "bits": {"y": np.array([1.5, -np.nan, 3.25]), "z": np.asfortranarray(OBSERVED["z"])},
        "no entries": {**OBSERVED, "nothing": np.empty((0, 3))},
    }.items():
        assert fingerprint(same) == fingerprint(OBSERVED), what


def test_fingerprint_sees_every_difference_in_the_data():
    for what, other in {
        "one array less": {"y": OBSERVED["y"]},
        "the same array twice": {**OBSERVED, "y2": OBSERVED["y"]},
        "other order of entries": {**OBSERVED, "y": OBSERVED["y"][::-1]},
        "missing is not zero": {**OBSERVED, "y": np.array([1.5, 0.0, 3.25])},
        "other shape": {**OBSERVED, "z": OBSERVED["z"].ravel()},
        "last bit": {**OBSERVED, "z": OBSERVED["z"] + 1e-15},
    }.items():
        assert fingerprint(other) != fingerprint(OBSERVED), what


def test_fingerprint_does_not_change_between_releases():
    """Files of today must be comparable with files of tomorrow."""
    expected = "7c8bec59b04862fe76a59ff8ebd12757e3e1362e0f88aee3aa3e3a65e65418e4"
    assert fingerprint({"y": np.array([1.0, 2.0, 3.0]), "k": np.array([[True]])}) == expected
