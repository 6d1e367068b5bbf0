"""A pool of processes, for blocks and for runs."""

import pytest

from tests.execution.tasks import process


@pytest.fixture(scope="module")
def pool():
    with process() as executor:
        yield executor
