"""What kind of values a variable takes, as far as its graph tells."""

import pymc as pm
import pytensor.tensor as pt
import pytest

from pm_evidence.targets.model.checks import Measure, adds_probability_to_density, measure_of

normal = pm.Normal.dist

CASES = {
    "normal": (lambda: normal(), Measure.CONTINUOUS),
    "shifted": (lambda: 2.0 * normal() + 1.0, Measure.CONTINUOUS),
    "count": (lambda: pm.Poisson.dist(2.0), Measure.DISCRETE),
    "rounded": (lambda: pt.round(normal()), Measure.DISCRETE),
    "clipped": (lambda: pt.clip(normal(), 0.0, 1.0), Measure.MIXED),
    "clipped at infinity": (
        lambda: pt.clip(normal(), -float("inf"), float("inf")),
        Measure.CONTINUOUS,
    ),
    "positive part": (lambda: pt.maximum(normal(), 0.0), Measure.MIXED),
    "censored": (lambda: pm.Censored.dist(normal(), lower=0.0, upper=None), Measure.MIXED),
    "truncated": (lambda: pm.Truncated.dist(normal(), lower=0.0), Measure.CONTINUOUS),
    "switched": (lambda: pt.switch(pm.Bernoulli.dist(0.5), normal(), 0.0), Measure.MIXED),
    "stacked": (lambda: pt.stack([normal(), normal()]), Measure.CONTINUOUS),
    "constant": (lambda: pt.exp(pt.constant(1.0)), Measure.FIXED),
}


@pytest.mark.parametrize("name", CASES)
def test_measure(name):
    """A variable with an atom has no density: annealing would weigh one against the other."""
    make, expected = CASES[name]
    assert measure_of(make()) == expected


def test_given_variables_count_as_known():
    x = normal()
    assert measure_of(pt.round(x), given=[x]) == Measure.FIXED


def test_mixtures_of_a_density_and_an_atom():
    def mixed(*parts):
        return pm.Mixture.dist([0.5, 0.5], list(parts))

    assert adds_probability_to_density(mixed(pm.DiracDelta.dist(0.0), normal()))
    assert not adds_probability_to_density(mixed(normal(), normal(3.0)))
