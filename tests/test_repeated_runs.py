"""The rules of repeated runs pass right ones, and catch planted errors."""

from dataclasses import replace

import numpy as np
import pytest

from tests import (
    test_coverage,
    test_coverage_bridge,
    test_coverage_pairs,
    test_coverage_plates,
    test_coverage_routes,
    test_coverage_tempering,
)
from tests.repeated_runs import Repeated
from tests.systems.exact import deceptive_systems, exact_systems

RULES = {
    "default": test_coverage.RULES,
    "bridge": test_coverage_bridge.RULES,
    "pairs": test_coverage_pairs.RULES,
    "plates": test_coverage_plates.RULES,
    "routes": test_coverage_routes.RULES,
    "tempering": test_coverage_tempering.RULES,
}
LISTS = [
    *(test_coverage.SYSTEMS, test_coverage.TWO_SIDED, [*test_coverage.COST]),
    *(*test_coverage_routes.SYSTEMS.values(), [*test_coverage_tempering.DRAWS]),
    *(test_coverage_bridge.COVERED, test_coverage_bridge.SAMPLED),
]


def planted(n, width=1.0, bias=0.0, sd=0.02):
    """Runs whose error bars have a wrong width, or whose estimates are off."""
    error, mcse = np.random.default_rng(6).normal(sd * bias, sd, n), np.full(n, sd * width)
    covered = np.abs(error) < 1.96 * mcse
    return Repeated(error, mcse, covered, np.ones(n, bool), np.zeros(n))


def check_caught(rules, repeated):
    with pytest.raises(AssertionError):
        rules.check(repeated)


@pytest.mark.parametrize("name", RULES)
def test_right_runs_pass_and_wrong_errors_are_caught(name):
    """Error bars too narrow, and estimates that are off; too wide ones where that is a rule."""
    rules = RULES[name]
    rules.check(planted(rules.n_runs))
    check_caught(rules, planted(rules.n_runs, width=0.6))
    check_caught(rules, planted(rules.n_runs, bias=1.0))
    if name != "plates":
        check_caught(rules, planted(rules.n_runs, width=1.8))


def test_large_errors_are_caught():
    check_caught(RULES["tempering"], planted(100, sd=0.06))


@pytest.mark.parametrize("name", RULES)
def test_runs_that_miss_a_mode_and_many_warnings_are_caught(name):
    """Runs that miss 40 % of Z, and say nothing, are too many; flagged they pass."""
    right = planted(RULES[name].n_runs)
    n = len(right.ok)
    missed = np.arange(n) < 0.05 * n
    error = np.where(missed, np.log(0.6), right.error)
    wrong = replace(right, error=error, covered=right.covered & ~missed)
    check_caught(RULES[name], wrong)
    RULES[name].check(replace(wrong, ok=~missed))
    check_caught(RULES[name], replace(right, ok=np.arange(n) % 4 > 0))


@pytest.mark.parametrize("name", ["default", "routes"])
def test_grave_errors_are_caught_in_few_runs(name):
    """With 40 runs what is left is error bars of half the width."""
    RULES[name].check(planted(40))
    check_caught(RULES[name], planted(40, width=0.5))
    check_caught(RULES[name], planted(40, bias=1.5))


def test_lists_of_systems():
    systems = exact_systems() | deceptive_systems()
    for names in LISTS:
        assert len(set(names)) == len(names) and set(names) <= systems.keys()
    assert set(test_coverage.SYSTEMS) >= test_coverage.COST.keys() | test_coverage.THREE_MODES
