"""Runs within others: the small annealing from the prior, and the evidence of a compiled target."""

import pm_evidence as pe
from pm_evidence.core.records import Role
from pm_evidence.estimators.of_islands import of_small_islands
from pm_evidence.runs.references import check_run
from pm_evidence.runs.rounds import Run
from pm_evidence.runs.routes import evidence_of
from pm_evidence.targets.model.cache import target_of
from tests.models import shared
from tests.systems.exact import exact_systems

SYSTEMS = exact_systems()


def run_trial(name, cores=1, executor=None, seed=1):
    run = Run(pe.methods.SMC(), 200, cores, executor, seed)
    small = check_run(run, target_of(SYSTEMS[name].build()))
    evidence = of_small_islands(small.record.of(Role.FORWARD))
    return small.draws(seed), evidence, small.n_evaluations


def test_its_evidence_is_right_within_its_error():
    """It is what tells of a mode that a reference misses; draws are from both modes."""
    draws, evidence, n_evaluations = run_trial("bimodal_10", seed=2)
    exact = SYSTEMS["bimodal_10"].log_evidence
    assert abs(evidence.value - exact) < 5.0 * evidence.mcse
    assert evidence.mcse < 1.0 and draws.shape == (512, 10)
    assert n_evaluations > 512
    assert 0.1 < (draws[:, 0] > 0.0).mean() < 0.9


def test_one_call_gives_the_exact_evidence_and_the_seed_counts():
    model, exact = shared("normal").model, shared("normal").log_evidence
    target = target_of(model, reparameterise=True)
    found = [evidence_of(target, 0.1, 1, seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert all(abs(each.value - exact) < 4 * each.mcse and each.status == "ok" for each in found)
