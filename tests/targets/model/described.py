"""Models that differ in one thing, for comparisons of what they are."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

import pm_evidence as pe


def regression(scale=1.0, y=(1.0, 2.0, 4.0), x=(0.0, 1.0, 2.0), name="mu", transform=None):
    """A mean, a scale and a covariate."""
    with pm.Model() as model:
        mu = pm.Normal(name, 0, scale, default_transform=transform)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", mu * pm.Data("x", np.array(x)), sigma, observed=np.array(y))
    return model


def custom(power=2.0, offset=0.0):
    """A density of the user's own, and a potential."""

    def logp(value, mu):
        return -(abs(value - mu) ** power)

    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.CustomDist("y", mu, logp=logp, observed=np.zeros(3))
        pm.Potential("p", -((mu - offset) ** 4))
    return model


def inner(decay=0.9, weight=0.3):
    """Graphs inside operations: a loop, and a mixture."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        end = pytensor.scan(
            lambda before: before * decay + mu,
            outputs_info=pt.zeros(()),
            n_steps=5,
            return_updates=False,
        )
        parts = [pm.Normal.dist(mu, 1), pm.Normal.dist(0, 1)]
        pm.Mixture("z", [weight, 1 - weight], parts, observed=np.ones(4))
        pm.Normal("y", end[-1], 1, observed=1.0)
    return model


def filtered(error=0.5, n_particles="auto"):
    """A state-space model, whose functions belong to an operation."""
    with pm.Model() as model:
        step = pm.HalfNormal("step", 1)
        pe.StateSpace(
            "y",
            init=lambda: pm.Normal.dist(0, 1),
            transition=lambda level, t: pm.Normal.dist(level, step),
            emission=lambda level, t: pm.Normal.dist(level, error),
            observed=np.array([0.1, 0.4, 0.9]),
            n_particles=n_particles,
        )
    return model


MODELS = {
    "regression": regression,
    "custom": custom,
    "inner": inner,
    "filtered": filtered,
}
