"""Three tasks in a few lines each: two regressions, a posterior that exists already, a t test.

Run it with ``python examples/three_tasks.py``.
"""

import numpy as np
import pymc as pm
from default_tests import t_test

import pm_evidence as pe

rng = np.random.default_rng(1)
x = rng.normal(size=(40, 2))
y = 1.0 + 0.6 * x[:, 0] + rng.normal(size=40)
QUIET = {"random_seed": 1, "progressbar": False}


def regression(columns):
    """Regression of y on some columns of x."""
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1, shape=len(columns))
        noise = pm.HalfNormal("noise", 2)
        pm.Normal("y", pm.Normal("mean", 0, 3) + x[:, columns] @ slope, noise, observed=y)
    return model


def two_regressions():
    """Does the second covariate help?"""
    models = {"first": regression([0]), "both": regression([0, 1])}
    found = pe.compare_models(models, **QUIET)
    print(pe.report(found, models))


def posterior_at_hand():
    """Is the slope zero, or positive? From draws that are there already."""
    with regression([0]):
        idata = pm.sample(1000, chains=4, **QUIET)
        print(pe.bayes_factor(idata, point={"slope": 0.0}, **QUIET))
        print(pe.bayes_factor(idata, constraint=lambda v: v["slope"][0] > 0, **QUIET).complement)


def default_t_test():
    """Do two groups differ?"""
    model = t_test(y[:20], y[20:])
    dt = pe.sample_evidence(model, **QUIET)
    print(pe.bayes_factor(dt, model=model, point={"effect": 0.0}, **QUIET))


if __name__ == "__main__":
    two_regressions()
    posterior_at_hand()
    default_t_test()
