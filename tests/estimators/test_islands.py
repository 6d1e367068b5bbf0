"""Estimates of runs of islands, and what is said where they contradict each other."""

from dataclasses import replace

import numpy as np
import pytest

from pm_evidence.core.records import (
    BlockRecord,
    Facts,
    LogEvidence,
    Role,
    RunRecord,
    StageTrace,
    Status,
)
from pm_evidence.estimators import jarzynski
from pm_evidence.estimators import of_islands as islands
from pm_evidence.estimators.jarzynski import importance
from pm_evidence.estimators.of_islands import (
    correlation_in_chains,
    integrated,
    of_islands,
    of_small_islands,
)
from pm_evidence.estimators.of_run import estimates
from pm_evidence.estimators.ti import power_posterior
from pm_evidence.estimators.verdicts import unseen_share
from tests.estimators.runs import block, bridged, found_of, islands_of, of_blocks
from tests.estimators.work import LOG_Z, gaussian_pair

LOG2 = np.log(2.0)


def test_islands_that_do_not_know_their_variance():
    """There is then no error from within islands, and the other estimates stay. Seed 2."""
    blocks = [replace(b, relative_variance=np.nan) for b in islands_of(np.random.default_rng(2))]
    assert [estimate.estimator for estimate in of_islands(of_blocks(blocks))] == ["smc"]
    bridges = [replace(b, relative_variance=np.nan) for b in bridged(np.random.default_rng(3))]
    assert [e.estimator for e in of_islands(of_blocks(bridges))] == ["bridge", "importance", "smc"]


def test_islands_with_bridges():
    """The bridge has by far the least error, the islands' own errors come last. Seed 3."""
    blocks = bridged(np.random.default_rng(3))
    found = estimates(of_blocks(blocks))
    assert [e.estimator for e in found] == ["bridge", "importance", "smc", "single_run"]
    assert not found[0].message
    assert [e.status for e in found] == ["ok", "ok", "ok", "within_islands"]
    assert all(abs(estimate.value - LOG_Z) < 5 * estimate.mcse for estimate in found)


# --- islands and importance sampling that contradict each other ---


def test_islands_that_differ_more_than_they_state():
    """The spread of the islands is four times what each states of itself. Seed 4."""
    found = found_of(bridged(np.random.default_rng(4), sd=2.5, sd_islands=0.2))
    assert found["smc"].status == found["bridge"].status == "islands_differ"
    assert "between islands" in found["smc"].message and "parametrisation" in found["smc"].message


def test_islands_that_missed_a_mode():
    """Importance sampling finds twice the evidence: it is right, the others say so. Seed 5."""
    found = found_of(bridged(np.random.default_rng(5), forward_shift=LOG2))
    first = next(iter(found.values()))
    assert (first.estimator, first.status) == ("importance", "ok")
    assert found["smc"].status == found["bridge"].status == "missed_mass"
    assert "annealing missed" in found["smc"].message


def test_a_fit_that_missed_a_mode():
    """The islands find twice the evidence: nothing is known to be right. Seed 5."""
    found = found_of(bridged(np.random.default_rng(5), forward_shift=-LOG2))
    assert found["smc"].status == found["importance"].status == "inconsistent"
    assert "ok" not in {found[name].status for name in ("smc", "importance", "bridge")}


def test_draws_with_a_heavy_tail_that_find_far_more():
    """Their error is not known, but they are too many to be chance. Seed 7."""
    rng = np.random.default_rng(7)
    blocks = bridged(rng)
    heavy = [
        replace(b, bridge=(b.bridge[0] - 9.0 * (rng.random(500) < 0.01), b.bridge[1]))
        for b in blocks
    ]
    found = found_of(heavy)
    assert found["importance"].status != "ok" or found["smc"].status == "missed_mass"
    assert found["smc"].status != "ok" and found["bridge"].status != "ok"


