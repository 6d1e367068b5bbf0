"""Rounds of simulated tempering together: exact shares, one round, and intervals that hold."""

import numpy as np
import pytest
from scipy.optimize import minimize

from pm_evidence.estimators import rts_combined, rts_combined_curve
from tests.estimators.ladders import (
    BETA,
    DEAD_IN_SHARES,
    DEAD_Z,
    HALVES,
    HALVES_Z,
    IN_SHARES,
    LOG_Z,
    coverage,
    draws,
    log_z,
    tempering,
)
from tests.estimators.refusals import check_refused

INF = np.inf
PRIOR = np.full(6, 1.0 / 6.0)
GUESSES = [log_z() * scale for scale in (0.6, 1.2, 0.9)]


def rounds_of(rng, sizes, guesses=GUESSES):
    """Independent states of rounds with different constants."""
    found = []
    for n, guess in zip(sizes, guesses, strict=True):
        weight = PRIOR * np.exp(log_z() - guess)
        rung = rng.choice(6, n, p=weight / weight.sum())
        found.append((draws(rng, rung), guess))
    return found


# --- values ---


def test_exact_shares():
    """Rounds in the proportions of their own q(x), in any numbers, give log Z exactly."""
    first, second = (IN_SHARES[name] for name in ("no constants", "constants"))
    rounds = [(np.tile(first[2], 5), first[0]), (second[2], second[0])]
    curve = rts_combined_curve(HALVES, rounds)
    np.testing.assert_allclose(curve.log_z, HALVES_Z, atol=1e-12)
    assert rts_combined(HALVES, rounds).value == pytest.approx(HALVES_Z[-1], abs=1e-12)
    dead = rts_combined_curve(HALVES, [(DEAD_IN_SHARES, np.zeros(3))] * 2)
    np.testing.assert_allclose(dead.log_z, DEAD_Z, atol=1e-12)


def test_it_is_the_maximum():
    """The likelihood of Appendix A, maximised by a general method. Seed 4."""
    rounds = rounds_of(np.random.default_rng(4), (100, 60, 80))

    def minus_log_likelihood(tail):
        log_z, value = np.append(0.0, tail), 0.0
        for energy, guess in rounds:
            logs = -np.outer(energy, BETA) - guess
            q = np.exp(logs - logs.max(axis=1, keepdims=True))
            q /= q.sum(axis=1, keepdims=True)
            value -= float(q.sum(axis=0) @ log_z)
            value += energy.size * np.log(np.exp(log_z - guess).sum())
        return value

    best = minimize(minus_log_likelihood, log_z()[1:], method="BFGS", options={"gtol": 1e-8})
    curve = rts_combined_curve(BETA, rounds)
    np.testing.assert_allclose(curve.log_z[1:], best.x, atol=1e-5)
    turned = rts_combined_curve(BETA, rounds[::-1])
    np.testing.assert_allclose(turned.log_z, curve.log_z, atol=1e-11)
    np.testing.assert_allclose(turned.mcse, curve.mcse, rtol=1e-9)
    assert minus_log_likelihood(curve.log_z[1:]) <= best.fun + 1e-9


# --- errors ---


def test_coverage_of_independent_states():
    """300 repetitions of three rounds, seed 6."""
    rng = np.random.default_rng(6)
    found = [rts_combined(BETA, rounds_of(rng, (200, 300, 250))) for _ in range(300)]
    assert 0.90 <= coverage(found, LOG_Z) <= 0.99


@pytest.mark.slow
def test_coverage_of_chains():
    """Chains that go on from round to round, 300 repetitions, seed 7."""
    rng, found, curves = np.random.default_rng(7), [], []
    for _ in range(300):
        rounds = [(tempering(rng, 60, 12, guess, PRIOR)[0], guess) for guess in GUESSES]
        found.append(rts_combined(BETA, rounds))
        curves.append(rts_combined_curve(BETA, rounds))
    assert 0.90 <= coverage(found, LOG_Z) <= 0.99
    spread = np.std([curve.log_z for curve in curves], axis=0)
    np.testing.assert_allclose(
        np.mean([curve.mcse for curve in curves], axis=0)[1:], spread[1:], rtol=0.15
    )


# --- what it cannot do ---


def test_ends_out_of_reach():
    """Shares below exp(-460) leave the equations, and the rest is still solved."""
    energy = np.linspace(900.0, 1000.0, 40)
    found = rts_combined(HALVES, [(energy, np.zeros(3)), (energy, np.zeros(3))])
    assert found.status == "dominated" and "no state is near beta=1" in found.message
    assert np.isfinite(found.value)


def test_likelihood_zero_everywhere():
    rounds = [([INF, INF], np.zeros(3)), ([INF], np.zeros(3))]
    assert rts_combined(HALVES, rounds).status == "no_support"
    with pytest.raises(ValueError, match=r"^rounds must be finite at one state"):
        rts_combined_curve(HALVES, rounds)
    one = [([1.0], np.zeros(3))]  # one state has no error
    assert np.isnan(rts_combined_curve(HALVES, one).mcse).all()
    assert rts_combined(HALVES, one).status == "no_error"


def test_wrong_rounds():
    """Rounds with other chains, or a part that is missing, would be combined as if they fitted."""
    chains = r"rounds\[1\]\[0\] must have the chains of the rounds before it"
    cases = [
        ([], "rounds must be a list of at least one pair"),
        (None, "rounds must be a list of at least one pair"),
        ([1.0], r"rounds\[0\] must be a pair"),
        ([([1.0], np.zeros(3)), ([1.0],)], r"rounds\[1\] must be a pair"),
        ([([np.nan], np.zeros(3))], r"rounds\[0\]\[0\] must be a number or inf"),
        ([([1.0], np.zeros(2))], r"rounds\[0\]\[1\] must have one value for each temperature"),
        ([([1.0], [0.0, 1.0, INF])], r"rounds\[0\]\[1\] must be finite"),
        ([(np.zeros((4, 2)), np.zeros(3)), (np.zeros((4, 3)), np.zeros(3))], chains),
        ([(np.zeros((4, 2)), np.zeros(3)), (np.zeros(4), np.zeros(3))], chains),
    ]
    check_refused(rts_combined, [((HALVES, rounds), f"^{text}") for rounds, text in cases])
