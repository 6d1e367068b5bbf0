"""A change of the code's shape leaves every number as it is; a change of numbers is looked at.

``make golden WRITE=1`` stores new numbers, and their diff is a part of the change.
"""

import pytest

from tests.golden.compute import computed, contradicted, made_with, moved, read


def test_numbers_have_not_moved():
    """With the versions that they were made with, numbers are equal to the last bit.

    Other versions may round differently. Estimates must then agree within their errors.
    """
    facts, stored = read()
    found = computed()
    changes = moved(stored, found)
    if facts == made_with():
        assert not changes, "\n".join(changes)
    assert stored.keys() == found.keys()
    wrong = contradicted(stored, found)
    assert not wrong, "\n".join(wrong)
    if changes:
        pytest.skip(f"made with other versions, {len(changes)} of {len(found)} runs have moved")


def test_what_moved_is_said():
    """By name, with old and new values; NaN is no change."""
    before = {"a": {"smc": [1.0, 0.1, "ok"], "evaluations": 3}, "b": {"smc": [float("nan"), 0, ""]}}
    after = {"a": {"smc": [1.1, 0.1, "ok"], "evaluations": 3}, "b": {"smc": [float("nan"), 0, ""]}}
    assert moved(before, before) == []
    assert moved(before, after) == ['a: smc [1.0, 0.1, "ok"] -> [1.1, 0.1, "ok"]']
    assert moved(before, {"a": before["a"]}) == ["b: gone"]
    assert contradicted(before, after) == []
    after["a"]["smc"][0] = 2.0
    assert contradicted(before, after) == ['a: smc [1.0, 0.1, "ok"] -> [2.0, 0.1, "ok"]']
