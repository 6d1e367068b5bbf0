"""Plain models raise no warnings that their users could do nothing about."""

import warnings

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.targets.model.vectorised import quietly
from tests.targets.values import in_python


def matrix():
    """Its density in PyMC uses a function that PyTensor has deprecated."""
    x = pm.MatrixNormal("x", mu=np.zeros((2, 2)), rowcov=np.eye(2), colcov=np.eye(2))
    pm.Normal("y", x, 1, observed=np.ones((2, 2)))


def huge_numbers():
    """Energies whose squares overflow."""
    x = pm.LogNormal("x", 0, pm.HalfCauchy("s", 50))
    pm.Normal("y", pm.math.sqr(x), 1, observed=[1.0, 2.0])


def hierarchical_zero_sum():
    """A standard deviation of 0 on the way, where the density of PyMC is NaN."""
    scale = pm.HalfNormal("scale", 1)
    effects = pm.ZeroSumNormal("effects", sigma=scale, shape=4)
    pm.Normal("y", effects, pm.HalfNormal("s", 1), observed=[0.1, 0.2, 0.3, 0.4])


def sampled(model):
    pe.sample_evidence(model, draws=50, random_seed=1, progressbar=False)


def only_drawn(model):
    in_python(model).draw(50, np.random.SeedSequence(1))


@pytest.mark.parametrize(
    ("build", "use"),
    [
        (matrix, only_drawn),
        pytest.param(huge_numbers, sampled, marks=pytest.mark.slow),
        (hierarchical_zero_sum, only_drawn),
        pytest.param(matrix, sampled, marks=pytest.mark.slow),
        pytest.param(hierarchical_zero_sum, sampled, marks=pytest.mark.slow),
    ],
)
def test_plain_models_are_quiet(build, use):
    with pm.Model() as model:
        build()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        use(model)
    unexpected = [w for w in caught if not issubclass(w.category, pe.EvidenceWarning)]
    assert [str(w.message) for w in unexpected] == []
    assert not any("NaN" in str(w.message) for w in caught)


def test_warnings_of_users_pass():
    """Only those of the libraries' own modules are silent."""
    with pytest.warns(FutureWarning, match="mine"), quietly():
        warnings.warn("mine", FutureWarning, stacklevel=1)
