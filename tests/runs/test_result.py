"""Posterior draws of a run have the weight of where they came from."""

import numpy as np
import pytest
from scipy import stats

import pm_evidence as pe
from pm_evidence.core.records import BlockRecord, LogEvidence, Role, RunRecord
from pm_evidence.runs import result
from pm_evidence.runs.result import PosteriorDraws, posterior_draws
from pm_evidence.runs.rounds import Run
from tests.samplers.modes import shares_of
from tests.systems import deceptive

RUN = Run(pe.methods.SMC(islands=4), 100, 1, None, 7)


def record_of(log_z, stated=1e-4, **rest):
    """Islands whose draws are their own number."""
    blocks = [
        BlockRecord(
            i,
            np.array([-value]),
            None,
            draws=np.full((100, 1), i),
            relative_variance=stated,
            **rest,
        )
        for i, value in enumerate(log_z)
    ]
    return RunRecord("smc", np.array([0.0, 1.0]), {Role.FORWARD: blocks})


def counts(draws, n=4):
    return np.bincount(draws.astype(int).ravel(), minlength=n)


def test_islands_of_unequal_evidence():
    """One island met a mode with nine tenths of what it found, the others did not."""
    draws = posterior_draws(RUN, record_of(np.log([1.0, 1.0, 1.0, 10.0]))).draws
    assert draws.shape == (4, 100, 1)
    np.testing.assert_allclose(counts(draws) / 400, np.array([1, 1, 1, 10]) / 13, atol=0.01)


def test_islands_that_differ_by_their_noise_alone():
    """What they state of themselves explains the differences: all draws are kept."""
    draws = posterior_draws(RUN, record_of(np.log([0.9, 1.0, 1.0, 1.1]), stated=0.02)).draws
    assert counts(draws).tolist() == [100] * 4


@pytest.mark.parametrize(
    ("importance", "bridge", "from_fit"),
    [("ok", "ok", False), ("ok", "missed_mass", True), ("heavy_tail", "inconsistent", False)],
)
def test_draws_by_their_importance_weights(importance, bridge, from_fit):
    """Where islands hold the wrong shares, draws from the fitted density hold the right ones."""
    x = np.linspace(-8, 8, 4000)[:, None]
    forward = np.full(4000, -np.log(16.0)) - stats.norm.logpdf(x[:, 0], 1, 1)  # log q - log f
    record = record_of(np.zeros(4), fit_draws=x, bridge=(forward, np.zeros(100)))
    evidence = [
        LogEvidence(0.0, 0.01, "importance", importance),
        LogEvidence(0.0, 0.01, "bridge", bridge),
    ]
    drawn = posterior_draws(RUN, record, evidence)
    draws = drawn.draws
    assert drawn.drawn_from == ("importance" if from_fit else "islands")
    assert (len(np.unique(draws)) > 4) == from_fit
    if from_fit:
        assert np.array_equal(draws, np.tile(x, (4, 1))[drawn.origin])
        assert draws.mean() == pytest.approx(1.0, abs=0.03)
        assert draws.std() == pytest.approx(1.0, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two_widths_4", "two_widths_6"])
def test_a_bimodal_posterior_whose_islands_differ(name):
    """A mode that most islands miss has its share among the draws."""
    case = deceptive._MODES[name]
    right, means, _ = shares_of(case)
    model = case.build()
    found = []
    for seed in range(5):
        dt = pe.sample_evidence(model, random_seed=seed, progressbar=False)
        x = dt["posterior"]["x"].values.reshape(-1, case.dims)
        found.append(np.mean(np.abs(x - means[0]).max(axis=1) < np.abs(x - means[1]).max(axis=1)))
    assert np.abs(np.array(found) - right[0]).max() < 0.1
    assert np.mean(found) == pytest.approx(right[0], abs=0.05)


def test_draws_that_need_much_memory_are_thinned(monkeypatch):
    """The rows stay together, and none of a run of usual size is left out."""
    origin = np.arange(40).reshape(4, 10)
    drawn = PosteriorDraws(origin[..., None] + [0.0, 0.5], origin, "importance", -1.0 * origin)
    assert drawn.thinned(2) is drawn
    monkeypatch.setattr(result, "_MOST_NUMBERS", 100)
    thin = drawn.thinned(5)
    np.testing.assert_array_equal(thin.origin, origin[:, ::2])
    np.testing.assert_array_equal(thin.draws[..., 1], thin.origin + 0.5)
    np.testing.assert_array_equal(thin.log_density, -thin.origin)
    assert drawn.thinned(1000).origin.shape == (4, 1)
