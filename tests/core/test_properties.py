"""What holds of all weights, numbers and records, and not only of those of the examples."""

import pickle
import re
from decimal import Decimal, localcontext

import numpy as np
import pytest

from pm_evidence.core.concise import concise, decimals
from pm_evidence.core.numerics import (
    add_up,
    ess_share,
    log_mean_exp,
    log_sum_exp,
    moments,
    normalised,
)
from pm_evidence.core.records import BlockRecord, LogEvidence, RunRecord, StageTrace
from pm_evidence.core.resampling import SCHEMES, resample

INF = np.inf
every_seed = pytest.mark.parametrize("seed", range(40))


def some_log_terms(rng, n=None):
    """Log terms over any range, some of which are ``-inf``, at least one of which is not."""
    n = int(rng.integers(1, 200)) if n is None else n
    terms = rng.normal(10.0 ** rng.uniform(-3, 5), 10.0 ** rng.uniform(-3, 3), n)
    terms[1:][rng.random(n - 1) < 0.2] = -INF
    return rng.permutation(terms)


# --- sums of exponentials ---


def exact_log_sum(terms):
    """The same sum with 60 digits."""
    with localcontext(prec=60, Emin=-(10**9), Emax=10**9):
        return float(sum(Decimal(x).exp() for x in terms.tolist() if x > -INF).ln())


@every_seed
def test_log_sum_exp_against_sixty_digits(seed):
    terms = some_log_terms(np.random.default_rng(seed))
    exact = exact_log_sum(terms)
    assert log_sum_exp(terms) == pytest.approx(exact, rel=1e-14, abs=1e-13)
    assert log_mean_exp(terms) == pytest.approx(exact - np.log(terms.size), rel=1e-13, abs=1e-12)


@every_seed
def test_sums_of_parts_are_the_sum(seed):
    """Blocks are added up by the sums of their own."""
    rng = np.random.default_rng(seed)
    terms = some_log_terms(rng, 50)
    parts = np.split(terms, np.sort(rng.integers(0, 51, 4)))  # some may be empty
    whole = log_sum_exp(terms)
    assert log_sum_exp(np.array([log_sum_exp(part) for part in parts])) == pytest.approx(whole)
    assert terms.max() <= whole <= terms.max() + np.log(terms.size) + 1e-9


@every_seed
def test_weights_are_shares_and_their_effective_number_follows(seed):
    """The effective share is ``1 / (n sum w**2)`` of the normalised weights."""
    rng = np.random.default_rng(seed)
    terms = some_log_terms(rng)
    weight = normalised(terms)
    assert weight.sum() == pytest.approx(1.0, rel=1e-12)
    assert (weight[terms == -INF] == 0.0).all() and (weight >= 0.0).all()
    assert ess_share(terms) == pytest.approx(1.0 / (terms.size * np.sum(weight**2)), rel=1e-9)
    shift = rng.normal(0.0, 1e3)
    np.testing.assert_allclose(normalised(terms + shift), weight, rtol=1e-8, atol=1e-300)


