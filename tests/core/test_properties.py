"""What holds of all weights, numbers and records, and not only of those of the examples."""

import pickle
import re
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pm_evidence.core.numerics import (
    add_up,
    ess_share,
    log_mean_exp,
    log_sum_exp,
    normalised,
)
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.resampling import SCHEMES, resample
from pm_evidence.core.text import concise, decimals
from tests.strategies import floats, log_terms, powers, run_records, seeds, tables, weights

INF = np.inf

# --- sums of exponentials ---


def exact_log_sum(terms):
    """The same sum with 60 digits."""
    with localcontext(prec=60, Emin=-(10**9), Emax=10**9):
        return float(sum(Decimal(x).exp() for x in terms.tolist() if x > -INF).ln())


@settings(max_examples=5)
@given(terms=log_terms())
def test_log_sum_exp_against_sixty_digits(terms):
    exact = exact_log_sum(terms)
    assert log_sum_exp(terms) == pytest.approx(exact, rel=1e-14, abs=1e-13)
    assert log_mean_exp(terms) == pytest.approx(exact - np.log(terms.size), rel=1e-13, abs=1e-12)


@given(terms=log_terms(), shift=floats(-1e3, 1e3))
def test_weights_are_shares_and_their_effective_number_follows(terms, shift):
    """The effective share is ``1 / (n sum w**2)`` of the normalised weights.

    Sums of a shift and terms of up to a million are rounded in their tenth decimal.
    """
    weight = normalised(terms)
    assert weight.sum() == pytest.approx(1.0, rel=1e-12)
    assert (weight[terms == -INF] == 0.0).all() and (weight >= 0.0).all()
    share = ess_share(terms)
    assert share == pytest.approx(1.0 / (terms.size * np.sum(weight**2)), rel=1e-9)
    assert (1.0 - 1e-14) / terms.size <= share <= 1.0 + 1e-14
    np.testing.assert_allclose(normalised(terms + shift), weight, rtol=1e-9, atol=1e-300)


@given(rows=tables(5, floats(-100, 100)))
def test_rows_added_up_are_the_sum_of_the_rows(rows):
    """Also where a member loses its weight."""
    start, steps = rows[0], rows[1:]
    steps[-1, 0] = -INF
    kept = start.copy()
    last, share, accumulated = add_up(start, steps)
    np.testing.assert_array_equal(start, kept)  # what a step leaves of a population is its own
    np.testing.assert_allclose(last, start + steps.sum(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(share, [ess_share(row) for row in steps], rtol=1e-12)
    sums = start + np.cumsum(steps, axis=0)
    np.testing.assert_allclose(accumulated, [ess_share(row) for row in sums], rtol=1e-10)


# --- resampling ---


class Constant:
    """A generator whose every uniform draw is the same."""

    def __init__(self, value):
        self.value = value

    def random(self, size=None):
        return self.value if size is None else np.full(size, self.value)


n_drawn = st.integers(1, 300)


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "ssp"])
@settings(max_examples=25)
@given(weight=weights(max_size=8), m=st.integers(1, 11))
def test_counts_are_unbiased_by_an_integral_over_the_uniform(scheme, weight, m):
    """Exact, without any noise of sampling: these schemes use each uniform on its own.

    The expected count is then the integral of the counts over one common uniform, here by the
    midpoint rule; each of the jumps, two for a member, adds an error below ``m / n_nodes``.
    """
    nodes = 1000
    counts = np.zeros(weight.size)
    for k in range(nodes):
        chosen = resample(weight, m, Constant((k + 0.5) / nodes), scheme)
        counts += np.bincount(chosen, minlength=weight.size) / nodes
    np.testing.assert_allclose(counts, m * weight, atol=2.0 * m / nodes)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(weight=weights(), m=n_drawn, seed=seeds)
