"""Mean energy along the path in both directions, whose gap is hysteresis."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.plots import layout
from pm_evidence.results import schema
from pm_evidence.results.stored import group_of

if TYPE_CHECKING:
    from arviz_plots.plot_collection import PlotCollection

__all__ = ["plot_energy"]

Floats = NDArray[np.float64]

_VISUALS = ("line", "point", "band", "title", "xlabel", "ylabel", "legend")
_NAMES = {
    schema.FORWARD: "forward (prior to posterior)",
    schema.REVERSE: "reverse (posterior to prior)",
}
_FEW_STAGES = 40  # up to here each stage gets a point
# From these ratios on the energy gets another axis: the largest to the smallest, and the largest
# size to the usual one.
_WIDE_RANGE, _WIDE_SIZE = 100.0, 30.0
_CROWDED = 0.1  # where half of the stages lie below, beta gets a square-root axis
_SCALING_BACKENDS = ("matplotlib", "none")  # those of arviz-plots with scales of the axes
_BETA_TICKS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


def plot_energy(
    dt: xr.DataTree,
    *,
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Plot the mean energy against the inverse temperature, in each direction.

    Paths lag behind the temperature: their energy is too high on the way to the posterior, and
    too low on the way back. The gap between the directions is this hysteresis; where it is wide,
    the run needs more stages or a better kernel.

    Parameters
    ----------
    dt : DataTree
        From ``sample_evidence``. A run in one direction gives one line.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` by default.
    visuals : mapping of str to mapping or bool, optional
        Arguments of each part, or False to leave it out: ``line``, ``point`` (drawn up to 40
        stages), ``band`` (mean plus and minus one standard deviation of the population; left out
        unless it is given, by True for instance), ``title``, ``xlabel``, ``ylabel``, ``legend``.
    figure_kwargs : mapping, optional
        Passed to the backend's ``create_plotting_grid``; ``figsize`` for instance.
    **pc_kwargs
        Passed to ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        Call its ``show`` or ``savefig``.

    Raises
    ------
    TypeError
        If ``dt`` is not a DataTree.
    ValueError
        If it has no group ``annealing`` or no finite energy, or ``visuals`` names an unknown part.

    Notes
    -----
    The area between the lines is about the gap between the upper and the lower bound of log Z
    (Habeck 2017, Eq. 11 and Fig. 3B). Each population is drawn at the inverse temperature that it
    was last moved at: the beginning of its stage on the way forward, the end on the way back.

    Energies that span decades get a logarithmic axis, or, where some are negative, one that is
    linear around zero and logarithmic beyond. On a logarithmic axis the band is cut below half
    the lowest mean. Inverse temperatures of which half lie below 0.1 get a square-root axis. All
    this with matplotlib: the other backends of arviz-plots keep linear axes.
    """
    visuals = layout.checked_visuals(visuals, _VISUALS)
    data = _drawn(dt)
    backend = layout.backend_name(backend)
    aes = {"color": [schema.DIRECTION], "linestyle": [schema.DIRECTION]}
    pc_kwargs["aes"] = {**aes, **pc_kwargs.get("aes", {})}
    collection = layout.new_collection(
        data,
        backend=backend,
        figure_kwargs=layout.figure_arguments(figure_kwargs, backend, 3, 1),
        **pc_kwargs,
    )
    _draw_band(collection, data, visuals)
    _draw_lines(collection, data, visuals)
    _draw_axes(collection, data)
    _draw_frame(collection, data, visuals)
    return collection


def _drawn(dt: xr.DataTree) -> xr.Dataset:
    """Return where each energy was recorded, its mean, and one standard deviation around it."""
    group = group_of(dt, schema.ANNEALING)
    beta = group["beta"].to_numpy()
    places = {schema.FORWARD: beta[:-1], schema.REVERSE: beta[1:]}
    directions = [str(name) for name in group[schema.DIRECTION].values]
    mean, var = (
        group[name].where(np.isfinite(group[name])).to_numpy()
        for name in ("energy_mean", "energy_var")
    )
    if np.isnan(mean).all():
        raise ValueError(
            "dt must hold a finite mean energy, got none; sample with more draws or another "
            "reference."
        )
    x, half = np.stack([places[name] for name in directions]), np.sqrt(var)
    return xr.Dataset(
        {
            "energy": (
                (schema.DIRECTION, "plot_axis", schema.STAGE),
                np.stack([x, mean, mean - half, mean + half], axis=1),
            )
        },
        coords={schema.DIRECTION: directions, "plot_axis": ["x", "y", "low", "high"]},
    )