def test_islands_that_missed_a_mode_of_which_draws_have_a_heavy_tail():
    """Importance sampling is not ok, but its moments and the bridge exclude the islands. Seed 5."""
    blocks = bridged(np.random.default_rng(5))
    forward = [b.bridge[0] - 0.35 for b in blocks]
    forward[0] = np.append(forward[0], forward[0].min() - 9.0)
    blocks = [
        replace(b, bridge=(work, b.bridge[1])) for b, work in zip(blocks, forward, strict=True)
    ]
    for distance, status in ((4.0, "ok"), (20.0, "inconsistent")):
        found = {
            estimate.estimator: estimate
            for estimate in of_islands(of_blocks(blocks, moment_distance=distance))
        }
        assert found["importance"].status == "dominated"
        assert found["bridge"].status == "inconsistent" and found["smc"].status == status


def test_chains_that_hardly_move():
    """They are not ok unless importance sampling, with draws of its own, is. Seed 9."""
    blocks = bridged(np.random.default_rng(9))
    heavy = bridged(np.random.default_rng(9), sd=2.5)
    for made, correlation, confirmed in (
        (blocks, 0.9, True),
        (heavy, 0.3, True),
        (heavy, 0.9, False),
    ):
        found = found_of(made, chain_correlation=correlation)
        statuses = {found[name].status for name in ("smc", "bridge")}
        assert ("not_mixed" not in statuses) == confirmed
    assert found["importance"].status != "ok"
    assert "0.90 in one coordinate" in found["smc"].message
    short = found_of(heavy, chain_correlation=float("nan"))["smc"]
    assert short.status == "not_mixed" and "fewer than four states" in short.message


def test_chains_that_outnumber_the_orthants_are_not_checked():
    """Starts on each side of every coordinate represent the posterior although no chain moves."""
    rng = np.random.default_rng(11)

    def correlation(d, n_chains=40, length=5):
        states = np.repeat(rng.normal(size=(n_chains, d)), length, axis=0)
        origin = np.repeat(np.arange(n_chains), length)
        block = replace(bridged(rng)[0], draws=states, origin=origin)
        return correlation_in_chains([block] * 4)

    assert correlation(7) is None
    assert correlation(8) == pytest.approx(1.0, abs=0.03)


def test_few_draws_widen_the_error():
    """Where weights have a heavy tail and few draws of the posterior check them. Seed 10."""
    blocks = bridged(np.random.default_rng(10), sd=1.0, n=40)
    found, of_coarse = (
        of_islands(of_blocks(blocks)),
        of_islands(of_blocks(blocks, small_islands=True)),
    )
    fine, coarse = ({e.estimator: e for e in each} for each in (found, of_coarse))
    share = unseen_share([b.bridge for b in blocks])
    assert 0.0 < share < 1.5 / (16 * 40)  # half of what 640 draws may not show (rule of three)
    for name in ("bridge", "importance"):
        assert coarse[name].mcse == pytest.approx(np.hypot(fine[name].mcse, share))
    # a few islands may agree by chance
    small = of_small_islands(blocks, n_draws=16 * 40)
    assert coarse["smc"] == small and small.value == fine["smc"].value
    assert small.mcse == pytest.approx(0.05 / 4, rel=0.01)  # what the islands state themselves
    assert found[0].estimator == "smc" and of_coarse[0].estimator == "bridge"


def test_the_error_of_small_islands_is_not_small_by_chance():
    """Sixteen islands of four draws: their spread may be ten times too small."""
    alike = [block(-LOG_Z - 0.09 + 0.001 * (i % 2), i, relative_variance=0.1**2) for i in range(16)]
    assert jarzynski([b.work[0] for b in alike]).mcse < 0.001
    assert of_small_islands(alike).mcse == pytest.approx(0.1 / 4, rel=0.01)
    assert of_small_islands(alike, n_draws=64).mcse == 2 / 64
    unknown = [replace(b, relative_variance=np.nan) for b in alike]
    assert of_small_islands(unknown).mcse < 0.001
    spread = islands_of(np.random.default_rng(2), sd_islands=0.5)
    assert of_small_islands(spread) == jarzynski([b.work[0] for b in spread], name="smc")
    rng = np.random.default_rng(3)
    bridges = [replace(b, bridge=gaussian_pair(rng, 0.1, 4)) for b in alike]
    assert of_islands(of_blocks(bridges, small_islands=True))[0].status == Status.OK
    # evidence that the bridge lacks is still noticed
    more = [replace(b, work=b.work - 0.3) for b in bridges]
    assert of_islands(of_blocks(more, small_islands=True))[0].status != Status.OK


