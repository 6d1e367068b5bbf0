"""Conditional draws of a mixture, each against the distribution that it should have.

Tests of Kolmogorov and Smirnov with 20,000 draws, at a false-alarm rate of 1e-5 each.
"""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.core.random import streams
from pm_evidence.families.mixture import (
    ROOM,
    Prior,
    draw_component,
    draw_means,
    draw_variances,
    draw_weights,
    log_gamma_draw,
    log_terms,
    pick,
    predict,
)

N, ALARM = 20_000, 1e-5
PRIOR = Prior(0.5, 0.25, 2.5, 1.5, 0.7)
Y = np.array([0.1, 2.0, -1.0, 0.7, 9.0])
Z = np.array([0, 1, 0, 0, -1], np.int8)  # the last point has not been added
MEAN, VARIANCE = np.array([-0.2, 1.5]), np.array([0.8, 2.0])


def each(draw, seed=1):
    return np.array([draw(stream) for stream in streams(np.random.SeedSequence(seed), N)])


def agrees(values, distribution):
    return stats.kstest(values, distribution.cdf).pvalue > ALARM


@pytest.mark.parametrize("shape", [0.01, 0.7, 1.0, 3.5, 200.0])
def test_gamma(shape):
    """Shapes below 1 are those of empty components."""
    room = np.empty(1)
    logs = each(lambda stream: log_gamma_draw(stream, shape, room))
    assert agrees(logs, stats.loggamma(shape))


def test_means():
    """The point that has not been added must not count."""
    room, mean = np.empty((ROOM, 2)), np.empty(2)

    def draw(stream):
        draw_means(Y, Z, PRIOR, mean, VARIANCE, room, stream)
        return mean.copy()

    found = each(draw)
    for j, (n, total) in enumerate([(3, -0.2), (1, 2.0)]):
        precision = 0.25 + n / VARIANCE[j]
        centre = (0.25 * 0.5 + total / VARIANCE[j]) / precision
        assert agrees(found[:, j], stats.norm(centre, precision**-0.5))


@pytest.mark.parametrize("shared", [False, True])
def test_variances(shared):
    room, variance = np.empty((ROOM, 2)), np.empty(1 if shared else 2)

    def draw(stream):
        draw_variances(Y, Z, PRIOR, MEAN, variance, room, stream)
        return variance.copy()

    found = each(draw)
    squares = [((Y[[0, 2, 3]] + 0.2) ** 2).sum(), 0.25]
    sizes = [3, 1]
    if shared:
        squares, sizes = [sum(squares)], [4]
    for j, (square, n) in enumerate(zip(squares, sizes, strict=True)):
        exact = stats.invgamma(2.5 + 0.5 * n, scale=1.5 + 0.5 * square)
        assert agrees(found[:, j], exact)


def test_weights():
    room, weight = np.empty((ROOM, 2)), np.empty(2)

    def draw(stream):
        draw_weights(Z, PRIOR, weight, room, stream)
        assert abs(weight.sum() - 1.0) < 1e-12
        return weight[0]

    assert agrees(each(draw), stats.beta(3.7, 1.7))


def test_components_given_parameters():
    """Shares of draws, and the density of the mixture."""
    room, weight = np.empty((ROOM, 2)), np.array([0.3, 0.7])
    log_terms(VARIANCE, weight, room)
    terms = weight * stats.norm.pdf(0.6, MEAN, VARIANCE**0.5)
    found = [
        draw_component(0.6, MEAN, VARIANCE, room, stream)
        for stream in streams(np.random.SeedSequence(4), N)
    ]
    assert stats.binomtest(sum(found), N, terms[1] / terms.sum()).pvalue > ALARM


def test_components_without_weight_are_never_drawn():
    """Weights of sparse priors underflow to 0, whose log is -inf."""
    room = np.empty((ROOM, 2))
    log_terms(VARIANCE, np.array([0.0, 1.0]), room)
    stream = streams(np.random.SeedSequence(4), 1)[0]
    for y in (0.0, 1e20, -1e40):
        assert draw_component(y, MEAN, VARIANCE, room, stream) == 1


def test_prediction_integrates_means_and_weights_out():
    """Against draws of both given the points of a component: 4 errors, one seed in 16,000."""
    room = np.empty((ROOM, 2))
    found = predict(0.6, Y, Z, PRIOR, VARIANCE, 2, room)
    shares = np.array([3.7, 1.7]) / 5.4
    precision = 0.25 + np.array([3, 1]) / VARIANCE
    centre = (0.125 + np.array([-0.2, 2.0]) / VARIANCE) / precision
    terms = shares * stats.norm.pdf(0.6, centre, (VARIANCE + 1.0 / precision) ** 0.5)
    assert found == pytest.approx(np.log(terms.sum()), rel=1e-12)
    ones = sum(pick(room, 2, stream) for stream in streams(np.random.SeedSequence(5), N))
    assert stats.binomtest(int(ones), N, terms[1] / terms.sum()).pvalue > ALARM
