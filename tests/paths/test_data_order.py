"""In which order, and in which batches, the data of a PyMC model are added."""

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.model.target import PyMCTarget


@pytest.fixture(scope="module")
def target():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, np.array([9.0, 1.0, 3.0]), observed=[0.1, 0.5, 0.9])
        pm.Potential("potential", -(mu**2))
    return PyMCTarget(model)


def test_orders(target):
    """Data would be added in another order than the user asks for."""
    assert pe.paths.DataPoints(order="given").of(target).order.tolist() == [0, 1, 2, 3]
    assert pe.paths.DataPoints(order="informative").of(target).order.tolist() == [0, 2, 3, 1]
    assert pe.paths.DataPoints(order=[3, 2, 1, 0]).of(target).order.tolist() == [3, 2, 1, 0]
    drawn = {tuple(pe.paths.DataPoints(seed=seed).of(target).order) for seed in range(20)}
    assert {order[0] for order in drawn} == {0}
    assert len(drawn) == 6


def test_batches(target):
    """Steps would end inside of a batch."""
    assert pe.paths.DataPoints().of(target).batches is None
    assert pe.paths.DataPoints(batches=3).of(target).batches == (3, 1)
    assert pe.paths.DataPoints(batches=[2, 2]).of(target).batches == (2, 2)
    dt = pe.sample_evidence(
        target.model, path=pe.paths.DataPoints(batches=[1, 3]), random_seed=1, progressbar=False
    )
    assert np.array_equal(dt["annealing"]["beta"].values, [0.0, 0.25, 1.0])
    assert dt["log_evidence"].attrs["schedule"] == "batches"


def test_wrong_options_are_refused(target):
    """Data points would be left out, or counted twice."""
    with pytest.raises(ValueError, match="order must be one of"):
        pe.paths.DataPoints(order="sorted")
    with pytest.raises(ValueError, match="batches must be"):
        pe.paths.DataPoints(batches=0)
    with pytest.raises(ValueError, match="batches must hold all 4 data points, got sizes that add"):
        pe.paths.DataPoints(batches=[1, 1]).of(target)
    for order in ([0, 1, 2], [0, 1, 2, 2], [0.0, 1.0, 2.0, 3.0]):
        with pytest.raises(ValueError, match="order must hold each of the numbers 0 to 3"):
            pe.paths.DataPoints(order=order).of(target)


def test_targets_without_data_points_are_refused():
    """An unclear error would come from the middle of the run."""
    with pytest.raises(ValueError, match=r"path='data_points' needs a pymc\.Model"):
        pe.sample_evidence(pe.mixtures.Gaussian(), path="data_points", progressbar=False)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.GaussianRandomWalk("walk", mu=mu, init_dist=pm.Normal.dist(0, 1), observed=np.zeros(4))
    with pytest.raises(ModelError, match="but walk is one draw of shape"):
        pe.sample_evidence(model, method="arm", progressbar=False)
