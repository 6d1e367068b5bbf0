"""How tempered chains moved between temperatures: occupation, exchanges, trips and a trace."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, check_kind, described
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import RunRecord, TemperedChains
from pm_evidence.plots import layout
from pm_evidence.results.record import to_record
from pm_evidence.schedules import rejection_rates

Floats = NDArray[np.float64]

_VISUALS = ("line", "point", "goal", "bars", "trace", "title", "xlabel", "ylabel")
# Label of each axis.
_PANELS = {
    "occupation": ("temperature (number)", "share of the states"),
    "rejection": ("pair of temperatures (number of the first)", "rejection rate"),
    "barrier": ("inverse temperature β", "sum of rejection rates"),
    "trips": ("number of round trips", "number of {group}"),
    "trace": ("iteration", "temperature (number)"),
}
_FEW = 40  # up to so many temperatures each gets a point
_MOST_ITERATIONS = 1000  # that the trace of a chain shows
_MOST_BINS = 30  # of the histogram of round trips


@usual_floats()
def plot_temperatures(
    dt: xr.DataTree,
    *,
    chain: int = 0,
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "layout.PlotCollection":
    """Plot how the chains of parallel or simulated tempering moved between temperatures.

    A good run visits all temperatures, rejects exchanges between all neighbours about equally
    often, and has chains that go from the reference to the target and back many times. Rejection
    rates near one show where temperatures are too far apart. A trace that stays in one part of the
    temperatures for long shows that the chains mix slowly.

    Parameters
    ----------
    dt : DataTree
        From ``sample_evidence`` with ``method="parallel_tempering"`` or ``"simulated_tempering"``.
    chain : int
        Number of the chain whose temperatures the last panel shows.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` by default.
    visuals : mapping of str to mapping or bool, optional
        Arguments of each part, or False to leave it out: ``line``, ``point`` (drawn up to 40
        temperatures), ``goal`` (dashed lines), ``bars`` (of the histogram), ``trace``, ``title``,
        ``xlabel``, ``ylabel``.
    figure_kwargs : mapping, optional
        Passed to the backend's ``create_plotting_grid``; ``figsize`` for instance.
    **pc_kwargs
        Passed to ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With the plots ``occupation``, ``rejection``, ``barrier``, ``trips`` and ``trace``. Call its
        ``show`` or ``savefig``.

    Raises
    ------
    TypeError
        If ``dt`` is not a DataTree.
    ValueError
        If it holds no tempered chains, there is no chain of this number, or ``visuals`` names an
        unknown part.

    Notes
    -----
    Temperatures are numbered from 0, the reference, to the target.

    - ``occupation``: share of the recorded states at each temperature. The dashed line is the prior
      over temperatures of simulated tempering (Carlson et al. 2016, section 2.1), or the equal
      share that parallel tempering has by construction.
    - ``rejection``: mean probability that an exchange between neighbours is rejected. For simulated
      tempering, which makes no exchanges, it is computed from the same states, and shows how much
      neighbouring distributions overlap. The dashed line is the rate at which all pairs would be
      equal. Pairs of temperatures that were not both visited have none.
    - ``barrier``: the sum of these rates up to each inverse temperature. Its end is an estimate of
      the communication barrier, and it rises fastest where the distribution changes most (Syed et
      al. 2022, Eq. 16).
    - ``trips``: histogram over ladders (over chains, for simulated tempering) of how often a chain
      went from the reference to the target and back. The title also counts the restarts, which are
      the ways from the reference to the target.
    - ``trace``: the temperatures of one chain, in its first 1,000 recorded iterations.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> dt = pe.sample_evidence(
    ...     pe.mixtures.Gaussian(),
    ...     method=pe.methods.ParallelTempering(ladders=16),
    ...     draws=1600,
    ...     target_mcse=None,
    ...     random_seed=1,
    ...     progressbar=False,
    ... )
    >>> collection = pe.plot_temperatures(dt, chain=3, backend="none")
    >>> list(collection.data)
    ['occupation', 'rejection', 'barrier', 'trips', 'trace']
    """
    figure = layout.Figure(visuals, _VISUALS, backend)
    run = _Run.of(dt)
    chain = check_count("chain", chain, 0, sum(len(each.ladder) for each in run.chains) - 1)
    pc_kwargs = {"cols": ["__variable__"], "col_wrap": 2, **pc_kwargs}
    panels = xr.Dataset(dict.fromkeys(_PANELS, 0.0))
    figure.open(panels, figure_kwargs, pc_kwargs, rows=6, cols=2)
    _draw_by_temperature(figure, run)
    _draw_trips(figure, run)
    iteration, rung, _ = run.rungs(chain)
    trace = layout.curve("trace", iteration, rung)
    figure.draw("trace", "line_xy", trace, color="C0", width=1)
    titles = _titles(run, chain)
    for name, (xlabel, ylabel) in _PANELS.items():
        ylabel = ylabel.format(group="ladders" if run.ladders else "chains")
        figure.labels(name, title=titles[name], xlabel=xlabel, ylabel=ylabel)
    last, highest = len(run.beta) - 1, float(max(run.occupation.max(), run.goal.max()))
    figure.limits("occupation", y=(0.0, 1.1 * highest))
    figure.limits("rejection", y=(-0.03, 1.03))
    figure.limits("trace", y=(-0.03 * last, 1.03 * last))
    for name, axes in {"occupation": "x", "rejection": "x", "trips": "xy", "trace": "y"}.items():
        figure.in_matplotlib(layout.whole_ticks, name, axes=axes)
    return figure.collection


@dataclass(frozen=True)
class _Run:
    """What is drawn of a run of tempering."""

    # shape (n_temperatures,): inverse temperatures, share of the states at each, and the share that
    # is wanted
    beta: Floats
    occupation: Floats
    goal: Floats
    # shape (n_temperatures - 1,): rejection rates between neighbours; NaN where one of them has no
    # states
    rates: Floats
    # shape (n_ladders,): round trips and restarts of the chains of each ladder
    trips: NDArray[np.int64]
    restarts: NDArray[np.int64]
    chains: tuple[TemperedChains, ...]  # the chains of each block
    ladders: bool  # whether a ladder has several chains

    @classmethod
    def of(cls, dt: Any) -> "_Run":
        """Return what is drawn of a result; raise if it holds no tempered chains."""
        record = _record_of(dt)
        chains, n = record.tempered, len(record.beta)
        energy = np.concatenate([each.energy.ravel() for each in chains])
        rung = np.concatenate([each.rung.ravel() for each in chains])
        prior = record.facts.tempering_prior or np.full(n, 1.0 / n)
        trips, restarts = (
            np.concatenate([_by_ladder(each, getattr(each, name)) for each in chains])
            for name in ("round_trips", "restarts")
        )
        return cls(
            record.beta,
            np.bincount(rung, minlength=n) / len(rung),
            np.array(prior, float),
            rejection_rates(record.beta, energy, rung),
            trips,
            restarts,
            chains,
            len(trips) < sum(len(each.ladder) for each in chains),
        )

    def rungs(self, chain: int) -> tuple[Floats, NDArray[np.int16], int]:
        """Return iterations and temperatures of a chain, and how many iterations there are."""
        for each in self.chains:
            if chain < len(each.ladder):
                rung = each.rung[:_MOST_ITERATIONS, chain]
                return each.every * np.arange(len(rung), dtype=float), rung, len(each.rung)
            chain -= len(each.ladder)
        raise AssertionError("the number of the chain was checked")


def _record_of(dt: Any) -> RunRecord:
    """Return the record of a run of tempering."""
    check_kind("dt", dt, xr.DataTree, "pass what sample_evidence returned")
    record = to_record(dt)
    if not any(each.energy.size for each in record.tempered):
        raise ValueError(
            "dt must hold chains that move between temperatures, got a run of method="
            f"{described(record.method)}; sample with method='parallel_tempering' or "
            "'simulated_tempering'."
        )
    return record


def _by_ladder(chains: TemperedChains, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sums over the chains of each ladder of a block."""
    sums = np.bincount(chains.ladder, counts)
    return sums[np.unique(chains.ladder)].astype(np.int64)


def _draw_by_temperature(figure: layout.Figure, run: _Run) -> None:
    """Draw occupation, rejection rates and barrier, and what the first two should be."""
    number = np.arange(len(run.beta))
    level = np.full(len(run.rates), np.nanmean(run.rates) if np.isfinite(run.rates).any() else 0.0)
    for goal in (
        layout.curve("occupation", number, run.goal),
        layout.curve("rejection", number[:-1], level),
    ):
        figure.draw("goal", "line_xy", goal, color="B3", linestyle="C1")
    for curve in (
        layout.curve("occupation", number, run.occupation),
        layout.curve("rejection", number[:-1], run.rates),
        layout.curve("barrier", run.beta, np.append(0.0, np.cumsum(run.rates))),
    ):
        figure.draw("line", "line_xy", curve, color="C0")
        if len(run.beta) <= _FEW:
            figure.draw("point", "scatter_xy", curve, color="C0", size=12)


def _draw_trips(figure: layout.Figure, run: _Run) -> None:
    """Draw the histogram of round trips, whose bins have whole widths."""
    low, high = int(run.trips.min()), int(run.trips.max())
    width = -(-(high - low + 1) // _MOST_BINS)
    edges = np.arange(low, high + 1 + width, width) - 0.5
    rows = np.stack([edges[:-1], edges[1:], np.histogram(run.trips, edges)[0].astype(float)])
    data = xr.Dataset(
        {"trips": (("plot_axis", "point"), rows)},
        coords={"plot_axis": ["left_edges", "right_edges", "histogram"]},
    )
    figure.draw("bars", "hist", data, color="C0", alpha=0.5)


def _titles(run: _Run, chain: int) -> dict[str, str]:
    """Return the title of each panel, which says what its dashed line is."""
    missing = int(np.isnan(run.rates).sum())
    unknown = f", {missing} unknown" if missing else ""
    wanted, exchanges = "prior", "Exchanges that would be rejected"
    if run.ladders:
        wanted, exchanges = "equal shares", "Rejected exchanges"
    _, rung, n_recorded = run.rungs(chain)
    shown = f", {len(rung):,} of {n_recorded:,} iterations" if n_recorded > len(rung) else ""
    return {
        "occupation": f"Occupation (dashed: {wanted})",
        "rejection": f"{exchanges} (dashed: equal rates{unknown})",
        "barrier": f"Communication barrier: {np.nansum(run.rates):.3g}",
        "trips": f"{int(run.trips.sum()):,} round trips, {int(run.restarts.sum()):,} restarts",
        "trace": f"Temperatures of chain {chain}{shown}",
    }
