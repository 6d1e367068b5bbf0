"""Options of methods and of learnt schedules that are refused when the object is made."""

import numpy as np
import pytest
import xarray as xr

import pm_evidence as pe
from pm_evidence.samplers.bridge import Bridge
from pm_evidence.samplers.planning import GMS13, VarOpt
from tests.estimators.refusals import check_refused

WHOLE = "must be a whole number of at least "
REFUSED = {
    pe.methods.SMC: [
        ({"islands": 1}, "islands"),
        ({"chain_length": 0}, "chain_length"),
        ({"n_stages": 0}, "n_stages"),
        ({"ess": 1.0}, "ess"),
        ({"ess": 0}, "ess"),
        ({"resampling": "bootstrap"}, "resampling"),
    ],
    pe.methods.AIS: [({"n_stages": 0}, "n_stages"), ({"ess": -0.5}, "ess")],
    pe.methods.AISEL: [
        ({"resampling": "bootstrap"}, "resampling"),
        ({"islands": 1}, "islands"),
        ({"chain_length": 0}, "chain_length"),
        ({"burn_in": -1}, "burn_in"),
        ({"ess": 1.0}, "ess"),
        ({"n_stages": 0}, "n_stages"),
        ({"renewal": 0.0}, "renewal"),
        ({"renewal": 1.5}, "renewal"),
    ],
    pe.methods.ARM: [
        ({"generate": "clone"}, "generate must be one of"),
        ({"decide": "me"}, "decide must be one of"),
        ({"ess_threshold": 1.0}, "ess_threshold must"),
        ({"allocation": "optimal"}, r"allocation must be 'equal' for pe\.methods\.ARM"),
    ],
    pe.methods.ResampleMove: [
        ({"allocation": "best"}, "allocation must be one of"),
        ({"resample_below": 1.5}, "resample_below must"),
    ],
    pe.methods.ParallelTempering: [
        ({"n_temperatures": 1}, f"^n_temperatures {WHOLE}2, got 1;"),
        ({"n_temperatures": 7.0}, f"^n_temperatures {WHOLE}"),
        ({"n_temperatures": 32_768}, "^n_temperatures must be at most 32,767, got 32768"),
        ({"ladders": 1}, f"^ladders {WHOLE}2, got 1; pass ladders=2"),
        ({"ladders": "many"}, f"^ladders {WHOLE}2, got 'many'"),
        ({"ladders": True}, f"^ladders {WHOLE}"),
        ({"ladders": 10**6}, "^ladders must be at most 100,000"),
    ],
    pe.methods.SimulatedTempering: [
        ({"n_temperatures": 1}, f"^n_temperatures {WHOLE}2, got 1;"),
        ({"n_temperatures": 32_768}, "^n_temperatures must be at most 32,767, got 32768"),
        ({"chains": 1}, f"^chains {WHOLE}2, got 1; pass chains=2"),
        ({"chains": 1.5}, f"^chains {WHOLE}"),
        ({"start": "cold"}, "^start must be one of 'annealing', 'equal', got 'c"),
        ({"start": None}, "^start must be one of"),
        ({"sweeps": 0}, f"^sweeps {WHOLE}1, got 0"),
        ({"sweeps": 10**7}, "^sweeps must be at most 1,000,000"),
        ({"rounds": 0}, f"^rounds {WHOLE}1, got 0"),
        ({"rounds": True}, f"^rounds {WHOLE}"),
        ({"prior": "normal"}, "^prior must be one of 'uniform', 'exponential', got 'normal'"),
        ({"prior": [1.0, -1.0]}, r"^prior must be positive and finite, got prior\[1\]=-1.0"),
        ({"prior": [1.0, np.nan]}, r"^prior must be positive and finite, got prior\[1\]=nan"),
        ({"prior": 2.0}, "^prior must be 'uniform', 'exponential' or a row of at least two"),
        ({"prior": [1] * 3, "n_temperatures": 4}, "^prior must have one weight for each of the"),
    ],
    VarOpt: [
        ({"largest_step": 0}, "largest_step must be a finite number above 0, got 0"),
        ({"largest_step": "small"}, "largest_step must be a finite number above 0"),
        ({"smoothing": -0.1}, "smoothing must be a number from 0 to below 1, got -0.1"),
        ({"smoothing": 1}, "smoothing must be a number from 0 to below 1, got 1"),
        ({"pilot_stages": 1}, f"pilot_stages {WHOLE}2, got 1"),
    ],
    GMS13: [
        ({"pilot_paths": 2.5}, f"pilot_paths {WHOLE}2, got 2.5"),
        ({"n_knots": 1}, f"n_knots {WHOLE}2, got 1"),
    ],
}


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_wrong_options_are_refused(kind):
    """A misspelt option would be taken for its default, and others end a run in the middle."""
    check_refused(kind, REFUSED[kind])


def test_a_bridge_needs_posterior_draws():
    """A class without draws is refused as well: ``method=pe.methods.Bridge``."""
    idata = xr.DataTree()
    chosen = Bridge(idata)
    assert chosen.idata is idata and chosen.name == "bridge_sampling"
    assert chosen.n_seeds is None and isinstance(chosen.annealer, pe.methods.SMC)
    assert isinstance(chosen.likelihood_moves, pe.kernels.PseudoMarginal)
    message = "idata must be a DataTree with posterior draws, got"
    wrong = (None, 3, "posterior", {"posterior": []})
    check_refused(Bridge, [((each,), message) for each in wrong], TypeError)
