"""Elliptical slices leave the path invariant."""

from dataclasses import dataclass

import pytest

from pm_evidence.families.gp_classification.elliptical import EllipticalSlice
from pm_evidence.testing import check_kernel
from tests.families.gp_classification.latent import exact, problem


@pytest.mark.parametrize("reference", ["prior", "ep"])
@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_it_is_a_kernel(reference, beta):
    """Invariance, reversal and streams, by the checks that users have for theirs."""
    path = problem(reference)
    check_kernel(EllipticalSlice(n_moves=2), path, exact(path, beta), beta)


@dataclass(frozen=True)
class Misled(EllipticalSlice):
    """A planted error: the slices are those of another inverse temperature."""

    def advance(self, path, state, beta, chains):
        return super().advance(path, state, 0.5 * beta, chains)


def test_a_planted_error_is_found():
    path = problem("prior")
    with pytest.raises(AssertionError):
        check_kernel(Misled(), path, exact(path, 1.0), 1.0)


def test_settings_and_bad_arguments():
    assert EllipticalSlice(3).settings() == {"n_moves": 3.0}
    with pytest.raises(ValueError, match="n_moves"):
        EllipticalSlice(0)
