"""Models without a well-defined evidence are refused: by name, with reason and remedy."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_evidence as pe
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.model.checks import check_model
from tests.targets.values import in_python

Y = np.array([0.1, 0.2, 0.3])
CHAIN = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])


def simulate(rng, mean, size):
    return rng.normal(mean, 1, size=size)


def minibatch(total_size=None):
    batch = pm.Minibatch(np.arange(10.0), batch_size=3)
    pm.Normal("y", pm.Normal("a"), 1, observed=batch, total_size=total_size)


def partly_observed_mvnormal():
    seen = np.ma.masked_array(Y, mask=[False, True, False])
    with pytest.warns(pm.exceptions.ImputationWarning):
        pm.MvNormal("y", np.zeros(3), cov=np.eye(3), observed=seen)


def simulator():
    pm.Simulator("y", simulate, pm.Normal("a"), observed=Y)


def normal(mu=0.0):
    return pm.Normal.dist(mu, 1)


def car_component():
    components = [pm.CAR.dist(np.full(3, mu), W=CHAIN, alpha=0.5, tau=1.0) for mu in (0.0, 1.0)]
    pm.Mixture("y", [0.5, 0.5], components, observed=Y)


def observed_car():
    pm.CAR("y", np.zeros(3), W=CHAIN, alpha=0.5, tau=np.float64(1.0), observed=Y)


circular = pm.distributions.transforms.circular

REFUSED = {
    "flat": (
        lambda: pm.Normal("y", pm.Flat("a"), 1, observed=Y),
        r"proper prior, got a ~ pm\.Flat, .*not integrate to one.*Give 'a' .*pm\.Normal with",
    ),
    "icar": (
        lambda: pm.Normal("y", pm.ICAR("a", W=CHAIN.astype(int)), 1, observed=Y),
        r"proper prior, got a ~ pm\.ICAR, .*pm\.CAR with alpha below 1",
    ),
    "nothing_observed": (
        lambda: pm.Normal("a"),
        r"at least one observed variable or pm\.Potential, got none.*Pass observed=",
    ),
    "total_size": (
        lambda: pm.Normal("y", pm.Normal("a"), 1, observed=Y, total_size=100),
        r"must not use total_size, got one on y: .*Drop total_size and pass all data",
    ),
    "minibatch": (minibatch, r"must not be a pm\.Minibatch, got one in y: .*Pass the whole array"),
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
        r"no variable may be called 'chain', which is a dimension .*for example to 'chain_'",
    ),
    "observed_flat": (
        lambda: pm.Flat("y", observed=Y),
        r"proper likelihood, got y ~ pm\.Flat, .*not integrate to one",
    ),
    "circle_after_an_interval": (
        lambda: pm.VonMises("y", pm.Uniform("a", -np.pi, np.pi, transform=circular), 1, observed=Y),
        r"circular must be the only one .* got a with interval and circular.*default_transform=",
    ),
    "car_component": (car_component, r"pm\.CAR must be a separate variable, got one inside of y"),
    "atom_and_density": (
        lambda: pm.Mixture("y", [0.5, 0.5], [pm.DiracDelta.dist(0.1), normal()], observed=Y),
        r"must have a density, got y ~ pm\.Mixture .*adds the probability .*pm\.HurdleGamma",
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
        observed_car,
        lambda: pm.Censored("y", normal(pm.Normal("a")), lower=0.15, upper=None, observed=Y),
        lambda: pm.HurdleGamma("y", pm.Beta("a", 1, 1), 2.0, 1.0, observed=Y),
        legal_imputed,
    ],
)
def test_accepted(build):
    """A check that is too eager costs users their models."""
    with pm.Model() as model:
        build()
    check_model(model)


# --- atoms ---


def custom(dist):
    return lambda: pm.CustomDist("a", dist=dist)


ATOMS = {
    "clip": custom(lambda size: pt.clip(pm.Normal.dist(0, 1, size=size), -1, 1)),
    "maximum": custom(lambda size: pt.maximum(pm.Normal.dist(0, 1, size=size), 0)),
    "switch": custom(
        lambda size: pt.switch(
            pm.Bernoulli.dist(0.5, size=size), pm.Normal.dist(0, 1, size=size), 0.0
        )
    ),
    "censored_on_one_side": lambda: pm.Censored("a", normal(), lower=None, upper=1.0),
    "dirac_component": lambda: pm.Mixture("a", [0.5, 0.5], [pm.DiracDelta.dist(0.0), normal()]),
    "dirac": lambda: pm.DiracDelta("a", 0.0),
}

NO_ATOMS = {
    "censored_nowhere": lambda: pm.Censored("a", normal(), lower=-np.inf, upper=np.inf),
    "censored_integers": lambda: pm.Censored("a", pm.Poisson.dist(3), lower=1, upper=5),
    "truncated": lambda: pm.Truncated("a", pm.Laplace.dist(0, 1), lower=0.5, upper=2.0),
    "switch": custom(
        lambda size: pt.switch(
            pm.Bernoulli.dist(0.5, size=size),
            pm.Normal.dist(0, 1, size=size),
            pm.Normal.dist(3, 1, size=size),
        )
    ),
    "wishart": lambda: pm.Wishart("a", nu=4, V=np.eye(2)),
    "correlations": lambda: pm.LKJCorr("a", n=3, eta=1.0),  # of which some are always 1
}


@pytest.mark.parametrize("name", ATOMS)
def test_atoms_are_refused(name):
    """Moves take the probability of an atom for a density: 0.2 to 0.5 nats, silently."""
    with pm.Model() as model:
        ATOMS[name]()
        pm.Normal("y", model["a"], 1, observed=0.0)
    with pytest.raises(ModelError, match=r"must have a density, got a ~ .*Bernoulli indicator"):
        check_model(model)


@pytest.mark.parametrize("name", NO_ATOMS)
def test_densities_are_no_atoms(name):
    """What looks like one must not cost users their models."""
    with pm.Model() as model:
        NO_ATOMS[name]()
        pm.Normal("y", 0, 1, observed=0.0)
    check_model(model)


def hidden_atom(rng=None, size=None):
    return np.where(rng.random(size) < 0.02, 0.0, rng.normal(size=size))


def hidden_logp(value):
    return pt.switch(pt.eq(value, 0), np.log(0.02), np.log(0.98) - value**2 / 2 - 0.918938533)


def test_an_atom_in_a_users_function_is_seen_in_its_draws():
    """The atom is not visible in the graph, but draws that repeat a value show it."""
    with pm.Model() as model:
        x = pm.CustomDist("x", logp=hidden_logp, random=hidden_atom)
        pm.Normal("y", x, 1, observed=0.0)
    target = in_python(model)
    with pytest.raises(ModelError, match=r"must have a density, got x, which takes some value"):
        target.draw(1000, np.random.SeedSequence(1))


def test_atom_as_effect():
    """The proposal of random effects is a density as well."""
    with pm.Model(), pytest.raises(ModelError, match=r"effects must have a density, got Censored"):
        pe.RandomEffects(
            "y",
            effects=lambda: pm.Censored.dist(pm.Normal.dist(0, 1), lower=0, upper=None),
            emission=lambda u, i: pm.Normal.dist(u, 1),
            groups=[0, 0, 1],
            observed=Y,
        )


@pytest.mark.parametrize(
    ("coords", "message"),
    [
        ({"a/b": [1, 2]}, r"names of dimensions must not contain a slash, got 'a/b', .* to 'a_b'"),
        ({"a": [(1, 2), (3, 4)]}, r"single values, got the tuple \(1, 2\) for the dimension 'a'"),
    ],
)
def test_dimensions_that_results_cannot_be_stored_with(coords, message):
    """Refused before the run: ArviZ and xarray would raise after it."""
    with pm.Model(coords=coords) as model:
        x = pm.Normal("x", 0, 1, dims=next(iter(coords)))
        pm.Normal("y", x, 1, observed=[0.5, 0.3])
    with pytest.raises(ValueError, match=message):
        check_model(model)
