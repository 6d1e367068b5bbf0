"""RAISE: unbiased for the annealing model, below the machine's likelihood, with right errors."""

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp

from pm_evidence.core.contracts import Plan
from pm_evidence.core.random import Phase, generator
from pm_evidence.core.records import Status
from pm_evidence.families.rbm.conservative import RaiseBlock, raise_likelihood
from pm_evidence.families.rbm.gibbs import BaseRatePath, BlockGibbs, UnitMetropolis
from pm_evidence.families.rbm.target import RBM
from tests.families.rbm.machines import bits, log_z, sine

VISIBLE = np.array(list(product([0, 1], repeat=4)), np.uint8)
HIDDEN = np.array(list(product([0, 1], repeat=3)), np.uint8)


def strong(latent="full"):
    """A machine whose annealing along few stages is far from complete."""
    rng = np.random.default_rng(5)
    w = rng.normal(0.0, 2.5, size=(4, 3))
    rates = np.full(3 if latent == "marginal" else 4, 0.3)
    return RBM(w, rng.normal(size=4), rng.normal(size=3), base=rates, latent=latent)


def states_of(machine):
    both = [np.hstack([v, h]) for v in VISIBLE for h in HIDDEN]
    return {"full": np.array(both), "visible": VISIBLE, "marginal": HIDDEN}[machine.latent]


def log_tables(machine, beta):
    """Log probabilities of all states at some inverse temperatures."""
    found = BaseRatePath(machine).at(states_of(machine)).log_density
    log_f = np.outer(beta, found.target) + np.outer(1.0 - beta, found.base)
    return log_f - logsumexp(log_f, axis=1, keepdims=True)


def gibbs_matrix(p):
    """From states (v, h) in order to the next: h given v, and then v given the new h."""
    table = p.reshape(len(VISIBLE), len(HIDDEN))
    h_given_v = table / table.sum(axis=1, keepdims=True)
    v_given_h = table / table.sum(axis=0, keepdims=True)
    step = np.einsum("vg,wg->vwg", h_given_v, v_given_h).reshape(len(VISIBLE), -1)
    return np.repeat(step, len(HIDDEN), axis=0)


def metropolis_matrix(p, states):
    """One sweep over the units of the layer that is annealed, in order."""
    index = states @ (1 << np.arange(states.shape[1])[::-1])
    matrix = np.eye(len(p))
    for unit in range(states.shape[1]):
        other = index ^ (1 << (states.shape[1] - 1 - unit))
        accept = np.minimum(p[other] / p, 1.0)
        step = np.diag(1.0 - accept)
        step[np.arange(len(p)), other] = accept
        matrix = matrix @ step
    return matrix


def annealing_model(machine, beta):
    """Exact probabilities of all visible states at the end of a forward path."""
    p = np.exp(log_tables(machine, beta))
    found = p[0]
    for row in p[1:]:
        full = machine.latent == "full"
        found = found @ (gibbs_matrix(row) if full else metropolis_matrix(row, states_of(machine)))
    if machine.latent == "full":
        return found.reshape(len(VISIBLE), -1).sum(axis=1)
    if machine.latent == "visible":
        return found
    rates = machine.visible_probabilities(HIDDEN)
    likely = np.where(VISIBLE[:, None] == 1, rates, 1.0 - rates).prod(axis=2)
    return likely @ found


def plan_of(machine, beta):
    kernel = BlockGibbs() if machine.latent == "full" else UnitMetropolis()
    return Plan(beta, (kernel,) * (len(beta) - 1))


def estimated(machine, visible, n_paths, beta, seed=1):
    rows = np.repeat(visible, n_paths, axis=0)
    block = RaiseBlock(machine, BaseRatePath(machine), plan_of(machine, beta), 0, rows, seed)
    return raise_likelihood(machine, visible, block().work.reshape(len(visible), n_paths))


def log_p(machine):
    log_f = -machine.free_energy(VISIBLE)
    return log_f - logsumexp(log_f)