def _draw_band(collection: Any, data: xr.Dataset, visuals: layout.Visuals) -> None:
    band = layout.visual_arguments({"band": False, **visuals}, "band", alpha=0.2)
    if band is not None:
        ignored = {"linestyle"} & collection.aes_set
        collection.map(_band, "band", data=data, ignore_aes=ignored, **band)


def _band(da: xr.DataArray, target: Any, **arguments: Any) -> Any:
    x, low, high = (da.sel(plot_axis=name).values for name in ("x", "low", "high"))
    return layout.backend_of(target).fill_between_y(x, low, high, target, **arguments)


def _draw_lines(collection: Any, data: xr.Dataset, visuals: layout.Visuals) -> None:
    draw = layout.draw()

    line = layout.visual_arguments(visuals, "line", width=2)
    if line is not None:
        collection.map(draw.line_xy, "line", data=data, **line)
    point = layout.visual_arguments(visuals, "point", size=16)
    if point is not None and data.sizes[schema.STAGE] <= _FEW_STAGES:
        ignored = {"linestyle"} & collection.aes_set
        collection.map(draw.scatter_xy, "point", data=data, ignore_aes=ignored, **point)


def _draw_axes(collection: Any, data: xr.Dataset) -> None:
    """Set limits and scales of both axes."""
    draw = layout.draw()

    frame = layout.frame_of("energy")
    if collection.backend not in _SCALING_BACKENDS:
        return
    if _is_crowded(data):
        collection.map(draw.set_xscale, "xscale", scale="sqrt", **frame)
        labels = [f"{beta:g}" for beta in _BETA_TICKS]
        collection.map(draw.set_xticks, "xticks", values=_BETA_TICKS, labels=labels, **frame)
        collection.map(draw.set_xlim, "xlim", limits=(0.0, 1.02), **frame)
    mean = data["energy"].sel(plot_axis="y").to_numpy()
    mean = mean[np.isfinite(mean)]
    scale = _scale(mean)
    if scale == "linear":
        return
    collection.map(draw.set_yscale, "yscale", scale=scale, **frame)
    if scale == "log" and "band" in collection.viz:
        highest = float(data["energy"].sel(plot_axis="high").max())
        limits = (0.5 * mean.min(), 2.0 * max(highest, mean.max()))
        collection.map(draw.set_ylim, "ylim", limits=limits, **frame)
    if scale == "symlog" and collection.backend == "matplotlib":
        collection.map(_set_linear_part, "linear_part", size=_usual_size(mean), **frame)


def _set_linear_part(da: xr.DataArray, target: Any, size: float) -> None:
    """Make the axis linear up to a size of the energy; matplotlib's own choice is 2."""
    target.set_yscale("symlog", linthresh=size)


def _is_crowded(data: xr.Dataset) -> bool:
    return float(data["energy"].sel(plot_axis="x").median()) < _CROWDED


def _usual_size(mean: Floats) -> float:
    """Return the power of ten below the median size of the energies, and no less than a nat."""
    return float(10.0 ** np.floor(np.log10(max(float(np.median(np.abs(mean))), 1.0))))


def _scale(mean: Floats) -> str:
    low, high = float(mean.min()), float(mean.max())
    if low > 0:
        return "log" if high > _WIDE_RANGE * low else "linear"
    return "symlog" if max(-low, high) > _WIDE_SIZE * _usual_size(mean) else "linear"


def _draw_frame(collection: Any, data: xr.Dataset, visuals: layout.Visuals) -> None:
    directions = [str(name) for name in data[schema.DIRECTION].values]
    title = "Mean energy along the path"
    if len(directions) > 1:
        title = "Mean energy: a gap between the directions is hysteresis"
    layout.draw_labels(
        collection,
        "energy",
        visuals,
        title=title,
        xlabel="inverse temperature β",
        ylabel="mean energy (nats)",
    )
    legend = layout.visual_arguments(visuals, "legend")
    if legend is None:
        return
    entries: list[tuple[str, dict[str, Any]]] = []
    for name in directions:
        look = collection.get_aes_kwargs(["color", "linestyle"], "energy", {schema.DIRECTION: name})
        entries.append((_NAMES[name], {**look, "width": 2}))
    if "band" in collection.viz:
        entries.append(("± 1 standard deviation of the population", {"color": "B3", "width": 8}))
    layout.add_legend(collection, entries, **legend)
