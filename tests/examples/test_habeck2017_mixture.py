"""The mixtures of section 6.4 of Habeck (2017): the data, the two models, and the files."""

import numpy as np
import pandas as pd
import pytest

import pm_evidence as pe
from examples.papers.habeck2017 import mixture
from examples.papers.stored import FIGURES
from pm_evidence.targets.model.target import PyMCTarget


def test_the_data_are_those_of_mass(data_folder):
    """With the corrected value, log Z would be another."""
    y = mixture.galaxies(data_folder)
    assert len(y) == 82
    assert y[77] == 26.69
    assert y.mean() == pytest.approx(20.82817, abs=1e-5)


@pytest.mark.parametrize("k", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_both_models_are_the_same(k, data_folder):
    """Joint log densities differ by the components of the points alone, which are summed out."""
    y = mixture.galaxies(data_folder)[:9]
    target = PyMCTarget(mixture.pymc_mixture(y, k))
    state = target.draw(5, np.random.SeedSequence(1))
    values = target.posterior(state.x)
    path = pe.mixtures.GaussianMixture(y, k, **mixture.PRIOR).annealing_setup("auto").path
    mean, variance = values["mean"], values["variance"]
    weight = values.get("weight", np.ones((5, 1)))
    terms = weight[:, :, None] * np.exp(-0.5 * (y - mean[:, :, None]) ** 2 / variance[:, :, None])
    terms /= np.sqrt(2 * np.pi * variance[:, :, None])
    np.testing.assert_allclose(state.log_density[:, 1], np.log(terms.sum(axis=1)).sum(axis=1))
    assert path.n_steps == 9


@pytest.mark.slow
def test_it_runs(tmp_path, data_folder):
    """A table of all ways, two figures, and runs that are not made again."""
    arguments = [str(tmp_path), "--components", "1", "3", "--pymc", "--quick"]
    arguments += ["--data", str(data_folder)]
    mixture.main(arguments)
    table = pd.read_csv(tmp_path / "habeck2017_mixture.csv")
    assert list(table) == list(pd.read_csv(FIGURES / "habeck2017_mixture.csv"))
    assert table["way"].tolist() == ["resample-move", "paths", "paths", "paths"] * 2
    assert (np.abs(table["log_evidence"].iloc[[4, 6]] + 226.58) < 2.0).all()
    assert (tmp_path / "habeck2017_mixture_probability.png").stat().st_size > 1000
    before = (tmp_path / "paths_3_quick.nc").stat().st_mtime_ns
    mixture.main(arguments)
    assert (tmp_path / "paths_3_quick.nc").stat().st_mtime_ns == before
