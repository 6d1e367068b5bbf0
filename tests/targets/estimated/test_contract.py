"""The estimators of likelihoods do what targets ask of them."""

from inspect import isfunction, signature

import pytest

from pm_evidence.targets.estimated.contract import LikelihoodEstimator
from pm_evidence.targets.estimated.random_effects.estimator import GroupEstimator
from pm_evidence.targets.estimated.state_space.filter import ParticleFilter

METHODS = {name: m for name, m in vars(LikelihoodEstimator).items() if name[0] != "_"}


@pytest.mark.parametrize("kind", [ParticleFilter, GroupEstimator])
@pytest.mark.parametrize("name", [name for name, m in METHODS.items() if isfunction(m)])
def test_methods_have_the_parameters_of_the_contract(kind, name):
    """A target calls them by these names; another one fails in the middle of a run."""
    assert list(signature(getattr(kind, name)).parameters) == list(
        signature(METHODS[name]).parameters
    )
