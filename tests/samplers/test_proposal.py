"""The density that importance sampling draws from, fitted to exact draws."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.shape import learn_shape
from pm_evidence.references.mixture import StudentFit, StudentMixture
from pm_evidence.samplers.bridge import fit_proposal
from pm_evidence.samplers.peaks import Survey
from pm_evidence.samplers.survey import survey
from tests.samplers.modes import draws_of_modes, posterior_of
from tests.systems import deceptive

ERRORS = 4.0  # beyond these once in 16,000 draws of the seed
CASE = deceptive._MODES["two_widths_4"]
# Two equal modes, 80 of their standard deviations apart.
FAR = replace(CASE, centres=(-4.0, 4.0), sds=(0.25, 0.25), weights=(0.5, 0.5), prior_sd=4.0)


def value_of(posterior, proposal, rng, n=20_000):
    """Return log Z by importance sampling, and its standard error."""
    x = proposal.draw(n, rng)
    log_weight = posterior.log_density(x) - proposal.log_density(x)
    weight = np.exp(log_weight - log_weight.max())
    return log_mean_exp(log_weight), weight.std(ddof=1) / weight.mean() / n**0.5


def check(case, proposal, posterior, error=0.02):
    value, found = value_of(posterior, proposal, np.random.default_rng(9))
    assert abs(value - case.log_evidence()) < ERRORS * found and found < error


@pytest.mark.parametrize("case", [CASE, FAR], ids=["two_widths", "far"])
def test_modes_that_the_population_holds(case):
    """One Student-t about all of them is not enough, and draws from it do not tell."""
    rng = np.random.default_rng(1)
    posterior = posterior_of(case.build())
    draws = draws_of_modes(case, 1600, rng)
    proposal, n_evaluations = fit_proposal(posterior, draws, Survey(), case.log_evidence(), rng)
    check(case, proposal, posterior)
    assert n_evaluations < 12_000


def test_a_mode_that_only_the_survey_found():
    """The population holds three quarters of the evidence."""
    rng = np.random.default_rng(2)
    posterior = posterior_of(CASE.build())
    draws = draws_of_modes(CASE, 1600, rng, shares=[0.0, 1.0])
    log_z = CASE.log_evidence() + np.log(0.75)
    found = survey(posterior, learn_shape(draws), draws, draws, log_z, 30_000, rng)
    without, _ = fit_proposal(posterior, draws, Survey(), log_z, rng)
    assert value_of(posterior, without, rng)[0] < CASE.log_evidence() - 0.1
    proposal, _ = fit_proposal(posterior, draws, found, log_z, rng)
    check(CASE, proposal, posterior)


def test_a_mode_that_only_the_population_holds():
    """A survey that knows of one mode alone does not displace the other: its draws are judges."""
    rng = np.random.default_rng(3)
    posterior = posterior_of(FAR.build())
    draws = draws_of_modes(FAR, 1600, rng)
    one = draws[draws[:, 0] > 0]
    known = Survey([StudentFit.to(one)], np.array([FAR.log_evidence() - np.log(2.0)]), 1)
    proposal, _ = fit_proposal(posterior, draws, known, FAR.log_evidence(), rng)
    check(FAR, proposal, posterior)


def test_heavy_tails_stay_covered():
    """A share of the proposal is wide, so that weights are bounded where a fit is too narrow."""
    rng = np.random.default_rng(4)
    with pm.Model() as model:
        x = pm.StudentT("x", nu=3, mu=0, sigma=1, shape=3)
        pm.Potential("l", 0.0 * x[0])
    posterior = posterior_of(model)
    draws = rng.standard_t(3, (1600, 3))
    proposal, _ = fit_proposal(posterior, draws, Survey(), 0.0, rng)
    value, error = value_of(posterior, proposal, rng)
    assert abs(value) < ERRORS * error and error < 0.02


def test_one_fit_in_many_dimensions():
    """Covariances of several components cannot be learnt there."""
    rng = np.random.default_rng(5)
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=80)
        pm.Normal("y", x, 1, observed=np.zeros(80))
    posterior = posterior_of(model)
    draws = rng.normal(0, 0.5**0.5, (1600, 80))
    proposal, n_evaluations = fit_proposal(posterior, draws, Survey(), -100.0, rng)
    assert isinstance(proposal, StudentFit) and n_evaluations == 0
    peak = Survey([StudentFit.to(draws)], np.array([-100.0]), 1)
    assert isinstance(fit_proposal(posterior, draws, peak, -100.0, rng)[0], StudentMixture)
