"""The method that has posterior draws."""

import pytest
import xarray as xr

import pm_evidence as pe
from pm_evidence.samplers.bridge import Bridge


def test_it_keeps_the_draws():
    """Their posterior comes back with the evidence."""
    idata = xr.DataTree()
    chosen = Bridge(idata)
    assert chosen.idata is idata and chosen.name == "bridge_sampling"
    assert chosen.n_seeds is None and isinstance(chosen.annealer, pe.SMC)
    assert isinstance(chosen.likelihood_moves, pe.PseudoMarginal)


@pytest.mark.parametrize("wrong", [None, 3, "posterior", {"posterior": []}])
def test_other_things_are_refused(wrong):
    """A class without draws as well: ``method=pe.Bridge``."""
    with pytest.raises(TypeError, match="idata must be a DataTree with posterior draws, got"):
        Bridge(wrong)