@every_seed
def test_rows_added_up_are_the_sum_of_the_rows(seed):
    rng = np.random.default_rng(seed)
    start, steps = rng.normal(size=33), rng.normal(size=(4, 33))
    last, share = add_up(start, steps)
    np.testing.assert_allclose(last, start + steps.sum(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(share, [ess_share(row) for row in steps], rtol=1e-12)


@every_seed
def test_moments_move_and_scale_with_the_values(seed):
    rng = np.random.default_rng(seed)
    table, shift, scale = rng.normal(size=(3, 50)), rng.normal(0.0, 100.0), rng.uniform(0.1, 10)
    mean, var = moments(table)
    moved_mean, moved_var = moments(scale * table + shift)
    np.testing.assert_allclose(moved_mean, scale * mean + shift, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(moved_var, scale**2 * var, rtol=1e-8)


# --- resampling ---


class Constant:
    """A generator whose every uniform draw is the same."""

    def __init__(self, value):
        self.value = value

    def random(self, size=None):
        return self.value if size is None else np.full(size, self.value)


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "ssp"])
@pytest.mark.parametrize("seed", range(10))
def test_counts_are_unbiased_by_an_integral_over_the_uniform(seed, scheme):
    """Exact, without any noise of sampling: these schemes use each uniform on its own.

    The expected count is then the integral of the counts over one common uniform, here by the
    midpoint rule; each of the jumps, two for a member, adds an error below ``m / n_nodes``.
    """
    rng = np.random.default_rng(seed)
    n, m, nodes = int(rng.integers(1, 9)), int(rng.integers(1, 12)), 1000
    weight = normalised(some_log_terms(rng, n))
    counts = np.zeros(n)
    for k in range(nodes):
        chosen = resample(weight, m, Constant((k + 0.5) / nodes), scheme)
        counts += np.bincount(chosen, minlength=n) / nodes
    np.testing.assert_allclose(counts, m * weight, atol=2.0 * m / nodes)


@pytest.mark.parametrize("scheme", SCHEMES)
@every_seed
def test_indices_rise_and_are_members_with_weight(seed, scheme):
    """Log weights of ``-inf``, and some that underflow, have no successors."""
    rng = np.random.default_rng(seed)
    weight = normalised(some_log_terms(rng))
    m = int(rng.integers(1, 300))
    chosen = resample(weight, m, np.random.default_rng(seed), scheme)
    assert chosen.shape == (m,) and (np.diff(chosen) >= 0).all()
    assert (weight[chosen] > 0.0).all()
    again = resample(weight, m, np.random.default_rng(seed), scheme)
    np.testing.assert_array_equal(again, chosen)


@every_seed
def test_systematic_and_ssp_round_the_expected_counts(seed):
    rng = np.random.default_rng(seed)
    weight, m = normalised(some_log_terms(rng)), int(rng.integers(1, 300))
    for scheme in ("systematic", "ssp"):
        counts = np.bincount(resample(weight, m, rng, scheme), minlength=weight.size)
        assert (np.abs(counts - m * weight) < 1.0 + 1e-9).all()


# --- numbers as text ---

CONCISE = re.compile(r"(-?[\d.]+)\(([\d.]+)\)(?:e([+-]\d+))?")


@every_seed
def test_value_and_error_parse_back_within_half_a_digit(seed):
    """Of the value, half a unit of its last digit; of the error, half a unit of its own."""
    rng = np.random.default_rng(seed)
    for _ in range(100):
        value = rng.normal() * 10.0 ** rng.uniform(-20, 20)
        error = abs(value) * 10.0 ** rng.uniform(-9, 3)
        number, digits, exponent = CONCISE.fullmatch(concise(value, error)).groups()
        scale = 10.0 ** int(exponent or 0)
        plain = error / scale
        rounded = round(plain, decimals(plain))
        if rounded == 0.0:  # an error below the last decimal that a float has
            assert digits == "0"
            continue
        unit = 10.0 ** -decimals(rounded)
        inside = "." not in digits and rounded < 1.0
        read = float(digits) * (unit if inside else 1.0)
        assert abs(float(number) - value / scale) <= 0.5 * unit * (1.0 + 1e-6)
        assert abs(read - plain) <= 0.5 * 10.0 ** -decimals(plain) * (1.0 + 1e-6)
        assert read == pytest.approx(plain, rel=0.15)


# --- records ---


def some_block(rng, index):
    n, n_stages = rng.integers(1, 5), 3
    draws = rng.normal(size=(n, 2)) if rng.random() < 0.5 else None
    return BlockRecord(
        index,
        np.where(rng.random(n) < 0.1, INF, rng.normal(size=n)),
        StageTrace(*rng.random((4, n_stages))),
        draws=draws,
        relative_variance=float(rng.random()),
        end=(float(rng.random()), float(rng.random())),
        bridge=(rng.normal(size=3), rng.normal(size=2)) if rng.random() < 0.5 else None,
        origin=rng.integers(0, 9, n),
        n_evaluations=int(rng.integers(100)),
    )


def some_run(rng):
    forward, reverse = ([some_block(rng, i) for i in range(rng.integers(1, 5))] for _ in range(2))
    return RunRecord(
        "ais", np.linspace(0, 1, 4), forward, reverse, info={"seed": int(rng.random())}
    )


def assert_same(one, other):
    """Equal to the last bit, whatever is nested in what."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif hasattr(one, "__dataclass_fields__"):
        for name in one.__dataclass_fields__:
            assert_same(getattr(one, name), getattr(other, name))
    else:
        assert one == other or (one != one and other != other)


@every_seed
def test_records_come_back_from_other_processes_as_they_were(seed):
    run = some_run(np.random.default_rng(seed))
    assert_same(pickle.loads(pickle.dumps(run)), run)
    estimate = LogEvidence(-1.5, float("nan"), "bar", "no_error", message="use more draws.")
    assert_same(pickle.loads(pickle.dumps(estimate)), estimate)


@every_seed
def test_work_and_origins_are_those_of_the_blocks_in_their_order(seed):
    run = some_run(np.random.default_rng(seed))
    ends = np.cumsum([block.work.size for block in run.reverse])[:-1]
    for joined, name in ((run.work_reverse, "work"), (run.origin, "origin")):
        for part, block in zip(np.split(joined, ends), run.reverse, strict=True):
            np.testing.assert_array_equal(part, getattr(block, name))
    assert run.work_forward.size == sum(block.work.size for block in run.forward)
    assert not run.of_islands
