"""Settings that kernels share which visit the parts of a state in an order."""

import pytest

from pm_evidence.families.sweep_settings import SweepSettings


def test_a_reversal_reverses_the_order_only():
    settings = SweepSettings(3)
    assert settings.reversed() == SweepSettings(3, backwards=True)
    assert settings.reversed().reversed() == settings
    assert settings.settings() == {"n_sweeps": 3.0}


@pytest.mark.parametrize("wrong", [{"n_sweeps": 0}, {"n_sweeps": 2.5}, {"backwards": "no"}])
def test_settings_that_cannot_be_used(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        SweepSettings(**wrong)
