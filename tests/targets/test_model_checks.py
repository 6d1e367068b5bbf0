"""Models without a well-defined evidence are refused: by name, with reason and remedy."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.core.errors import ModelError
from pm_evidence.targets.model_checks import check_model

Y = np.array([0.1, 0.2, 0.3])
CHAIN = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])


def simulate(rng, mean, size):
    return rng.normal(mean, 1, size=size)


def minibatch(total_size=None):
    batch = pm.Minibatch(np.arange(10.0), batch_size=3)
    pm.Normal("y", pm.Normal("a"), 1, observed=batch, total_size=total_size)


def minibatch_in_potential():
    batch = pm.Minibatch(np.arange(10.0), batch_size=3)
    pm.Potential("fit", -((batch - pm.Normal("a")) ** 2).sum())


def partly_observed_mvnormal():
    seen = np.ma.masked_array(Y, mask=[False, True, False])
    with pytest.warns(pm.exceptions.ImputationWarning):
        pm.MvNormal("y", np.zeros(3), cov=np.eye(3), observed=seen)


def simulator():
    pm.Simulator("y", simulate, pm.Normal("a"), observed=Y)


def observed_car():
    pm.CAR("y", np.zeros(3), W=CHAIN, alpha=0.5, tau=np.float64(1.0), observed=Y)


REFUSED = {
    "flat": (
        lambda: pm.Normal("y", pm.Flat("a"), 1, observed=Y),
        r"proper prior, got a ~ pm\.Flat, .*not integrate to one.*Give 'a' .*pm\.Normal with",
    ),
    "half_flat": (
        lambda: pm.Normal("y", 0, pm.HalfFlat("a"), observed=Y),
        r"proper prior, got a ~ pm\.HalfFlat, .*Give 'a' .*pm\.HalfNormal with a wide",
    ),
    "flat_in_potential": (
        lambda: pm.Potential("p", -(pm.Flat("a") ** 2)),
        r"proper prior, got a ~ pm\.Flat",
    ),
    "icar": (
        lambda: pm.Normal("y", pm.ICAR("a", W=CHAIN.astype(int)), 1, observed=Y),
        r"proper prior, got a ~ pm\.ICAR, .*pm\.CAR with alpha below 1",
    ),
    "nothing_observed": (
        lambda: pm.Normal("a"),
        r"at least one observed variable or pm\.Potential, got none.*Pass observed=",
    ),
    "empty": (lambda: None, r"at least one observed variable or pm\.Potential, got none"),
    "total_size": (
        lambda: pm.Normal("y", pm.Normal("a"), 1, observed=Y, total_size=100),
        r"must not use total_size, got one on y: .*Drop total_size and pass all data",
    ),
    "minibatch": (minibatch, r"must not be a pm\.Minibatch, got one in y: .*Pass the whole array"),
    "minibatch_total_size": (lambda: minibatch(10), r"must not use total_size, got one on y"),
    "minibatch_in_potential": (
        minibatch_in_potential,
        r"must not be a pm\.Minibatch, got one in fit",
    ),
    "simulator": (
        simulator,
        r"must have a density, got y ~ pm\.Simulator, .*pm\.sample_smc .*or write the likelihood",
    ),
    "partly_observed_mvnormal": (
        partly_observed_mvnormal,
        r"missing values must .* got y_unobserved of a multivariate .*marginal distribution",
    ),
    "called_chain": (
        lambda: pm.Normal("y", pm.Normal("chain"), 1, observed=Y),
        r"no variable must be called 'chain', which is a dimension .*call it 'chain_'",
    ),
    "called_draw": (
        lambda: pm.Deterministic("draw", pm.Normal("y", pm.Normal("a"), 1, observed=Y)),
        r"no variable must be called 'draw'",
    ),
    "observed_car": (
        observed_car,
        r"normalised density, got y ~ pm\.CAR, .*log\(2 pi\).*Write it as pm\.MvNormal",
    ),
}


@pytest.mark.filterwarnings("ignore:total_size not provided:UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pm.Simulator itself
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    """Annealed all the same, such a model would give a number that means nothing."""
    build, message = REFUSED[name]
    with pm.Model() as model:
        build()
    with pytest.raises(ModelError, match=message):
        check_model(model)


def test_model_errors_are_value_errors():
    """Users may catch them as what they are."""
    assert issubclass(ModelError, ValueError)


def legal_imputed():
    with pytest.warns(pm.exceptions.ImputationWarning):
        pm.Normal("y", pm.Normal("a"), 1, observed=np.ma.masked_array(Y, mask=[True, False, False]))


@pytest.mark.parametrize(
    "build",
    [
        lambda: pm.Potential("p", -(pm.Normal("a") ** 2)),
        lambda: pm.Normal("y", 0, 1, observed=Y),
        lambda: pm.Normal("y", pm.CAR("a", np.zeros(3), W=CHAIN, alpha=0.5, tau=1.0), observed=Y),
        lambda: pm.Normal("y", pm.Uniform("a", 0, 1), 1, observed=pm.Data("d", Y)),
        lambda: pm.MvNormal("y", pm.Normal("a", shape=3), cov=np.eye(3), observed=Y),
        legal_imputed,
    ],
)
def test_accepted(build):
    """A check that is too eager costs users their models."""
    with pm.Model() as model:
        build()
    check_model(model)


def test_pm_car_is_not_normalised():
    """The reason for which it is refused as a likelihood: if PyMC mends it, accept it again."""
    with pm.Model() as model:
        observed_car()
    precision = np.diag(CHAIN.sum(axis=0)) - 0.5 * CHAIN
    _, log_det = np.linalg.slogdet(precision)
    exact = 0.5 * (log_det - Y @ precision @ Y - 3 * np.log(2 * np.pi))
    missing = -1.5 * np.log(2 * np.pi) + 0.5 * np.log(CHAIN.sum(axis=0)).sum()
    assert float(model.compile_logp(mode="FAST_COMPILE")({})) == pytest.approx(exact - missing)
