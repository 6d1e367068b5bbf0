"""What comes back if several models are run and compared in one call."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

import xarray as xr

from pm_evidence.results.table import EvidenceTable

__all__ = ["ModelComparison"]


@dataclass(frozen=True, slots=True, eq=False)
class ModelComparison:
    """A table of models, and the run of each.

    Parameters
    ----------
    table : EvidenceTable
        The models with their evidence, best first; see ``pe.compare``.
    results : mapping of str to DataTree
        The result for each model, as ``sample_evidence`` returned it, or as it was given.
    first_runs : mapping of str to DataTree
        The coarse results of those models that were run a second time, with more effort.
    failed : mapping of str to str
        Models that could not be run, which are not in the table, and why.
    """

    table: EvidenceTable
    results: Mapping[str, xr.DataTree]
    first_runs: Mapping[str, xr.DataTree] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "\n".join([repr(self.table), *(f"{each}." for each in self._remarks())])

    def _repr_html_(self) -> str:
        remarks = "".join(f"<li>{escape(each)}</li>" for each in self._remarks())
        table = self.table._repr_html_() or ""
        return f"{table}<ul>{remarks}</ul>" if remarks else table

    def _remarks(self) -> list[str]:
        """Return what the table does not show."""
        found = [f"{name} is left out: {why}" for name, why in self.failed.items()]
        coarse = [name for name in self.results if name not in self.first_runs]
        if self.first_runs and coarse:
            names = ", ".join(coarse)
            found.append(f"Run once only, as the comparison needs no smaller error: {names}")
        return found
