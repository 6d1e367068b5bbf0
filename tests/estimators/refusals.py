"""What functions refuse, as tables of cases in one test for each function."""

import re

import pytest


def check_refused(function, cases, kind=ValueError):
    """Assert that a function refuses all cases, each with a message that says what is wrong.

    A case is a pair of the arguments, a tuple or a dict, and a pattern of the message.
    """
    for given, message in cases:
        positional, named = ((), given) if isinstance(given, dict) else (given, {})
        try:
            function(*positional, **named)
        except kind as error:
            assert re.search(message, str(error)), f"{given} must say {message}, got {error}"
        else:
            pytest.fail(f"{given} must be refused: {message}")
