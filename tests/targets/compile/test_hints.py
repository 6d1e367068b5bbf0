"""What users are told about slow models."""

import logging

import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py

from pm_evidence.targets.compile.hints import offer_jax


@pytest.fixture
def heard(caplog):
    with caplog.at_level(logging.INFO, logger="pymc.pm_evidence"):
        yield caplog


def test_an_operation_of_pytensor_is_offered_to_jax(heard):
    x = pt.dvector("x")
    offer_jax(("Cumsum{axis=0}",), [pt.cumsum(x, axis=0).sum()], 0.0)
    (record,) = heard.records
    assert record.levelname == "WARNING"
    assert "Cumsum{axis=0}" in record.getMessage() and "backend='jax'" in record.getMessage()


def test_an_operation_of_the_user_is_not(heard):
    """JAX has no code of it, and the remedy would lead to an error."""

    @wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])
    def black_box(x):
        return x

    offer_jax((str(black_box),), [black_box(pt.dscalar("x"))], 100.0)
    (record,) = heard.records
    assert "slow" in record.getMessage() and "jax" not in record.getMessage()


def test_slow_compilation_is_offered_to_jax(heard):
    offer_jax((), [], 20.0)
    assert not heard.records
    offer_jax((), [], 45.4)
    (record,) = heard.records
    assert "45 s" in record.getMessage() and "backend='jax'" in record.getMessage()
