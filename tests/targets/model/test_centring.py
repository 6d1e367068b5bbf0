"""How far group effects are centred."""

from dataclasses import replace

import numpy as np
import pytest

from pm_evidence.targets.model.coordinates import AMOUNTS, Effects, best_centring, divergences

N, SIZE = 400, 8


def effects(noise_sd, seed=0, scale=1.0):
    """Draws whose effects are known up to ``noise_sd`` beside their free scale.

    Without data the noise is standard normal, whatever the scale; with precise data the effects
    themselves are known, so that the noise is nearly the effect over the scale.
    """
    rng = np.random.default_rng(seed)
    log_scale = 0.5 * rng.standard_normal(N)
    location = rng.standard_normal(N) * 0.1
    if noise_sd is None:
        noise = rng.standard_normal((N, SIZE))
    else:
        x = rng.standard_normal(SIZE) + noise_sd * rng.standard_normal((N, SIZE))
        noise = (x - location[:, None]) * np.exp(-log_scale)[:, None]
    wide = np.ones((1, SIZE))
    return Effects(
        noise, scale * location[:, None] * wide, (np.log(scale) + log_scale)[:, None] * wide
    )


def test_effects_without_data_are_not_centred():
    """Annealing would meet the funnel of the prior."""
    assert best_centring([effects(None)]).amount == (0.0,)


def test_effects_with_precise_data_are_centred():
    """Each effect would be correlated with its scale, along a curve."""
    (amount,) = best_centring([effects(0.01)]).amount
    assert amount > 0.9


def test_a_small_gain_is_none():
    """Effects with a long tail would be centred because a few others come nearer to normal."""
    rng = np.random.default_rng(3)
    log_scale = 0.2 * rng.standard_normal((4000, 1))
    noise = np.exp(-log_scale) * rng.standard_normal((4000, 1))
    found = [Effects(noise, 0 * noise, log_scale)]
    gains = divergences(found[0])[:, 0]
    assert 0.01 < gains[0] - gains.min() < 0.1
    assert best_centring(found).amount == (0.0,)


def test_exponential_tails_are_centred_less():
    """The shares of `tests/runs/test_vague_priors.py` had 85% coverage with the nearest amount."""
    found = effects(0.5)
    (nearest,), (least,) = (
        best_centring([replace(found, has_exponential_tail=tail)]).amount for tail in (False, True)
    )
    of_amounts = divergences(found).sum(axis=1)
    loss = dict(zip(AMOUNTS, of_amounts - of_amounts.min(), strict=True))
    assert loss[nearest] == 0.0
    assert least < nearest
    assert 0.0 < loss[least] < 0.1


def test_a_divergence_that_overflows():
    found = effects(0.5)
    assert best_centring([replace(found, noise=1e300 * found.noise)]).amount == (0.0,)


@pytest.mark.parametrize("noise_sd", [None, 0.01, 0.5])
def test_units_do_not_matter(noise_sd):
    """A model would be annealed in other coordinates if its data were in other units."""
    own, other = (best_centring([effects(noise_sd, scale=s)]) for s in (1.0, 1e6))
    assert own.amount == other.amount
    assert other.log_unit[0] == pytest.approx(own.log_unit[0] + np.log(1e6))


def test_divergences_are_least_for_normal_draws():
    """Another amount would be chosen than that in which draws are normal."""
    rng = np.random.default_rng(1)
    log_scale = 0.7 * rng.standard_normal((20_000, 1))
    z = rng.standard_normal((20_000, 1))
    normal_at = 0.4  # z = exp(0.4 * ratio) * noise is standard normal
    found = divergences(Effects(np.exp(-normal_at * log_scale) * z, 0 * z, log_scale))
    assert np.argmin(found[:, 0]) == 8


def test_a_constant_location_is_no_predictor():
    """The fit of a predictor without variation would add noise to the choice, or NaN."""
    found = effects(0.5)
    constant = Effects(found.noise, np.full_like(found.location, 3.0), found.log_scale)
    assert np.isfinite(divergences(constant)).all()
