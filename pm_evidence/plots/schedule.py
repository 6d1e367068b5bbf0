"""The schedule of a run, with diagnostics of each stage."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import Role
from pm_evidence.plots import layout
from pm_evidence.results import schema
from pm_evidence.results.stored import group_of

_VISUALS = ("line", "point", "good", "bad", "title", "xlabel", "ylabel", "legend")
# Title and label of each panel.
_PANELS = {
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
_FEW_STAGES = 40  # up to here each stage gets a point
_WIDE_RANGE = 100.0  # largest over smallest energy above which the axis is logarithmic


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
    figure = layout.Figure(visuals, _VISUALS, backend)
    data = _gathered(dt)
    pc_kwargs = {"cols": ["__variable__"], "col_wrap": 2, **pc_kwargs}
    rows = 4 if schema.PATH_ESS not in data else 6
    figure.open(data, figure_kwargs, pc_kwargs, rows=rows, cols=2, aes=_aesthetics(data))
    for place, name in enumerate(("good", "bad")):
        heights = xr.Dataset({panel: pair[place] for panel, pair in _REFERENCES.items()})
        look: dict[str, Any] = {"color": "B3", "width": 1, "linestyle": f"C{place + 1}"}
        figure.draw(name, "hline", heights, ignore_aes="all", **look)
    plain = {} if "color" in figure.collection.aes_set else {"color": "C0"}
    lines = data
    if data.sizes[schema.DIRECTION] == 1:
        lines = data.isel({schema.DIRECTION: 0}, drop=True)
    figure.draw("line", "line", lines, xname=schema.STAGE, **plain)
    if data.sizes[schema.STAGE] <= _FEW_STAGES + 1:
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
    data = group[list(_PANELS)]
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
    for name, (title, text) in _PANELS.items():
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
