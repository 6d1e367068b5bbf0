"""A run stage by stage, or temperature by temperature."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, check_kind, described
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import Role, TemperedChains
from pm_evidence.plots import layout
from pm_evidence.results import schema
from pm_evidence.results.datatree import to_record
from pm_evidence.results.stored import group_of
from pm_evidence.schedules import rejection_rates

Floats = NDArray[np.float64]

# Title and label of each panel.
_OF_STAGES = {
    "beta": ("Inverse temperature", "inverse temperature β"),
    "ess": ("ESS of each step", "effective sample size (share)"),
    "acceptance": ("Acceptance", "acceptance probability"),
    "energy_mean": ("Mean energy", "mean energy (nats)"),
    "path_ess": ("ESS of all steps so far", "effective sample size (share)"),
}
# A stage is good above the first value and bad below the second one. An effective sample size of
# half of the population is the usual threshold for resampling; at a tenth, 1,000 particles are
# worth 100. The optimal acceptance rate is 0.23 for a random walk (Roberts, Gelman and Gilks 1997)
# and 0.65 for HMC (Beskos et al. 2013); below 0.05 most states of a short chain never move.
_REFERENCES = {"ess": (0.5, 0.1), "acceptance": (0.2, 0.05)}
_FEW = 40  # stages or temperatures, up to which each gets a point
_WIDE_RANGE = 100.0  # largest over smallest energy above which the axis is logarithmic
# Label of each axis.
_OF_TEMPERING = {
    "occupation": ("temperature (number)", "share of the states"),
    "rejection": ("pair of temperatures (number of the first)", "rejection rate"),
    "barrier": ("inverse temperature β", "sum of rejection rates"),
    "trips": ("number of round trips", "number of {group}"),
    "trace": ("iteration", "temperature (number)"),
}
_MOST_ITERATIONS = 1000  # that the trace of a chain shows
_MOST_BINS = 30  # of the histogram of round trips


@usual_floats()
def plot_schedule(
    dt: xr.DataTree | Mapping[str, xr.DataTree],
    *,
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "layout.PlotCollection":
    """Plot inverse temperature, sample sizes, acceptance and energy against the stage.

    With a good schedule the effective sample size is about the same at all stages. A dip shows
    where the schedule needs more stages, and a low acceptance rate where the kernel needs other
    settings. Stages above the dashed lines are good, and those below the dotted lines are bad.
    Runs of independent paths have a fifth panel: the effective sample size of the weights that
    the paths have accumulated so far, which falls most where most of the error arises.

    Parameters
    ----------
    dt : DataTree, or mapping of str to DataTree
        From ``sample_evidence``; a mapping draws several runs in different colours.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` by default.
    visuals : mapping of str to mapping or bool, optional
        Arguments of each part, or False to leave it out: ``line``, ``point`` (drawn up to 40
        stages), ``good`` and ``bad`` (the reference lines), ``title``, ``xlabel``, ``ylabel``,
        ``legend``.
    figure_kwargs : mapping, optional
        Passed to the backend's ``create_plotting_grid``; ``figsize`` for instance.
    **pc_kwargs
        Passed to ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With one plot per variable of the group ``annealing``: ``beta``, ``ess``,
        ``acceptance``, ``energy_mean``, and ``path_ess`` unless it equals ``ess``. Call its
        ``show`` or ``savefig``.

    Raises
    ------
    TypeError
        If ``dt`` is neither a DataTree nor a mapping of them.
    ValueError
        If a DataTree has no group ``annealing``, there is none, or ``visuals`` names an unknown
        part.

    Notes
    -----
    Stages are numbered from 1. Stage ``k`` ends at the inverse temperature that the first panel
    shows at ``k``, where its effective sample size and acceptance rate are drawn as well. Each
    energy is drawn at the inverse temperature at which its population was last moved: the beginning
    of a stage on forward paths, the end of a stage on reverse paths. Islands also have an energy at
    the end.

    ``ess`` is the effective sample size of the weights of a single step, for all methods and in
    both directions. It shows whether the step is short enough. ``path_ess`` is that of the weights
    accumulated over all steps so far, ``1 / (1 + s**2)`` with ``s**2`` the relative variance of the
    weights (Kiwaki 2015, Eq. 5 and Fig. 4). Reverse paths accumulate theirs from the last stage to
    the first, so that it is drawn where each of their stages ends, at the left. Both are averages
    over blocks of paths. Populations that are resampled at every stage have no weights from earlier
    ones: both sizes are then equal, and the second is not drawn.

    The energy is drawn on a logarithmic axis when it is positive throughout and spans more than
    two decades; the label of the axis says so. The bokeh backend of arviz-plots always has a linear
    axis. Lines of reverse paths are dashed.
    """
    parts = ("line", "point", "good", "bad", *layout.AXES, "legend")
    figure = layout.Figure(parts, visuals, backend, figure_kwargs, pc_kwargs)
    data = _gathered(dt)
    rows = 4 if schema.PATH_ESS not in data else 6
    figure.open(data, rows, 2, cols=["__variable__"], col_wrap=2, aes=_aesthetics(data))
    for place, name in enumerate(("good", "bad")):
        heights = xr.Dataset({panel: pair[place] for panel, pair in _REFERENCES.items()})
        look: dict[str, Any] = {"color": "B3", "width": 1, "linestyle": f"C{place + 1}"}
        figure.draw(name, "hline", heights, ignore_aes="all", **look)
    plain = {} if "color" in figure.collection.aes_set else {"color": "C0"}
    lines = data
    if data.sizes[schema.DIRECTION] == 1:
        lines = data.isel({schema.DIRECTION: 0}, drop=True)
    figure.draw("line", "line", lines, xname=schema.STAGE, **plain)
    if data.sizes[schema.STAGE] <= _FEW + 1:
        ignored = {"linestyle"} & figure.collection.aes_set
        figure.draw(
            "point", _points, lines, xname=schema.STAGE, ignore_aes=ignored, size=12, **plain
        )
    _draw_frames(figure, data)
    return figure.collection


def _gathered(dt: xr.DataTree | Mapping[str, xr.DataTree]) -> xr.Dataset:
    """Return the drawn variables of all runs, with a dimension ``model`` when there are more."""
    runs = {"": dt} if isinstance(dt, xr.DataTree) else dt
    if not isinstance(runs, Mapping) or not runs:
        raise TypeError(
            f"dt must be a DataTree or a mapping with one or more, got {type(dt).__name__}; pass "
            "what sample_evidence returned."
        )
    datasets = [_drawn(name, run) for name, run in runs.items()]
    if not any(_has_weights(data) for data in datasets):
        datasets = [data.drop_vars(schema.PATH_ESS) for data in datasets]
    if len(datasets) == 1:
        return datasets[0]
    names = xr.DataArray(np.array(list(runs), dtype=np.str_), dims="model", name="model")
    return xr.concat(datasets, dim=names, join="outer")


def _has_weights(data: xr.Dataset) -> bool:
    """Return whether a run accumulates weights over more than one step."""
    if Role.FORWARD.value not in data[schema.DIRECTION].values:  # a part of a stored result
        return False
    forward = data.sel({schema.DIRECTION: [Role.FORWARD.value]})
    path_ess = forward[schema.PATH_ESS]
    return bool(path_ess.notnull().any()) and not np.array_equal(
        path_ess.values, forward["ess"].values, equal_nan=True
    )


def _drawn(name: str, run: Any) -> xr.Dataset:
    """Return each quantity by stage, from 0 (before the first stage) to the last stage."""
    parameter = f"dt[{name!r}]" if name else "dt"
    group = group_of(run, schema.ANNEALING, parameter)
    if schema.PATH_ESS not in group:  # blocks without it, or a file of an earlier version
        group = group.assign({schema.PATH_ESS: xr.full_like(group["ess"], np.nan)})
    data = group[list(_OF_STAGES)]
    data = data.where(np.isfinite(data)).drop_attrs()
    n_stages = data.sizes[schema.STAGE]
    every = {schema.STAGE: np.arange(n_stages + 1)}
    energy = _placed(data["energy_mean"], begins=Role.FORWARD)
    if schema.ENERGY_END in group:
        last = energy[schema.STAGE] == n_stages
        energy = energy.where(~last | energy.notnull(), group[schema.ENERGY_END])
    ends = data[["ess", "acceptance"]].assign_coords({schema.STAGE: np.arange(1, n_stages + 1)})
    # beta gets a direction as well, because arviz-plots would give it a separate legend entry
    return xr.Dataset(
        {
            "beta": data["beta"]
            .rename({schema.BETA_POINT: schema.STAGE})
            .assign_coords(every)
            .expand_dims({schema.DIRECTION: data[schema.DIRECTION]}),
            **ends.reindex(every),
            "energy_mean": energy,
            schema.PATH_ESS: _placed(data[schema.PATH_ESS], begins=Role.REVERSE),
        }
    )


def _placed(values: xr.DataArray, *, begins: Role) -> xr.DataArray:
    """Return values by stage from 0 to the last, those of one direction where stages begin."""
    n_stages = values.sizes[schema.STAGE]
    parts = [
        values.sel({schema.DIRECTION: [direction]})
        .assign_coords({schema.STAGE: np.arange(n_stages) + (direction != begins)})
        .reindex({schema.STAGE: np.arange(n_stages + 1)})
        for direction in values[schema.DIRECTION].values
    ]
    return xr.concat(parts, dim=schema.DIRECTION)


def _aesthetics(data: xr.Dataset) -> dict[str, list[str]]:
    aes = {"color": ["model"]} if "model" in data.dims else {}
    if data.sizes[schema.DIRECTION] > 1:
        aes["linestyle"] = [schema.DIRECTION]
    return aes


def _points(da: xr.DataArray, target: Any, xname: str, **arguments: Any) -> Any:
    rows = da.transpose(..., xname).values
    x = np.broadcast_to(da[xname].values, rows.shape)
    return layout.backend_of(target).scatter(x.ravel(), rows.ravel(), target, **arguments)


def _draw_frames(figure: layout.Figure, data: xr.Dataset) -> None:
    n_stages = data.sizes[schema.STAGE] - 1
    margin = max(0.1, 0.03 * n_stages)
    for name, (title, text) in _OF_STAGES.items():
        if name not in data:
            continue
        wide = name == "energy_mean" and _is_wide(data[name])
        text = "mean energy (nats, logarithmic scale)" if wide else text
        if name in _REFERENCES:
            good, bad = _REFERENCES[name]
            title = f"{title}: good above {good:g}, bad below {bad:g}"
        figure.labels(name, title=title, xlabel="stage", ylabel=text)
        figure.limits(name, x=(-margin, n_stages + margin))
        figure.in_matplotlib(layout.whole_ticks, name)
        if name != "energy_mean":  # all others are shares
            figure.limits(name, y=(-0.03, 1.03))
        elif wide:
            figure.set("yscale", "set_yscale", name, scale="log")
    legend = layout.visual_arguments(figure.visuals, "legend")
    if legend is not None:
        for row, (dim,) in enumerate(_aesthetics(data).values()):
            # Bokeh has no legend of the whole figure, and one per plot.
            place = {"legend_target": (row, -1)} if figure.backend == "bokeh" else {}
            figure.collection.add_legend(dim, **{**place, **legend})


def _is_wide(energy: xr.DataArray) -> bool:
    low, high = float(energy.min()), float(energy.max())
    return low > 0 and high > _WIDE_RANGE * low


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
    parts = ("line", "point", "goal", "bars", "trace", *layout.AXES)
    figure = layout.Figure(parts, visuals, backend, figure_kwargs, pc_kwargs)
    run = _Run.of(dt)
    block, place = run.chains[check_count("chain", chain, 0, len(run.chains) - 1)]
    rung = block.rung[:_MOST_ITERATIONS, place]
    panels = xr.Dataset(dict.fromkeys(_OF_TEMPERING, 0.0))
    figure.open(panels, 6, 2, cols=["__variable__"], col_wrap=2)
    _draw_by_temperature(figure, run)
    _draw_trips(figure, run)
    trace = layout.curve("trace", x=block.every * np.arange(len(rung)), y=rung)
    figure.draw("trace", "line_xy", trace, color="C0", width=1)
    titles, n = _titles(run), len(block.rung)
    shown = f", {len(rung):,} of {n:,} iterations" if n > len(rung) else ""
    titles["trace"] = f"Temperatures of chain {chain}{shown}"
    for name, (xlabel, ylabel) in _OF_TEMPERING.items():
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
    trips: Floats  # shape (n_ladders,): round trips of the chains of each ladder
    n_restarts: int
    chains: list[tuple[TemperedChains, int]]  # for each chain, those of its block and its place

    @classmethod
    def of(cls, dt: Any) -> "_Run":
        """Return what is drawn of a result; raise if it holds no tempered chains."""
        check_kind("dt", dt, xr.DataTree, "pass what sample_evidence returned")
        record = to_record(dt)
        blocks, n = record.tempered, len(record.beta)
        if not any(each.energy.size for each in blocks):
            raise ValueError(
                "dt must hold chains that move between temperatures, got a run of method="
                f"{described(record.method)}; sample with method='parallel_tempering' or "
                "'simulated_tempering'."
            )
        energy = np.concatenate([each.energy.ravel() for each in blocks])
        rung = np.concatenate([each.rung.ravel() for each in blocks])
        trips = [np.bincount(b.ladder, b.round_trips)[np.unique(b.ladder)] for b in blocks]
        return cls(
            record.beta,
            np.bincount(rung, minlength=n) / len(rung),
            np.array(record.facts.tempering_prior or np.full(n, 1.0 / n), float),
            rejection_rates(record.beta, energy, rung),
            np.concatenate(trips),
            sum(int(each.restarts.sum()) for each in blocks),
            [(each, k) for each in blocks for k in range(len(each.ladder))],
        )

    @property
    def ladders(self) -> bool:
        """Whether a ladder has several chains."""
        return len(self.trips) < len(self.chains)


def _draw_by_temperature(figure: layout.Figure, run: _Run) -> None:
    """Draw occupation, rejection rates and barrier, and what the first two should be."""
    number = np.arange(len(run.beta))
    level = np.full(len(run.rates), np.nanmean(run.rates) if np.isfinite(run.rates).any() else 0.0)
    for goal in (
        layout.curve("occupation", x=number, y=run.goal),
        layout.curve("rejection", x=number[:-1], y=level),
    ):
        figure.draw("goal", "line_xy", goal, color="B3", linestyle="C1")
    for curve in (
        layout.curve("occupation", x=number, y=run.occupation),
        layout.curve("rejection", x=number[:-1], y=run.rates),
        layout.curve("barrier", x=run.beta, y=np.append(0.0, np.cumsum(run.rates))),
    ):
        figure.draw("line", "line_xy", curve, color="C0")
        if len(run.beta) <= _FEW:
            figure.draw("point", "scatter_xy", curve, color="C0", size=12)


def _draw_trips(figure: layout.Figure, run: _Run) -> None:
    """Draw the histogram of round trips, whose bins have whole widths."""
    low, high = int(run.trips.min()), int(run.trips.max())
    width = -(-(high - low + 1) // _MOST_BINS)
    edges = np.arange(low, high + 1 + width, width) - 0.5
    height = np.histogram(run.trips, edges)[0]
    bars = layout.curve("trips", left_edges=edges[:-1], right_edges=edges[1:], histogram=height)
    figure.draw("bars", "hist", bars, color="C0", alpha=0.5)


def _titles(run: _Run) -> dict[str, str]:
    """Return the title of each panel but the last, which says what its dashed line is."""
    missing = int(np.isnan(run.rates).sum())
    unknown = f", {missing} unknown" if missing else ""
    wanted, exchanges = "prior", "Exchanges that would be rejected"
    if run.ladders:
        wanted, exchanges = "equal shares", "Rejected exchanges"
    return {
        "occupation": f"Occupation (dashed: {wanted})",
        "rejection": f"{exchanges} (dashed: equal rates{unknown})",
        "barrier": f"Communication barrier: {np.nansum(run.rates):.3g}",
        "trips": f"{int(run.trips.sum()):,} round trips, {run.n_restarts:,} restarts",
    }
