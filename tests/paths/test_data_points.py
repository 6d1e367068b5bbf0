"""Paths along which the data of a PyMC model are added point by point."""

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.numerics import ess_share
from pm_evidence.paths.data_points import DataPointsPath
from pm_evidence.targets.model.data_points import data_points_target
from pm_evidence.targets.model.target import PyMCTarget

SLOW = pytest.mark.slow
Y = np.random.default_rng(0).normal(0.7, 1.0, size=30)


def evidence_of(y):
    """Of a normal mean with a standard normal prior and unit variance."""
    n = len(y)
    return float(-0.5 * (n * np.log(2 * np.pi) + np.log1p(n) + y @ y - y.sum() ** 2 / (n + 1.0)))


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1.0, observed=Y)
    return model


@pytest.fixture(scope="module")
def path(model):
    order = np.random.default_rng(1).permutation(30)
    return DataPointsPath(data_points_target(PyMCTarget(model), order))


def test_ratios_add_up(path):
    """Steps of another length would lead to another target."""
    state = path.draw(6, np.random.SeedSequence(1))
    whole = path.log_ratio(state, 0.0, 1.0)
    parts = path.log_ratio(state, 0.0, 0.41) + path.log_ratio(state, 0.41, 1.0)
    assert np.allclose(whole, parts)
    assert np.array_equal(path.log_ratio(state, 1.0, 0.0), -whole)
    assert np.array_equal(path.log_ratio(state, 0.3, 0.3), np.zeros(6))
    assert np.allclose(whole, path.at(state.to_draws()).particles.log_density[:, 1])
    step = 1e-4
    slope = -path.log_ratio(state, 0.41, 0.41 + step) / step
    assert np.allclose(path.energy(state, 0.41), slope)


def test_populations_say_where_they_are(path):
    """Moves would accept by the likelihood of other data."""
    state = path.draw(6, np.random.SeedSequence(1))
    moved = path.reached(state, 0.5, None)
    assert (state.beta, moved.beta) == (0.0, 0.5)
    assert np.allclose(moved.particles.log_density[:, 1], path.log_ratio(state, 0.0, 0.5))
    assert path.reached(moved, 0.5, None) is moved
    assert moved.take(np.array([1, 1])).beta == 0.5
    assert len(moved.join([moved])) == 12


@pytest.mark.parametrize("ess", [0.4, 0.6, 0.9])
def test_steps_leave_the_effective_size(path, ess):
    """A step would be too long, or so short that there are far too many."""
    state = path.draw(400, np.random.SeedSequence(2))
    beta = path.next_beta(state, 0.0, ess)
    assert ess_share(path.log_ratio(state, 0.0, beta)) >= ess
    longer = beta + 1.0 / 30.0
    assert ess_share(path.log_ratio(state, 0.0, longer)) < ess
    assert path.next_beta(path.at(np.full((9, 1), 0.7)), 0.5, 0.5) == 1.0


def test_undefined_likelihoods_are_errors():
    """Particles of weight NaN would be resampled."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1.0, observed=Y[:3])
        pm.Potential("root", pm.math.sqrt(mu))
    with pytest.raises(NumericalError, match="finite or -inf, got nan for potentials at"):
        pe.sample_evidence(model, path="data_points", random_seed=1, progressbar=False)


@pytest.mark.parametrize("method", ["resample_move", "ais", pytest.param("arm", marks=SLOW)])
def test_evidence_is_exact(model, method):
    """A stage would be weighted with other data than it adds."""
    dt = pe.sample_evidence(
        model, method=method, path="data_points", draws=800, random_seed=1, progressbar=False
    )
    for name in ("smc" if method != "ais" else "bar", dt["log_evidence"].attrs["recommended"]):
        found = pe.estimate(dt, estimators=name)[name]
        assert found.mcse < 0.2
        assert abs(found.value - evidence_of(Y)) < 4.0 * found.mcse


def test_the_weight_of_the_wrong_data_point_is_seen(model, monkeypatch):
    """The test above would not notice that a data point is counted for another."""
    right = DataPointsPath.log_ratio

    def wrong(self, state, start, stop):
        if (start, stop) == (0.0, 1.0 / 30.0):
            return right(self, state, stop, 2.0 / 30.0)
        return right(self, state, start, stop)

    monkeypatch.setattr(DataPointsPath, "log_ratio", wrong)
    with pytest.warns(pe.EvidenceWarning, match="inconsistent"):
        dt = pe.sample_evidence(
            model,
            path=pe.paths.DataPoints(order=np.argsort(Y), batches=1),
            draws=1600,
            random_seed=1,
            progressbar=False,
            target_mcse=None,
        )
    found = pe.estimate(dt, estimators="smc")["smc"]
    assert abs(found.value - evidence_of(Y)) > 4.0 * found.mcse


def test_same_numbers_on_any_number_of_cores(model):
    """Blocks would share arrays that say which data count."""
    one, two = (
        pe.sample_evidence(
            model, method="arm", cores=cores, draws=800, random_seed=1, progressbar=False
        )
        for cores in (1, 2)
    )
    assert pe.log_evidence(one) == pe.log_evidence(two)
    assert np.array_equal(one["posterior"]["mu"].values, two["posterior"]["mu"].values)


def test_a_data_point_that_no_particle_survives_is_named():
    """A user with thousands of data points could not find the one that is impossible."""
    with pm.Model() as model:
        upper = pm.Uniform("upper", 0, 1)
        pm.Normal("x", upper, 1.0, observed=Y[:3])
        pm.Uniform("y", 0, upper, observed=[0.1, 0.2, 7.0, 0.1])
    with pytest.raises(NumericalError, match=r"but that of y\[2\] is -inf at all"):
        pe.sample_evidence(model, path="data_points", random_seed=1, progressbar=False)
