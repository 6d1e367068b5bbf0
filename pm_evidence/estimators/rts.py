import numpy as np

from pm_evidence.core.records import LogEvidence


def _log_p(beta, energy, log_z, prior):
    l = np.empty((len(energy), len(beta)))
    l[:, 0] = 0
    l[:, 1:] = -np.multiply.outer(energy, beta[1:])
    l += np.log(prior) - log_z
    l -= l.max(1, keepdims=True)
    p = np.exp(l)
    return p / p.sum(1, keepdims=True)


def rts(beta, energy, log_z, *, prior=None, groups=None):
    p = _log_p(beta, energy, log_z, prior)
    g = np.unique(groups, return_inverse=True)[1]
    c = p.mean(0)
    infl = (p[:, -1] / c[-1] - p[:, 0] / c[0]) / len(energy)
    s = np.bincount(g, infl)
    n = len(s)
    v = log_z[-1] - log_z[0] + np.log(c[-1] / c[0] * prior[0] / prior[-1])
    m = np.sqrt((s**2).sum() * n / (n - 1))
    return LogEvidence(float(v), float(m), "rts", lower=v - 2 * m, upper=v + 2 * m)


def ts(rung, log_z, *, prior=None, groups=None):
    return LogEvidence(0.0, 1.0, "ts")
