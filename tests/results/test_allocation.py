"""What a run of resample-move spent on each stage, and what would have been best."""

from dataclasses import replace

import numpy as np

import pm_evidence as pe
from pm_evidence.results.datatree import allocation_of
from tests.paths.chain import chain

OPTIONS = {"draws": 800, "target_mcse": None, "random_seed": 1, "progressbar": False}


def test_spent_and_best():
    """The table would compare allocations of different cost."""
    record = pe.to_record(pe.sample_evidence(chain(strength=1.5), method="arm", **OPTIONS))
    spent, best = allocation_of(record)
    ess = np.array([block.trace.ess for block in record.of("forward")])
    assert np.isclose(spent.particles.sum(), best.particles.sum())
    assert np.isclose(spent.variance, ((1 / ess - 1).mean(axis=0) / spent.particles).sum())
    assert best.variance <= spent.variance


def test_shares_that_rounding_puts_above_one():
    """The variance of equal weights would be negative, and the run would end without a result."""
    record = pe.to_record(pe.sample_evidence(chain(), method="resample_move", **OPTIONS))
    equal = np.full(12, np.nextafter(1.0, 2.0))
    blocks = tuple(
        replace(block, trace=replace(block.trace, ess=equal)) for block in record.of("forward")
    )
    spent, _ = allocation_of(record.updated("forward", blocks))
    assert spent.variance == 0.0
