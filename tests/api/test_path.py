"""``sample_evidence(path=...)``: paths by name and as objects, and what is refused."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.families.lattice.lattice import LatticePath
from pm_evidence.testing.lattices import kaufman
from tests.api.refusals import check_refusals
from tests.models import shared

ISING = pe.lattices.Ising(6)


def sample(target, path, **kwargs):
    options = {"draws": 256, "target_mcse": None, "random_seed": 1, "progressbar": False}
    return pe.sample_evidence(target, path=path, **options | kwargs)


@pytest.mark.parametrize(
    "path", ["geometric", "detour", pe.paths.DetouredPath(ISING, height=1.0), LatticePath(ISING)]
)
def test_paths_of_a_lattice_lead_to_the_same_log_z(path):
    """Exact by Kaufman's formula."""
    found = pe.log_evidence(sample(ISING, path, method=pe.methods.AIS(n_stages=500)))
    assert abs(found.value - kaufman((6, 6), 1.0) + ISING.log_n_states) < 4 * found.mcse


def test_the_height_of_a_detour_changes_the_work():
    works = [
        sample(ISING, path, method=pe.methods.AIS(n_stages=200))["work"]["forward"].values
        for path in ("auto", "detour", pe.paths.DetouredPath(ISING, height=1.0))
    ]
    np.testing.assert_array_equal(works[0], works[1])
    assert (works[0] != works[2]).all()


def test_paths_that_cannot_be_used():
    model, gaussian = shared("normal").model, pe.mixtures.Gaussian()
    names = "path must be 'auto', 'geometric', 'data_points' or"
    other = LatticePath(pe.lattices.Ising(4))
    cases = [
        (model, "detour", ValueError, "path must be one of .* got 'detour'"),
        (model, LatticePath(ISING), ValueError, r"path must be .* pe\.extending\.ModelTarget"),
        (model, None, ValueError, names),
        (ISING, "moment_average", ValueError, "path must be one of"),
        (ISING, 3, TypeError, "path must be a name or a path object, got 3;"),
        (ISING, LatticePath, TypeError, "got the class LatticePath; leave it out"),
        (ISING, other, ValueError, "path must belong to the target"),
        (gaussian, "detour", ValueError, "path must be one of"),
        (gaussian, LatticePath(ISING), ValueError, "path must belong to the target"),
    ]
    check_refusals(
        sample, [({"target": target, "path": path}, *said) for target, path, *said in cases]
    )
