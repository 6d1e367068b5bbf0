"""Records of runs with work that is made up, and their estimates by name."""

import numpy as np

from pm_evidence.core.records import BlockRecord, Facts, Role, RunRecord
from pm_evidence.estimators.of_run import estimates
from tests.estimators.work import LOG_Z, gaussian_pair


def block(work, index=0, **rest):
    return BlockRecord(index, np.atleast_1d(np.asarray(work, dtype=float)), None, **rest)


def record(forward, reverse=None, *, n_blocks=4, method="ais", islands=(), **rest):
    """A run whose paths are spread over some blocks, as a sampler leaves it."""
    beta = np.array([0.0, 1.0])
    split = [block(part, i) for i, part in enumerate(np.array_split(forward, n_blocks))]
    blocks = {Role.FORWARD: split, Role.ISLAND: islands}
    if reverse is not None:
        blocks[Role.REVERSE] = [block(np.asarray(reverse, dtype=float))]
    return RunRecord(method, beta, blocks, **rest)


def islands_of(rng, shift=0.0, n=16, sd_islands=0.05):
    sd = sd_islands
    work = rng.normal(-LOG_Z + 0.5 * sd**2 + shift, sd, n)
    return [block(value, i, relative_variance=0.05**2) for i, value in enumerate(work)]


def by_name(found):
    named = {estimate.estimator: estimate for estimate in found}
    assert len(named) == len(found)
    return named


def bridged(rng, sd=0.5, shift=0.0, forward_shift=0.0, n=500, **islands):
    """Sixteen islands with a bridge each; shifts move what islands or the bridge say of log Z."""
    blocks = []
    for item in islands_of(rng, shift, **islands):
        forward, reverse = gaussian_pair(rng, sd, n)
        pair = forward - forward_shift, reverse - forward_shift
        blocks.append(block(item.work, item.block, relative_variance=0.05**2, bridge=pair))
    return blocks


def of_blocks(blocks, **facts):
    """A run of islands with some facts."""
    beta, roles = np.array([0.0, 1.0]), {Role.FORWARD: blocks}
    return RunRecord("smc", beta, roles, facts=Facts(**facts))


def found_of(blocks, **facts):
    return by_name(estimates(of_blocks(blocks, **facts)))
