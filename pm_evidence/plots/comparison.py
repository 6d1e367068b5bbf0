"""Log evidences of several models, best on top."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.records import LogEvidence
from pm_evidence.plots import layout
from pm_evidence.results.compare import compare

if TYPE_CHECKING:
    from arviz_plots.plot_collection import PlotCollection

__all__ = ["plot_compare"]

Floats = NDArray[np.float64]

_VISUALS = (
    "error_bar",
    "point_estimate",
    "difference",
    "ref_line",
    "title",
    "xlabel",
    "ticklabels",
)


def plot_compare(
    models: pd.DataFrame | Mapping[str, xr.DataTree | LogEvidence],
    *,
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Plot the log evidence of each model with its 95 % interval, best on top.

    Above each point stands the difference to the best model with its standard error, in nats.

    Parameters
    ----------
    models : DataFrame, or mapping of str to DataTree or LogEvidence
        A table from ``compare``, or what ``compare`` takes.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` by default.
    visuals : mapping of str to mapping or bool, optional
        Arguments of each part, or False to leave it out: ``error_bar``, ``point_estimate``,
        ``difference``, ``ref_line`` (at the best model), ``title``, ``xlabel``,
        ``ticklabels``.
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
    ValueError
        If ``visuals`` names an unknown part, a table lacks a column, or ``compare`` refuses the
        models.

    Notes
    -----
    The interval is ``log_evidence`` plus and minus 1.96 ``mcse``. A model whose evidence is not
    finite keeps its line, without a point.
    """
    visuals = layout.checked_visuals(visuals, _VISUALS)
    table = _checked(models) if isinstance(models, pd.DataFrame) else compare(models)
    backend = layout.backend_name(backend)
    n_models = len(table)
    height = np.arange(n_models, 0, -1, dtype=np.float64)
    pc_kwargs["aes"] = {"y": ["model"], **pc_kwargs.get("aes", {})}
    pc_kwargs.setdefault("y", height)
    collection = layout.new_collection(
        _drawn(table)[["log_evidence"]],
        backend=backend,
        figure_kwargs=layout.figure_arguments(figure_kwargs, backend, (n_models + 5) // 3, 1),
        **pc_kwargs,
    )
    _draw_points(collection, table, visuals)
    _draw_differences(collection, table, visuals)
    _draw_frame(collection, table, visuals, height)
    return collection


def _checked(table: pd.DataFrame) -> pd.DataFrame:
    needed = ["log_evidence", "mcse", "log_bf", "log_bf_mcse", "status"]
    missing = [name for name in needed if name not in table.columns]
    if missing or not len(table):
        raise ValueError(
            f"models must be a table from compare with one row or more, got {len(table)} rows and "
            f"no column {missing}; pass the table as compare returned it."
        )
    return table.sort_values("log_evidence", ascending=False, kind="stable", na_position="last")


def _drawn(table: pd.DataFrame) -> xr.Dataset:
    """Return point and interval of each model, NaN where there is nothing to draw."""
    value = table["log_evidence"].to_numpy(dtype=np.float64, copy=True)
    value[~np.isfinite(value)] = np.nan
    half = layout.NORMAL_95 * table["mcse"].to_numpy(dtype=np.float64)
    half[~np.isfinite(half)] = np.nan
    interval = np.stack([value - half, value + half], axis=1)
    return xr.Dataset(
        {"log_evidence": ("model", value), "interval": (("model", "ci_bound"), interval)},
        coords={"model": _names(table), "ci_bound": ["lower", "upper"]},
    )


def _names(table: pd.DataFrame) -> NDArray[np.str_]:
    return np.array([str(name) for name in table.index], dtype=np.str_)


def _draw_points(collection: Any, table: pd.DataFrame, visuals: layout.Visuals) -> None:
    draw = layout.draw()

    data = _drawn(table)
    bar = layout.visual_arguments(visuals, "error_bar", color="C0", width=2)
    if bar is not None:
        interval = data[["interval"]].rename(interval="log_evidence")
        collection.map(draw.line_x, "error_bar", data=interval, **bar)
    point = layout.visual_arguments(visuals, "point_estimate", color="C0")
    if point is not None:
        collection.map(draw.scatter_x, "point_estimate", data=data[["log_evidence"]], **point)


def _draw_differences(collection: Any, table: pd.DataFrame, visuals: layout.Visuals) -> None:
    """Write the difference to the best model above each point."""
    arguments = layout.visual_arguments(visuals, "difference", color="B1")
    if arguments is None:
        return
    data = _drawn(table)
    ends = data["interval"].fillna(data["log_evidence"])
    left, width = float(ends.min()), float(ends.max() - ends.min())
    for row, name in enumerate(data["model"].values):
        point = data[["log_evidence"]].sel(model=[name])
        place = (float(point["log_evidence"].item()) - left) / width if width > 0 else 0.5
        align, shift = _alignment(place, best=row == 0)
        collection.map(
            _text_above,
            f"difference_{row}",
            data=point + shift * width,
            store_artist=False,
            text=_difference(table.iloc[row], best=row == 0),
            horizontal_align=align,
            **arguments,
        )


def _alignment(place: float, *, best: bool) -> tuple[str, float]:
    """Return how a text sits on its point, so that it stays inside the axes and off the line.

    ``place`` is 0 at the left and 1 at the right end of what is drawn; so is the shift.
    """
    if best or place > 0.75:
        return "right", -0.01
    return ("left", 0.0) if place < 0.25 else ("center", 0.0)


def _text_above(da: Any, target: Any, y: Any, **arguments: Any) -> Any:
    return layout.draw().annotate_xy(da, target, y=np.asarray(y) + 0.28, **arguments)


def _difference(row: "pd.Series[Any]", *, best: bool) -> str:
    if best:
        return "best"
    error = float(row["log_bf_mcse"])
    text = layout.number(float(row["log_bf"]), error)
    return f"{text} ± {layout.number(error, error)}" if np.isfinite(error) else text


def _draw_frame(
    collection: Any, table: pd.DataFrame, visuals: layout.Visuals, height: Floats
) -> None:
    draw = layout.draw()

    data = _drawn(table)
    best = data[["log_evidence"]].isel(model=0, drop=True)
    line = layout.visual_arguments(visuals, "ref_line", color="B3", linestyle="--")
    if line is not None:
        linestyles = layout.plot_backend(collection.backend).get_default_aes("linestyle", 2, {})
        line["linestyle"] = linestyles[1] if line["linestyle"] == "--" else line["linestyle"]
        collection.map(draw.vline, "ref_line", data=best, ignore_aes="all", **line)
    frame = layout.frame_of("log_evidence")
    layout.draw_labels(
        collection,
        "log_evidence",
        visuals,
        title="Log evidence with 95 % interval\n(numbers: difference to the best)",
        xlabel="log evidence (nats)",
    )
    ticks = layout.visual_arguments(visuals, "ticklabels")
    if ticks is not None:
        labels = [
            name if status == "ok" else f"{name} ({status})"
            for name, status in zip(_names(table), table["status"], strict=True)
        ]
        collection.map(layout.set_yticks, "yticks", values=height, labels=labels, **frame, **ticks)
    collection.map(draw.set_ylim, "ylim", limits=(0.5, len(table) + 0.7), **frame)
    if collection.backend == "matplotlib":
        collection.map(layout.write_out_numbers, "numbers", **frame)
