"""Errors of users' code come through compiled code as they were raised."""

import warnings

import pytest

from pm_evidence.core.exceptions import (
    EvidenceWarning,
    exceptions_of_users,
    warn,
)


def test_a_warning_names_the_line_that_called():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn("the error is not to be trusted")
    assert [str(each.message) for each in caught] == ["the error is not to be trusted"]
    assert caught[0].category is EvidenceWarning and caught[0].filename == __file__


def wrapped(cause, depth):
    """Raise as the interpreter does where compiled code left an exception behind."""
    for _ in range(depth):
        error = SystemError("returned a result with an exception set")
        error.__cause__ = cause
        cause = error
    raise cause


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_cause_is_raised_in_place_of_system_errors(depth):
    original = ZeroDivisionError("in the user's operation")
    with pytest.raises(ZeroDivisionError) as raised, exceptions_of_users():
        wrapped(original, depth)
    assert raised.value is original and original.__suppress_context__
    assert length_of_chain(original) == 2


def length_of_chain(error):
    """Number of errors that lead to each other; one that leads back to itself would hang."""
    met = []
    while error is not None:
        assert error not in met
        met.append(error)
        error = error.__cause__ or error.__context__
    return len(met)


def test_other_errors_pass_as_they_are():
    with pytest.raises(SystemError, match="of the interpreter itself"), exceptions_of_users():
        raise SystemError("of the interpreter itself")
    with pytest.raises(KeyError), exceptions_of_users():
        raise KeyError("x")
