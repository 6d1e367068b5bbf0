"""Which density predicts the strength of radiata pine better? Two regressions that do not nest.

The strength y of 42 specimens is explained either by their density x, or by the density z that is
adjusted for resin content. Both regressions have the priors of Friel and Wyse (2012):

    y           ~ Normal(alpha + beta (x - mean(x)), variance 1 / tau)
    alpha, beta ~ Normal(3000, variance 1 / (0.06 tau)), Normal(185, variance 1 / (6 tau))
    tau         ~ Gamma(3, rate 2 * 300**2)

The priors are conjugate, so both evidences are known in closed form.

Run it with ``python examples/radiata_pine.py``; it reads real data from the folder that the
environment variable PM_EVIDENCE_DATA names, or ``--data FOLDER``.
"""

import argparse
import sys
import time

import numpy as np
import pymc as pm
from real_data import radiata_pine
from scipy.special import gammaln

import pm_evidence as pe

PRIOR_MEAN = np.array([3000.0, 185.0])
PRIOR_PRECISION = np.array([0.06, 6.0])  # in units of tau
SHAPE, RATE = 3.0, 2 * 300.0**2
SEED = 20260731


def regression(y, predictor):
    """Regression of y on one predictor."""
    with pm.Model() as model:
        tau = pm.Gamma("tau", alpha=SHAPE, beta=RATE)
        alpha = pm.Normal("alpha", PRIOR_MEAN[0], tau=PRIOR_PRECISION[0] * tau)
        beta = pm.Normal("beta", PRIOR_MEAN[1], tau=PRIOR_PRECISION[1] * tau)
        centred = np.asarray(predictor) - np.mean(predictor)
        pm.Normal("y", alpha + beta * centred, tau=tau, observed=np.asarray(y))
    return model


def exact_log_evidence(y, predictor):
    """Return the log evidence of ``regression`` in nats, by conjugacy.

    Integrating alpha, beta and tau out leaves a ratio of normalising constants of the normal-gamma
    distribution, with the usual updates of precision, mean, shape and rate.
    """
    y, predictor = np.asarray(y), np.asarray(predictor)
    design = np.stack([np.ones(y.size), predictor - predictor.mean()], axis=1)
    precision = np.diag(PRIOR_PRECISION) + design.T @ design
    mean = np.linalg.solve(precision, PRIOR_PRECISION * PRIOR_MEAN + design.T @ y)
    residual, shift = y - design @ mean, mean - PRIOR_MEAN
    shape = SHAPE + y.size / 2
    rate = RATE + 0.5 * (residual @ residual + shift @ (PRIOR_PRECISION * shift))
    log_det = np.log(PRIOR_PRECISION).sum() - np.linalg.slogdet(precision)[1]
    log_gamma = SHAPE * np.log(RATE) - shape * np.log(rate) + gammaln(shape) - gammaln(SHAPE)
    return float(0.5 * (log_det - y.size * np.log(2 * np.pi)) + log_gamma)


def main(data=None):
    """Estimate both evidences, and print them beside the exact ones."""
    try:
        pine = radiata_pine(data)
    except FileNotFoundError as error:
        sys.exit(f"radiata_pine.py needs real data. {error}")
    trees, exact = {}, {}
    for i, name in enumerate(["x", "z"]):
        start = time.perf_counter()
        trees[name] = pe.sample_evidence(
            regression(pine["y"], pine[name]),
            random_seed=SEED + i,
            progressbar=sys.stdout.isatty(),
        )
        estimate = pe.log_evidence(trees[name])
        exact[name] = exact_log_evidence(pine["y"], pine[name])
        error = (estimate.value - exact[name]) / estimate.mcse
        print(
            f"density {name}: log evidence {estimate}, exact {exact[name]:.3f}, off by "
            f"{error:+.1f} mcse; "
            f"{time.perf_counter() - start:.1f} s"
        )

    table = pe.compare(trees)
    print(f"\n{table}")
    factor = pe.bayes_factor(trees["z"], trees["x"])
    print(f"\nz against x: {factor}, exact {exact['z'] - exact['x']:.3f}.")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="FOLDER", help="folder of real data")
    main(parser.parse_args().data)