def test_the_error_of_a_bridge_from_few_draws_is_not_below_that_of_importance_sampling():
    """The spread of a few islands was ten times too small by chance in one of some hundred runs."""
    works = [(np.zeros(16), np.zeros(4))] * 16
    small, drawn = LogEvidence(0.0, 0.001, "bridge"), LogEvidence(0.0, 0.005, "importance")
    assert islands._not_below(small, drawn, works).mcse == pytest.approx(0.005 * np.sqrt(0.8))
    large = replace(small, mcse=0.01)
    assert islands._not_below(large, drawn, works).mcse == 0.01
    useless = replace(small, mcse=1e200)  # its square is infinite
    assert islands._not_below(useless, drawn, works).mcse == 1e200
    doubtful = replace(drawn, status=Status.HEAVY_TAIL)
    assert islands._not_below(small, doubtful, works).mcse == 0.001


def stratified_works(rng, n_islands=16, n=125):
    """Work from a mixture of a normal posterior (evidence 1) and a density far from it."""
    works = []
    for _ in range(n_islands):
        far = rng.permutation(n) < int(0.1 * n + rng.uniform())
        noise = 0.3 * rng.normal(size=n)
        works.append(np.where(far, np.inf, np.log(0.9) + noise + 0.5 * 0.3**2))
    return works


def test_the_error_of_stratified_draws_is_a_bound_on_that_of_their_mean():
    """Independent draws would have 1.5 times its error, because a tenth has no weight."""
    rng = np.random.default_rng(1)
    found = [islands._stratified(stratified_works(rng)) for _ in range(300)]
    z = np.array([each.value / each.mcse for each in found])
    assert 0.75 < z.std() < 1.0 and abs(z.mean()) < 0.2
    alone = importance(np.concatenate(stratified_works(rng)))
    assert alone.mcse > 1.15 * np.median([each.mcse for each in found])


def test_islands_from_a_reference_need_a_bridge():
    """Weights with a heavy tail look precise as long as none of the large ones occurred."""
    blocks = bridged(np.random.default_rng(5), forward_shift=-LOG2)
    status = {name: found_of(blocks, reference=name)["smc"].status for name in ("prior", "fit")}
    assert status == {"prior": "inconsistent", "fit": "inconsistent"}
    heavy = bridged(np.random.default_rng(9), sd=6.0, n=50)
    assert found_of(heavy)["smc"].status == "ok" != found_of(heavy)["bridge"].status
    found = found_of(heavy, reference="fit")
    assert found["smc"].status == found["bridge"].status
    assert "which would confirm it" in found["smc"].message


def test_an_evidence_without_bound():
    """What a survey of the posterior says holds for every estimate. Seed 8."""
    found = found_of(bridged(np.random.default_rng(8)), unbounded=True)
    assert {estimate.status for estimate in found.values()} == {"unbounded"}
    assert "excludes zero" in found["smc"].message


# --- energies of islands along the path ---


def test_energies_are_integrated_from_the_first_stage_to_the_end():
    """Stages hold the energies where they begin, and ``end`` the one at the target. Seed 9."""
    rng = np.random.default_rng(9)
    beta, energy = np.array([0.0, 0.3, 1.0]), rng.normal(5.0, 1.0, (4, 3))
    variance = rng.random((4, 3))

    def island(i):
        trace = StageTrace(energy[i, :2], variance[i, :2], np.ones(2), np.ones(2))
        end = energy[i, 2], variance[i, 2]
        return BlockRecord(i, np.ones(1), trace, relative_variance=0.1, end=end)

    blocks = [island(i) for i in range(4)]
    facts = Facts(estimated_likelihood=True)
    run = RunRecord("aisel", beta, {Role.FORWARD: blocks}, facts=facts)
    assert integrated(run) == [power_posterior(beta, energy, variance)]
    assert estimates(run)[-1] == integrated(run)[0]
    assert estimates(replace(run, facts=Facts())) == estimates(run)[:-1]
    energy[2, 0] = np.inf
    assert integrated(RunRecord("aisel", beta, {Role.FORWARD: [island(i) for i in range(4)]})) == []
