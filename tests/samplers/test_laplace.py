"""Laplace's reference: the exact posterior where it is normal, and every mode that ascents find."""

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.paths.geometric import Posterior
from pm_evidence.samplers.peaks import fit_laplace
from pm_evidence.targets.model.cache import target_of
from tests.kernels.exact import gaussian
from tests.systems.exact import exact_systems


def fitted(model, positions=None):
    return fitted_to(target_of(model), positions)


def fitted_to(target, positions=None):
    where = np.arange(target.n_dim) if positions is None else np.array(positions)
    posterior = Posterior(target)
    return posterior, *fit_laplace(posterior, where, np.random.default_rng(1))


def test_a_normal_posterior_is_found():
    """Every weight of an exact fit is the evidence; the wide component has 5 % of the draws."""
    posterior, reference, spent = fitted_to(gaussian().path.target)
    peak, wide = reference.components
    np.testing.assert_allclose(np.exp(reference.log_weight), [0.95, 0.05])
    x = peak.draw(200, np.random.default_rng(2))
    log_weight = posterior.log_density(x) - peak.log_density(x)
    np.testing.assert_allclose(log_weight, gaussian().log_evidence, atol=1e-2)
    assert wide.dof == 4 and peak.dof == np.inf and spent > 50


def test_all_modes_are_found():
    """Annealing from one of two modes finds half of the evidence."""
    _, reference, _ = fitted(exact_systems()["bimodal_10"].build())
    means = [component.shape.mean[0] for component in reference.components[:-1]]
    assert min(means) < -1.0 and max(means) > 1.0


def test_other_coordinates_are_integrated_out():
    """Circular coordinates are uniform in the reference."""
    _, reference, _ = fitted_to(gaussian().path.target, [1])
    _, whole, _ = fitted_to(gaussian().path.target)
    shape = whole.components[0].shape
    variance = float(shape.factor[1] @ shape.factor[1])
    assert float(reference.components[0].shape.factor[0, 0]) ** 2 == pytest.approx(variance)


def test_a_density_without_a_peak_is_refused():
    """A fit at a point on the way up would be meaningless."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0)
        pm.Potential("rises", pm.math.exp(pm.math.abs(x)))
    with pytest.raises(pe.NumericalError, match="needs a peak"):
        fitted(model)
