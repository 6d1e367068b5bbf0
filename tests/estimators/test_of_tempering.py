"""All estimates of tempered chains, and when they are not to be trusted.

Chains are made up: their energies are those of AR(1) chains that start from their stationary
densities, on a ladder whose log normalising constants are exact.
"""

from dataclasses import replace

import numpy as np
import pytest

from pm_evidence.core.records import BlockRecord, Facts, Role, RunRecord, TemperedChains
from pm_evidence.estimators.of_run import applicable, estimates
from pm_evidence.estimators.of_tempering import of_tempering, others_of_tempering
from tests.estimators.ladders import BETA, LOG_Z, chains, log_z
from tests.estimators.runs import by_name

N_LADDERS, N = 20, 300


def block(index=0, seed=1, n=N, restarts=50, work=None, **changes):
    """A block of ladders, each with a chain at every temperature."""
    rng = np.random.default_rng([seed, index])
    energy, rung, ladder = chains(rng, n, N_LADDERS, 0.5)
    each = np.zeros(len(ladder), np.int64)
    each[0] = restarts
    found = TemperedChains(energy, rung.astype(np.int16), ladder, each, each // 2)
    work = -LOG_Z + 0.3 * rng.normal(size=N_LADDERS) if work is None else np.asarray(work)
    return BlockRecord(index, work, None, tempered=replace(found, **changes))


def record(*blocks, simulated=False, **info):
    facts = Facts(ladders=len(blocks) * N_LADDERS, **info)
    if simulated:
        uniform = [1.0 / len(BETA)] * len(BETA)
        facts = replace(facts, tempering_log_z=log_z().tolist(), tempering_prior=uniform)
    method = "simulated_tempering" if simulated else "parallel_tempering"
    return RunRecord(method, BETA, {Role.FORWARD: blocks}, facts=facts)


REST = ["stepping_stone", "stepping_stone_reverse", "ti", "smc"]


@pytest.mark.parametrize(
    ("simulated", "names"), [(False, ["mbar", *REST]), (True, ["rts", "mbar", "ti_rb", *REST])]
)
def test_every_estimate_is_right(simulated, names):
    """Within 5 errors of the exact constant: seeds 1 and 2; false-alarm rate 1e-6 each."""
    made = record(block(0, restarts=60), block(1, restarts=60), simulated=simulated)
    found = of_tempering(made)
    assert [each.estimator for each in found] == names
    assert [each.value for each in estimates(made)] == [each.value for each in found]
    others = {name: make() for name, make in others_of_tempering(made).items()}
    assert set(others) == {"chained_bar", "ti_riemann", "ti_trapezoid", *(["ts"] * simulated)}
    for each in found:
        assert abs(each.value - LOG_Z) < 5.0 * each.mcse, each
        assert each.status == "ok" or each.estimator == "ti"
    assert abs(others["chained_bar"].value - LOG_Z) < 5.0 * others["chained_bar"].mcse
    assert set(applicable(made)) == {*names, *others, "jarzynski", "lower_bound"}


def test_ladders_of_all_blocks_are_independent():
    """The error is that of their number, not of the number of states."""
    one, two = (of_tempering(record(*(block(i) for i in range(n))))[0].mcse for n in (1, 4))
    assert two == pytest.approx(one / 2.0, rel=0.4)
    twice = block()
    doubled = replace(twice.tempered, energy=np.repeat(twice.tempered.energy, 2, axis=0))
    doubled = replace(doubled, rung=np.repeat(twice.tempered.rung, 2, axis=0))
    same = of_tempering(record(replace(twice, tempered=doubled)))[0]
    assert same.value == pytest.approx(of_tempering(record(twice))[0].value, abs=1e-9)
    assert same.mcse == pytest.approx(one, rel=0.05)


@pytest.mark.parametrize(
    ("restarts", "message"),
    [
        (7, "chains came from the reference to the target only 7 times in 20 ladders, and at lea"),
        (0, "no chain came from the reference to the target in 20 ladders, and at least 40 times"),
        (39, "only 39 times"),
    ],
)
def test_chains_that_hardly_came_to_the_target(restarts, message):
    """Without restarts, chains have forgotten neither their first states nor others' modes."""
    first, *others = of_tempering(record(block(restarts=restarts)))
    assert first.status == "not_mixed" and message in first.message
    assert "Use more draws, more temperatures, or a kernel that mixes faster." in first.message
    assert of_tempering(record(block(restarts=40)))[0].status == "ok"
    assert np.isfinite([each.value for each in others]).all()
    if restarts == 39:  # and every ladder needs one on average
        first = of_tempering(record(*(block(i, restarts=19) for i in range(4))))[0]
        assert first.status == "not_mixed" and "at least 80 times" in first.message


def test_halves_of_a_record_that_contradict_each_other():
    """Chains that still drift give a value with a small error that is wrong."""
    made = block(restarts=100, work=np.full(N_LADDERS, np.inf))  # populations say nothing
    energy = made.tempered.energy.copy()
    energy[N // 2 :] += 1.0
    drifting = replace(made, tempered=replace(made.tempered, energy=energy))
    for simulated in (False, True):
        first = of_tempering(record(drifting, simulated=simulated))[0]
        assert first.status == "not_mixed"
        assert first.message.startswith("the first half of the iterations gives")
        assert "had not forgotten their first states. Use more draws." in first.message


@pytest.mark.parametrize(("shift", "wrong"), [(-3.0, "smc"), (3.0, "mbar")])
def test_the_populations_that_chains_start_from(shift, wrong):
    """Small ones are too low if they miss modes; if they are too high, the chains miss them."""
    rng = np.random.default_rng(1)
    work = -LOG_Z - shift + 0.1 * rng.normal(size=N_LADDERS)
    found = by_name(of_tempering(record(block(restarts=100, work=work))))
    status = {name: each.status for name, each in found.items()}
    assert status[wrong] == "inconsistent"
    assert status[{"smc": "mbar", "mbar": "smc"}[wrong]] == "ok"
    part = "too small to find all modes" if wrong == "smc" else "left out a part of the target"
    assert part in found[wrong].message
    without = by_name(of_tempering(record(block(restarts=100, work=np.full(N_LADDERS, np.inf)))))
    assert without["mbar"].status == "ok" and without["smc"].status == "no_support"


def test_importance_sampling_is_recommended_if_it_found_more():
    """From a density fitted to draws of a part of the target, with a reliable error."""
    rng = np.random.default_rng(4)
    made = block(restarts=100)
    checked = replace(made, bridge=(-LOG_Z - 2.0 + 0.05 * rng.normal(size=4000), np.empty(0)))
    first, second, *_ = of_tempering(record(checked))
    assert (first.estimator, second.estimator) == ("importance", "mbar")
    assert second.status == "missed_mass" and "the status of mbar is missed_mass" in first.message
    agreeing = replace(made, bridge=(-LOG_Z + 0.05 * rng.normal(size=4000), np.empty(0)))
    first, second, *_ = of_tempering(record(agreeing))
    assert (first.estimator, second.estimator) == ("importance", "mbar")
    assert first.status == second.status == "ok" and "because its error is" in first.message
    vague = replace(made, bridge=(-LOG_Z + 0.5 * rng.normal(size=400), np.empty(0)))
    names = [each.estimator for each in of_tempering(record(vague))]
    assert names == ["mbar", *REST, "importance"]


def test_initial_iterations_that_did_not_converge_are_named():
    """The estimate stays as it is: it is consistent with any weights."""
    made = record(block(restarts=60), simulated=True, initial_rounds=20, initial_deviation=0.46)
    plain = of_tempering(record(block(restarts=60), simulated=True))
    found = of_tempering(made)
    assert (found[0].value, found[0].status) == (plain[0].value, "ok") and not plain[0].message
    assert found[0].message.startswith("the initial iterations ended after 20 rounds, in the last ")
    assert "visited 46 % more or less often" in found[0].message
    assert found[1:] == plain[1:]
    few = record(block(restarts=7), simulated=True, initial_rounds=20, initial_deviation=0.46)
    first = of_tempering(few)[0]
    assert first.status == "not_mixed"
    assert "only 7 times" in first.message and "In addition, the initial" in first.message
    converged = record(block(restarts=60), simulated=True, initial_deviation=0.09)
    assert of_tempering(converged)[0].message == ""