def test_indices_rise_and_are_members_with_weight(scheme, weight, m, seed):
    """Log weights of ``-inf``, and some that underflow, have no successors."""
    chosen = resample(weight, m, np.random.default_rng(seed), scheme)
    assert chosen.shape == (m,) and chosen.dtype == np.int64 and (np.diff(chosen) >= 0).all()
    assert (weight[chosen] > 0.0).all()
    again = resample(weight, m, np.random.default_rng(seed), scheme)
    np.testing.assert_array_equal(again, chosen)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(weight=weights(), m=n_drawn, uniform=floats(0, np.nextafter(1, 0)))
def test_no_uniform_draws_a_member_without_weight(scheme, weight, m, uniform):
    """The same draw for every uniform, both ends of [0, 1) included."""
    chosen = resample(weight, m, Constant(uniform), scheme)
    assert chosen.shape == (m,) and (np.diff(chosen) >= 0).all()
    assert (weight[chosen] > 0.0).all()


@given(weight=weights(), m=n_drawn, seed=seeds)
def test_counts_stay_near_their_expectation(weight, m, seed):
    """The low noise that these schemes promise."""
    counts = {
        scheme: np.bincount(
            resample(weight, m, np.random.default_rng(seed), scheme), minlength=weight.size
        )
        for scheme in ("systematic", "ssp", "stratified", "residual")
    }
    for scheme, distance in (("systematic", 1.0), ("ssp", 1.0), ("stratified", 2.0)):
        assert (np.abs(counts[scheme] - m * weight) < distance + 1e-9).all(), scheme
    assert (counts["residual"] >= np.floor(m * weight - 1e-9)).all()


# --- numbers as text ---

CONCISE = re.compile(r"(-?[\d.]+)\(([\d.]+)\)(?:e([+-]\d+))?")


@settings(max_examples=300)
@given(size=powers(-20, 19), sign=st.sampled_from([-1, 1]), share=powers(-9, 2))
def test_value_and_error_parse_back_within_half_a_digit(size, sign, share):
    """Of the value, half a unit of its last digit; of the error, half a unit of its own.

    A float adds one unit of its own last place, which for an error of 1e-9 of the value is up to
    1e-6 of the last digit. No more than 12 decimals are given of either.
    """
    value, error = sign * size, share * size
    number, digits, exponent = CONCISE.fullmatch(concise(value, error)).groups()
    scale = 10.0 ** int(exponent or 0)
    plain = error / scale
    rounded = round(plain, decimals(plain))
    if rounded == 0.0:  # an error below the last decimal that a float has
        assert digits == "0"
        return
    unit = 10.0 ** -decimals(rounded)
    inside = "." not in digits and rounded < 1.0
    read = float(digits) * (unit if inside else 1.0)
    last_place = np.spacing(abs(value / scale))
    assert abs(float(number) - value / scale) <= 0.5 * unit * (1.0 + 1e-9) + last_place
    assert abs(read - plain) <= 0.5 * 10.0 ** -decimals(plain) * (1.0 + 1e-6)
    assert read == pytest.approx(plain, rel=0.15, abs=0.5e-12)


# --- records ---


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
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        assert_same([*one.values()], [other[key] for key in one])
    elif hasattr(one, "__dataclass_fields__"):
        for name in one.__dataclass_fields__:
            assert_same(getattr(one, name), getattr(other, name))
    else:
        assert one == other or (one != one and other != other)


@settings(max_examples=20)
@given(run=run_records())
def test_records_come_back_from_other_processes_as_they_were(run):
    assert_same(pickle.loads(pickle.dumps(run)), run)


@given(
    value=floats(-1e6, 1e6) | st.just(-INF),
    mcse=floats(0, 1e6) | st.just(np.nan),
    half=floats(0, 1e6),
    dof=powers(0, 5) | st.just(INF),
)
def test_estimates_come_back_from_other_processes_as_they_were(value, mcse, half, dof):
    lower, upper = value - half, value + half
    found = LogEvidence(value, mcse, "bar", "no_error", lower, upper, "use more draws.", dof)
    assert_same(pickle.loads(pickle.dumps(found)), found)
