"""The contracts of paths on which data, or variables, are added."""

from pm_evidence.core.growing import FindsSteps, Growing, Reseedable
from pm_evidence.families.rbm.unit_path import UnitByUnitPath
from pm_evidence.paths.data_points import DataPointsPath
from pm_evidence.paths.geometric import GeometricPath
from tests.paths.chain import ChainPath, chain


def test_paths_say_what_they_can_do():
    """Samplers ask by these contracts: a path that lacks a method would be treated as another."""
    steps = {
        GeometricPath(None): (),
        DataPointsPath(None): (FindsSteps, Growing),
        ChainPath(chain()): (Growing,),
    }
    for path, expected in steps.items():
        found = tuple(kind for kind in (FindsSteps, Growing, Reseedable) if isinstance(path, kind))
        assert found == expected, path
    assert hasattr(UnitByUnitPath, "reseeded")
    assert hasattr(UnitByUnitPath, "can_reseed")
