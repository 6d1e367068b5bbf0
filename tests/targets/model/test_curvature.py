"""The rules for sums, products and powers of functions of known curvature."""

import numpy as np
import pytest

from pm_evidence.targets.model.concavity import (
    AFFINE,
    CONCAVE,
    CONVEX,
    UNKNOWN,
    Function,
    composed,
)


def test_sums_are_what_all_terms_are():
    assert CONVEX & AFFINE == CONVEX and CONVEX & CONCAVE == UNKNOWN and -CONVEX == CONCAVE


@pytest.mark.parametrize(
    ("outer", "inner", "rises", "expected"),
    [
        (CONVEX, AFFINE, False, CONVEX),
        (CONVEX, CONVEX, True, CONVEX),
        (CONVEX, CONCAVE, True, UNKNOWN),
        (CONCAVE, CONCAVE, True, CONCAVE),
        (CONVEX, CONVEX, False, UNKNOWN),
        (UNKNOWN, AFFINE, True, UNKNOWN),
    ],
)
def test_compositions(outer, inner, rises, expected):
    assert composed(outer, inner, rises=rises) == expected


def test_products_with_constants_of_both_signs_are_only_known_of_affine_functions():
    mixed = Function.constant([-1.0, 2.0])
    assert (Function(AFFINE) * mixed).curvature == AFFINE
    assert (Function(CONVEX) * mixed).curvature == UNKNOWN
    assert (Function(CONVEX) * Function.constant([-1.0, 0.0])).curvature == CONCAVE


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_constants_that_are_not_finite_make_everything_unknown(value):
    constant = Function.constant([1.0, value])
    assert (Function(AFFINE) + constant).curvature == UNKNOWN
    assert (Function(AFFINE) * constant).curvature == UNKNOWN
    assert constant.log is None and not constant.is_finite


def test_a_choice_looks_at_chosen_constants_alone():
    """A density is minus infinity where data are impossible, and this must not count elsewhere."""
    impossible, mask = Function.constant([-np.inf, 1.0]), np.array([False, True])
    assert impossible.chosen(Function(CONCAVE), mask).curvature == CONCAVE
    assert impossible.chosen(Function(CONCAVE), ~mask).curvature == UNKNOWN
    assert Function(CONVEX).chosen(Function(CONCAVE)).curvature == UNKNOWN


def test_one_minus_a_probability():
    probability = Function(UNKNOWN, CONCAVE, CONCAVE, 0.0, 1.0)
    rest = Function.constant(1.0) + -probability
    assert rest.log == CONCAVE and (rest.low, rest.high) == (0.0, 1.0)
    assert (Function.constant(2.0) + -probability).log is None


@pytest.mark.parametrize(
    ("power", "curvature"), [(2.0, CONVEX), (0.5, CONCAVE), (-1.0, CONVEX), (1.0, CONCAVE)]
)
def test_powers_of_a_positive_concave_function(power, curvature):
    x = Function(CONCAVE, CONCAVE, low=0.0)
    expected = UNKNOWN if power == 2.0 else curvature
    assert x.to_power(power).curvature == expected
    assert Function(AFFINE).to_power(power).curvature == {1.0: AFFINE, 2.0: CONVEX}.get(
        power, UNKNOWN
    )
