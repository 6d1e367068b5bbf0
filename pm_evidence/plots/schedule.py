"""The schedule of a run, and how well each of its stages went."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pm_evidence.plots import layout
from pm_evidence.results import schema
from pm_evidence.results.stored import group_of

if TYPE_CHECKING:
    from arviz_plots.plot_collection import PlotCollection

__all__ = ["plot_schedule"]

_VISUALS = ("line", "point", "xlabel", "ylabel", "legend")
_PANELS = {
    "beta": "inverse temperature β",
    "ess": "effective sample size (share)",
    "acceptance": "acceptance probability",
    "energy_mean": "mean energy (nats)",
}
_FEW_STAGES = 40  # up to here each stage gets a point
_WIDE_RANGE = 100.0  # from here on the energy gets a logarithmic axis


def plot_schedule(
    dt: xr.DataTree | Mapping[str, xr.DataTree],
    *,
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Plot inverse temperature, sample size, acceptance and energy against the stage.

    A good schedule keeps the effective sample size level over the stages; a dip shows where
    it needs more of them, and a low acceptance where the kernel does.

    Parameters
    ----------
    dt : DataTree, or mapping of str to DataTree
        From ``sample_evidence``; a mapping draws several runs in different colours.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` by default.
    visuals : mapping of str to mapping or bool, optional
        Arguments of each part, or False to leave it out: ``line``, ``point`` (drawn up to 40
        stages), ``xlabel``, ``ylabel``, ``legend``.
    figure_kwargs : mapping, optional
        Passed to the backend's ``create_plotting_grid``; ``figsize`` for instance.
    **pc_kwargs
        Passed to ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With one plot per variable of the group ``annealing``: ``beta``, ``ess``,
        ``acceptance``, ``energy_mean``. Call its ``show`` or ``savefig``.

    Raises
    ------
    TypeError
        If ``dt`` is neither a DataTree nor a mapping of them.
    ValueError
        If a DataTree has no group ``annealing``, there is none, or ``visuals`` names an unknown
        part.

    Notes
    -----
    The energy is drawn on a logarithmic axis when it is positive throughout and spans more than
    two decades (the bokeh backend of arviz-plots keeps a linear one). Reverse runs are dashed.
    """
    visuals = layout.checked_visuals(visuals, _VISUALS)
    data = _gathered(dt)
    backend = layout.backend_name(backend)
    pc_kwargs.setdefault("cols", ["__variable__"])
    pc_kwargs.setdefault("col_wrap", 2)
    pc_kwargs["aes"] = {**_aesthetics(data), **pc_kwargs.get("aes", {})}
    collection = layout.new_collection(
        data,
        backend=backend,
        figure_kwargs=layout.figure_arguments(figure_kwargs, backend, 4, 2),
        **pc_kwargs,
    )
    _draw_lines(collection, data, visuals)
    _draw_frames(collection, data, visuals)
    return collection


def _gathered(dt: xr.DataTree | Mapping[str, xr.DataTree]) -> xr.Dataset:
    """Return the drawn variables of all runs, with a dimension ``model`` when there are more."""
    runs = {"": dt} if isinstance(dt, xr.DataTree) else dt
    if not isinstance(runs, Mapping) or not runs:
        raise TypeError(
            f"dt must be a DataTree or a mapping with one or more, got {type(dt).__name__}; pass "
            "what sample_evidence returned."
        )
    datasets = [_drawn(name, run) for name, run in runs.items()]
    if len(datasets) == 1:
        return datasets[0]
    names = xr.DataArray(np.array(list(runs), dtype=np.str_), dims="model", name="model")
    return xr.concat(datasets, dim=names, join="outer")


def _drawn(name: str, run: Any) -> xr.Dataset:
    parameter = f"dt[{name!r}]" if name else "dt"
    data = group_of(run, schema.ANNEALING, parameter)[list(_PANELS)]
    # A direction for beta, too: arviz-plots gives a variable without it a legend entry of its own.
    data["beta"] = data["beta"].expand_dims({schema.DIRECTION: data[schema.DIRECTION]})
    return data.where(np.isfinite(data)).drop_attrs()


def _aesthetics(data: xr.Dataset) -> dict[str, list[str]]:
    aes = {"color": ["model"]} if "model" in data.dims else {}
    if data.sizes[schema.DIRECTION] > 1:
        aes["linestyle"] = [schema.DIRECTION]
    return aes


def _draw_lines(collection: Any, data: xr.Dataset, visuals: layout.Visuals) -> None:
    draw = layout.draw()

    plain = {} if "color" in collection.aes_set else {"color": "C0"}
    for x, names in ((schema.BETA_POINT, ["beta"]), (schema.STAGE, list(_PANELS)[1:])):
        part = data[names]
        if data.sizes[schema.DIRECTION] == 1:
            part = part.isel({schema.DIRECTION: 0}, drop=True)
        line = layout.visual_arguments(visuals, "line", **plain)
        if line is not None:
            collection.map(draw.line, f"line_{x}", data=part, xname=x, **line)
        point = layout.visual_arguments(visuals, "point", size=12, **plain)
        if point is not None and data.sizes[schema.STAGE] <= _FEW_STAGES:
            ignored = {"linestyle"} & collection.aes_set
            collection.map(_points, f"point_{x}", data=part, xname=x, ignore_aes=ignored, **point)


def _points(da: xr.DataArray, target: Any, xname: str, **arguments: Any) -> Any:
    rows = da.transpose(..., xname).values
    x = np.broadcast_to(da[xname].values, rows.shape)
    return layout.backend_of(target).scatter(x.ravel(), rows.ravel(), target, **arguments)


def _draw_frames(collection: Any, data: xr.Dataset, visuals: layout.Visuals) -> None:
    draw = layout.draw()

    n_stages = data.sizes[schema.STAGE]
    margin = max(0.1, 0.03 * n_stages)
    for name, text in _PANELS.items():
        frame = layout.frame_of(name)
        layout.draw_labels(collection, name, visuals, xlabel="stage", ylabel=text)
        collection.map(draw.set_xlim, "xlim", limits=(-margin, n_stages + margin), **frame)
        if name != "energy_mean":
            collection.map(draw.set_ylim, "ylim", limits=(-0.03, 1.03), **frame)
        elif _is_wide(data[name]):
            collection.map(draw.set_yscale, "yscale", scale="log", **frame)
    legend = layout.visual_arguments(visuals, "legend")
    if legend is not None:
        mapped = [dims[0] for dims in _aesthetics(data).values()]
        for row, dim in enumerate(mapped):
            # Bokeh has no legend of the whole figure, and one per plot.
            place = {"legend_target": (row, -1)} if collection.backend == "bokeh" else {}
            collection.add_legend(dim, **{**place, **legend})


def _is_wide(energy: xr.DataArray) -> bool:
    low, high = float(energy.min()), float(energy.max())
    return low > 0 and high > _WIDE_RANGE * low
