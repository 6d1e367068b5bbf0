"""Where draws come from: their own origin, or batches of chains of other samplers."""

import numpy as np
import pytest
import xarray as xr

from pm_evidence.results.elpd import drawn_with_origin, origin_of
from tests.results.test_average import DRAWS, result


def test_draws_of_this_package_have_their_own_origin():
    dt = result(-1.0, mu=np.zeros(DRAWS))
    assert origin_of(dt, "dt").tolist() == list(range(DRAWS))
    posterior, origin = drawn_with_origin(dt, "dt")
    assert list(posterior.data_vars) == ["mu"] and origin.sizes == {"chain": 2, "draw": DRAWS // 2}


def test_chains_of_other_samplers_are_cut_into_batches():
    """Taken as independent, neighbouring draws would make errors too small."""
    posterior = xr.Dataset({"mu": (("chain", "draw"), np.zeros((4, 100)))})
    found = origin_of(xr.DataTree.from_dict({"posterior": posterior}), "dt")
    assert np.bincount(found).tolist() == [25] * 16
    assert (np.diff(found) >= 0).all()
    single = xr.Dataset({"mu": (("chain", "draw"), np.zeros((20, 5)))})
    assert len(set(origin_of(xr.DataTree.from_dict({"posterior": single}), "dt"))) == 20


def test_a_missing_origin_is_named_with_the_argument():
    dt = result(-1.0, mu=np.zeros(DRAWS)).drop_nodes("sample_stats")
    with pytest.raises(ValueError, match=r"result must hold the origin of its posterior draws"):
        origin_of(dt, "result")
    with pytest.raises(ValueError, match="result must have the group 'posterior'"):
        origin_of(xr.DataTree(), "result")