@pytest.mark.parametrize("latent", ["full", "visible", "marginal"])
def test_likelihoods_are_those_of_the_annealing_model(latent):
    """Unbiased: means over 10,000 paths from each state, against products of transition matrices.

    Each of 16 states is held to 5 standard errors, a false-alarm rate of 1e-5 for each kind; the
    machine's own probabilities, which a path with other weights would give, are refuted.
    """
    machine, beta, n = strong(latent), np.array([0.0, 0.3, 0.8, 1.0]), 10_000
    exact = annealing_model(machine, beta)
    assert exact.sum() == pytest.approx(1.0)
    rows = np.repeat(VISIBLE, n, axis=0)
    block = RaiseBlock(machine, BaseRatePath(machine), plan_of(machine, beta), 0, rows, seed=1)
    weights = np.exp(block().work.reshape(16, n) - machine.free_energy(VISIBLE)[:, None])
    error = weights.std(axis=1, ddof=1) / np.sqrt(n)
    assert (np.abs(weights.mean(axis=1) - exact) < 5.0 * error).all()
    assert (np.abs(np.exp(log_p(machine)) - exact) > 5.0 * error).any()
    # and this mean is what the estimate is the log of
    found = raise_likelihood(machine, VISIBLE, block().work.reshape(16, n))
    np.testing.assert_allclose(found.of_examples, np.log(weights.mean(axis=1)), rtol=1e-9)


def test_it_approaches_the_machines_likelihood_from_below():
    """Exact gaps: the divergence of the machine from the annealing model falls with its stages."""
    machine, gaps = strong(), []
    exact = log_p(machine)
    for n_stages in (2, 10, 100):
        model = annealing_model(machine, np.linspace(0.0, 1.0, n_stages + 1))
        gaps.append(float(np.exp(exact) @ (exact - np.log(model))))
    assert gaps[0] > gaps[1] > gaps[2] > 0.0
    assert gaps[2] < 0.01 < gaps[0]


def test_it_is_close_to_the_exact_likelihood_with_many_stages():
    """Within 4 errors of the paths, and a bias of 0.01 nats: 16 x 12 units, seed 2."""
    machine, visible = sine(base="uniform"), bits(400, 16)
    exact = float(-machine.free_energy(visible).mean()) - log_z()
    found = estimated(machine, visible, 1, np.linspace(0.0, 1.0, 1001), seed=2)
    assert abs(found.average.value - exact) < 4.0 * found.average.mcse + 0.01
    assert found.average.mcse < 0.02
    assert found.average.status == Status.BOUND and "too low" in found.average.message
    assert found.average.value == pytest.approx(found.of_examples.mean())


@pytest.mark.parametrize("n_paths", [1, 2, 5])
def test_the_error_is_that_of_repeated_runs(n_paths):
    """400 runs with the same 20 examples; the ratio of variances has an error of 7 %.

    With one path the stated error also holds differences between the examples, so it may be larger.
    """
    machine, beta, visible = strong(), np.linspace(0.0, 1.0, 21), bits(20, 4, seed=8)
    runs = [estimated(machine, visible, n_paths, beta, seed).average for seed in range(400)]
    seen = np.var([run.value for run in runs], ddof=1)
    stated = np.mean([run.mcse**2 for run in runs])
    assert 0.7 < stated / seen < (5.0 if n_paths == 1 else 1.7)


def test_errors_of_paths_and_of_examples_are_apart():
    """Examples of one kind: more paths reduce the first error, and not the second one."""
    machine, visible = sine(base="uniform"), bits(50, 16)
    one, many = (estimated(machine, visible, n, np.linspace(0.0, 1.0, 201)) for n in (2, 40))
    assert many.average.mcse < 0.4 * one.average.mcse
    assert many.examples_mcse == pytest.approx(one.examples_mcse, rel=0.1)
    free = machine.free_energy(visible)
    assert many.examples_mcse == pytest.approx(free.std(ddof=1) / np.sqrt(50), rel=0.05)


def test_jackknife_of_two_paths_is_a_quarter_of_their_squared_difference():
    """And one path that outweighs the other by 1,000 nats leaves a finite error."""
    machine = strong()
    work = np.array([[1.0, 2.0], [0.5, 0.5], [3.0, 1003.0]])
    found = raise_likelihood(machine, VISIBLE[:3], work).average
    assert found.mcse == pytest.approx(np.sqrt((1.0 + 0.0 + 1000.0**2) / 4.0) / 3.0)
    assert found.dof == pytest.approx(1.0, abs=1e-5)


def test_paths_start_at_the_examples(monkeypatch):
    """Visible units are the examples, and hidden ones are drawn given them, by the block's seed."""
    machine, rows = strong(), VISIBLE[[3, 3, 9]]
    started = []
    monkeypatch.setattr(
        "pm_evidence.samplers.ais.AIS.run_reverse",
        lambda self, path, plan, block, start, *rest: started.append((block, start)),
    )
    plan = plan_of(machine, np.array([0.0, 1.0]))
    RaiseBlock(machine, BaseRatePath(machine), plan, 4, rows, seed=6)()
    ((block, start),) = started
    np.testing.assert_array_equal(start[:, :4], rows)
    expected = machine.states_given(rows, generator(6, Phase.START, 4))
    np.testing.assert_array_equal(start, expected)
    assert block == 4
