"""What the user gives as reference: found, checked, and refused before it costs time."""

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.runs.references import (
    check_reference_argument,
    with_reference,
)
from pm_evidence.runs.rounds import Run
from pm_evidence.targets.model.cache import target_of
from tests.references.densities import InPython
from tests.systems.exact import exact_systems

SYSTEMS = exact_systems()
NORMAL = pe.references.Normal([0.0], [1.0])


def resolved(target, reference, seed=1):
    return with_reference(Run(pe.methods.SMC(), 200, 1, None, seed, reference=reference), target)


def target(name):
    return target_of(SYSTEMS[name].build())


def test_other_arguments_are_refused():
    """A misspelt name would anneal from the prior in silence, or something fail deep in a run."""
    for name in ("pathfinder", "Prior", "", "auto"):
        with pytest.raises(ValueError, match="reference must be one of"):
            check_reference_argument(name)
    for value in (3, None, [0.0], np.zeros(3), pe.references.Normal, {"mean": 0}):
        with pytest.raises(TypeError, match=r"be 'prior', 'laplace', 'fit', a DataTree"):
            check_reference_argument(value)


def test_the_prior_is_the_target_itself():
    """Runs from the prior would cost more than before."""
    main = target("normal_mean")
    assert resolved(main, "prior") is main
    circle, whole = target("von_mises"), target("sprinkler")
    assert resolved(circle, "laplace") is circle and resolved(whole, "fit") is whole


def test_kinds_are_recorded_with_the_trial():
    """A stored result would not say what it was annealed from."""
    main = target("normal_mean")
    for reference, kind in (("laplace", "laplace"), ("fit", "fit"), (NORMAL, "given")):
        found = resolved(main, reference)
        assert found.facts["reference"] == kind and found.facts["cross_check"].mcse > 0.0
        assert found.n_evaluations > 512 and found.known is not None


def test_a_posterior():
    """Draws of the user's are fitted; those of another model, or too few, are refused."""
    main = target("normal_mean")
    dt = pe.sample_evidence(main.model, random_seed=1, progressbar=False, target_mcse=None)
    found = resolved(main, dt)
    assert found.facts["reference"] == "posterior"
    with pytest.raises(ValueError, match="reference must hold at least 50 posterior draws"):
        resolved(main, _few(dt, 1))
    other = target("gaussian_10")
    with pytest.raises(ValueError, match="reference must hold"):
        resolved(other, dt)
    missing = dt.copy()
    missing["posterior"] = missing["posterior"].to_dataset().rename(mu="nu")
    with pytest.raises(ValueError, match="reference must hold draws of 'mu'"):
        resolved(main, missing)


def _few(dt, n):
    few = dt.copy()
    few["posterior"] = few["posterior"].to_dataset().isel(draw=slice(n))
    return few


def test_wrong_dimensions():
    """Compiled code would read beyond the point."""
    with pytest.raises(ValueError, match=r"density of 1 coordinates.*mu \(1\), got one of 2"):
        resolved(target("normal_mean"), pe.references.Normal([0.0, 0.0], np.eye(2)))
    with pytest.raises(ValueError, match=r"draws of shape \(n, 10\)"):
        resolved(target("gaussian_10"), InPython(NORMAL))
    with pytest.raises(ValueError, match="all discrete or circular"):
        resolved(target("sprinkler"), NORMAL)


def test_models_without_the_parts_are_refused():
    """Weights would not be exact, or there is nothing to climb."""
    with pytest.raises(pe.ModelError, match="needs a gradient and continuous variables only"):
        resolved(target("spike_and_slab"), "laplace")
    with pytest.raises(pe.ModelError, match="depends on"):
        resolved(target("dirichlet_mixture"), "fit")
    with pytest.raises(pe.ModelError, match="a transform cuts off"):
        resolved(target("interval_cut_normal"), "fit")
    with pytest.raises(ValueError, match="native targets"):
        resolved(pe.mixtures.Gaussian(), "fit")
    with pytest.raises(ValueError, match="along data points"):
        resolved(pe.paths.DataPoints().of(target("normal_mean")), "fit")


def test_a_check_that_fails_is_said():
    """Where annealing from the prior is hopeless, a reference near the posterior is the remedy."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1e-3)
        pm.Potential("far", pm.math.switch(mu > 0.05, 0.0, -np.inf))
    near = pe.references.Normal([0.06], [1e-4])
    with pytest.warns(pe.EvidenceWarning, match="that checks the reference did not reach"):
        found = resolved(target_of(model), near)
    assert found.known is None and found.facts == {"reference": "given"}
    with pytest.raises(pe.NumericalError):
        resolved(target_of(model), "fit")
