"""Default Bayesian tests: t test, ANOVA, regression, correlation, proportion.

The priors are those of JASP and of the R package BayesFactor. Effects are measured in standard
deviations and have Cauchy priors (Jeffreys; Zellner and Siow), of which ``scale`` is the width.
What both hypotheses share, location and spread, has a flat prior over all that the data allow,
which cancels. Each function returns a model with a variable that the null hypothesis sets to a
value: ``pe.bayes_factor(pe.sample_evidence(model), model=model, point={"effect": 0.0})``.

Run it with ``python examples/default_tests.py``.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pm_evidence as pe

SEED = 20261128
MEDIUM, FOR_SLOPES = np.sqrt(0.5), np.sqrt(2) / 4  # the medium widths of R's BayesFactor


def spread_of(values, name="sigma"):
    """A standard deviation with Jeffreys's prior, cut at 1/150 and 150 times that of the data."""
    return pt.exp(np.log(np.std(values)) + pm.Uniform(f"log_{name}", -5, 5))


def mean_of(values, name="mean"):
    """A location with a flat prior, cut at 50 standard deviations from the mean of the data."""
    return np.mean(values) + np.std(values) * pm.Uniform(name, -50, 50)


def cauchy(name, scale, size):
    """Effects with a multivariate Cauchy prior: normal given a variance that they share."""
    if size == 1:
        return pm.Cauchy(name, 0.0, scale, shape=1)
    return pm.MvStudentT(name, nu=1, mu=np.zeros(size), scale=scale**2 * np.eye(size))


def t_test(x, y=None, scale=MEDIUM):
    """Of one sample against zero, or of two (Rouder et al. 2009); the null is ``effect`` = 0."""
    with pm.Model() as model:
        effect = pm.Cauchy("effect", 0.0, scale)
        if y is None:
            sigma = spread_of(x)
            pm.Normal("x", effect * sigma, sigma, observed=x)
            return model
        both = np.concatenate([x, y])
        side = np.repeat([0.5, -0.5], [len(x), len(y)])
        sigma, mean = spread_of(both), mean_of(both)
        pm.Normal("both", mean + effect * sigma * side, sigma, observed=both)
    return model


def anova(y, group, scale=0.5):
    """Of one way, with fixed effects (Rouder et al. 2012); the null is ``effect`` = 0."""
    names, index = np.unique(group, return_inverse=True)
    # orthonormal contrasts, which sum to zero over the groups
    contrasts = np.linalg.eigh(np.eye(len(names)) - 1.0 / len(names))[1][:, 1:]
    with pm.Model() as model:
        effect = cauchy("effect", scale, len(names) - 1)
        sigma, mean = spread_of(y), mean_of(y)
        pm.Normal("y", mean + sigma * pt.dot(contrasts[index], effect), sigma, observed=y)
    return model


def regression(y, x, scale=FOR_SLOPES):
    """Of y on the columns of x (Liang et al. 2008); the null is ``effect`` = 0.

    The effects are those of uncorrelated combinations of the columns with variance 1.
    """
    centred = x - np.mean(x, axis=0)
    columns = np.sqrt(len(y)) * np.linalg.qr(centred)[0]
    with pm.Model() as model:
        effect = cauchy("effect", scale, columns.shape[1])
        sigma, mean = spread_of(y), mean_of(y)
        pm.Normal("y", mean + sigma * pt.dot(columns, effect), sigma, observed=y)
    return model


def correlation(x, y, scale=1 / 3):
    """Of two variables, with a stretched beta prior (Ly et al. 2016); the null is ``half`` = 0.5.

    The correlation is ``rho = 2 half - 1``.
    """
    with pm.Model() as model:
        half = pm.Beta("half", 1 / scale, 1 / scale)
        rho = pm.Deterministic("rho", 2 * half - 1)
        sx, sy = spread_of(x, "sigma_x"), spread_of(y, "sigma_y")
        mx, my = mean_of(x, "mean_x"), mean_of(y, "mean_y")
        pm.Normal("x", mx, sx, observed=x)
        given_x = my + rho * sy / sx * (np.asarray(x) - mx)
        pm.Normal("y", given_x, sy * pt.sqrt(1 - rho**2), observed=y)
    return model


def proportion(k, n, value=0.5, scale=0.5):
    """Of k successes in n trials, with a logistic prior of the log odds.

    The null is ``log_odds = log(value / (1 - value))``.
    """
    with pm.Model() as model:
        log_odds = pm.Logistic("log_odds", np.log(value / (1 - value)), scale)
        pm.Binomial("k", n, logit_p=log_odds, observed=k)
    return model


def test(model, random_seed=SEED, **point):
    """Return the Bayes factor of a point against a model."""
    dt = pe.sample_evidence(model, random_seed=random_seed, progressbar=False)
    return pe.bayes_factor(dt, model=model, point=point, random_seed=random_seed, progressbar=False)


def main():
    """Test made-up data; a positive log Bayes factor is in favour of the null hypothesis."""
    rng = np.random.default_rng(1)
    x = rng.normal(0.4, 1.0, 30)
    y, group = rng.normal(0.0, 1.0, 30), np.repeat(["a", "b", "c"], 10)
    print("t test, one sample: ", test(t_test(x), effect=0.0))
    print("t test, two samples:", test(t_test(x, y), effect=0.0))
    print("ANOVA:              ", test(anova(x, group), effect=0.0))
    print("regression:         ", test(regression(x, np.column_stack([y, y**2])), effect=0.0))
    print("correlation:        ", test(correlation(x, y), half=0.5))
    print("proportion:         ", test(proportion(18, 30), log_odds=0.0))


if __name__ == "__main__":
    main()
