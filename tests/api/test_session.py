"""What users' sessions and models do to a run: settings of NumPy, priors that cannot be drawn."""

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from tests.models import shared

QUIET = {"random_seed": 1, "progressbar": False, "cores": 1}


def test_errors_of_floating_point_are_not_raised():
    """After ``np.seterr(all="raise")``, every weight that underflows would end the run."""
    dt = pe.sample_evidence(shared("line").model, **QUIET)
    with np.errstate(all="raise"):
        found = [
            pe.sample_evidence(
                pe.mixtures.Gaussian(), draws=640, target_mcse=None, method=method, **QUIET
            )
            for method in ("ais", "smc", "parallel_tempering")
        ]
        pe.estimate(dt)
        pe.compare({"line": dt, "the same": dt})
        again = pe.sample_evidence(shared("line").model, **QUIET)
    assert len(found) == 3
    assert pe.log_evidence(again) == pe.log_evidence(dt)


def test_a_prior_that_cannot_be_drawn_is_refused_by_name():
    """Parameters that were computed from data may be NaN, infinite or out of range."""
    for prior, message in (
        (lambda: pm.Normal("x", 0, np.nan), "sigma > 0"),
        (lambda: pm.Normal("x", 0, np.inf), "parameters are 0, inf"),
        (lambda: pm.Normal("x", np.inf, 1), "parameters are inf, 1"),
        (lambda: pm.HalfNormal("x", 0.0), "sigma > 0"),
        (lambda: pm.Gamma("x", -1, 1), "alpha > 0"),
    ):
        with pm.Model() as model:
            pm.Normal("y", prior(), 1.0, observed=0.5)
        with pytest.raises(pe.ModelError, match=f"the prior of 'x' must have finite.*{message}"):
            pe.sample_evidence(model, **QUIET)


def test_a_number_of_stages_that_is_asked_for_is_kept():
    """The stages of the pilot are divided; a user who asks for more must not get what there was."""
    groups = shared("groups")
    options = {"draws": 400, "target_mcse": None, **QUIET}
    dt = pe.sample_evidence(groups.model, method=pe.methods.AISEL(n_stages=12), **options)
    assert dt["annealing"].sizes["stage"] >= 12
    found = pe.log_evidence(dt)
    assert abs(found.value - groups.log_evidence) < 5.0 * found.mcse
    dt = pe.sample_evidence(pe.mixtures.Gaussian(), method=pe.methods.SMC(n_stages=40), **options)
    assert dt["annealing"].sizes["stage"] >= 40


@pytest.mark.slow
def test_reverse_paths_of_a_prior_far_wider_than_the_data():
    """A prior 3e10 times wider than the data: few reverse starts had a weight, a raw error."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x", 0, np.float64(3e10)), 1.0, observed=0.5)
    dt = pe.sample_evidence(model, method="ais", draws=400, target_mcse=None, **QUIET)
    found, exact = pe.log_evidence(dt), -np.log(3e10) - 0.5 * np.log(2.0 * np.pi)
    assert found.status == "ok" and abs(found.value - exact) < 5.0 * found.mcse
