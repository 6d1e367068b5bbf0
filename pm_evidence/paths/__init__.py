"""Families of unnormalised densities between the reference and the target."""

from typing import TYPE_CHECKING

from pm_evidence.core.lazy import names_from

if TYPE_CHECKING:  # they are imported when they are asked for
    from pm_evidence.families.lattice.lattice import DetouredPath
    from pm_evidence.families.rbm.moment_average import MomentAveragedPath
    from pm_evidence.families.rbm.unit_path import UnitByUnitPath
    from pm_evidence.paths.data_points import DataPoints

__all__ = ["DataPoints", "DetouredPath", "MomentAveragedPath", "UnitByUnitPath"]

__getattr__, __dir__ = names_from(
    __name__,
    {
        "DataPoints": "pm_evidence.paths.data_points",
        "DetouredPath": "pm_evidence.families.lattice.lattice",
        "MomentAveragedPath": "pm_evidence.families.rbm.moment_average",
        "UnitByUnitPath": "pm_evidence.families.rbm.unit_path",
    },
)
