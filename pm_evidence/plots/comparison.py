"""Log evidences, or posterior probabilities, of several models, best on top."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.plots import layout
from pm_evidence.results.compare import compare

if TYPE_CHECKING:
    from arviz_plots.plot_collection import PlotCollection


Floats = NDArray[np.float64]

_COLUMNS = {
    "evidence": ("log_evidence", "mcse", "log_bf", "log_bf_mcse", "status"),
    "probability": ("log_evidence", "prob", "prob_mcse", "status"),
}
_TITLES = {
    "evidence": ("Log evidence", "log evidence (nats)"),
    "probability": ("Posterior probability", "posterior probability"),
}
_VISUALS = (
    "error_bar",
    "point_estimate",
    "difference",
    "ref_line",
    "title",
    "xlabel",
    "ticklabels",
    "legend",
)


@usual_floats()
def plot_compare(
    models: pd.DataFrame | Mapping[str, xr.DataTree | LogEvidence],
    *,
    quantity: str = "evidence",
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Plot the log evidence, or the probability, of each model with its 95 % interval.

    The best model is on top. The log evidence and its difference to the best model are written
    above each point, in nats, with their standard errors in parentheses, because many intervals are
    too short to be seen; or the posterior probability of the model.
    Models whose status is not ``"ok"`` have open points and dashed bars.

    Parameters
    ----------
    models : DataFrame, or mapping of str to DataTree or LogEvidence
        A table from ``compare``, or what ``compare`` takes.
    quantity : {"evidence", "probability"}
        What is drawn; probabilities are those of the table, which depend on ``prior_probs`` of
        ``compare``.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` by default.
    visuals : mapping of str to mapping or bool, optional
        Arguments of each part, or False to leave it out: ``error_bar``, ``point_estimate``,
        ``difference`` (the numbers), ``ref_line`` (at the best model), ``title``, ``xlabel``,
        ``ticklabels``, ``legend`` (drawn if the status of a model is not ``"ok"``).
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
        If ``visuals`` names an unknown part, ``quantity`` is unknown, a table lacks a column, or
        ``compare`` refuses the models.

    Notes
    -----
    The interval is that of Student's t with the degrees of freedom of the estimate, as in
    ``pe.bayes_factor``; a table without ``attrs["dof"]`` gets intervals of a normal distribution. A
    model whose evidence is not finite has a label, but no point.
    """
    visuals = layout.checked_visuals(visuals, _VISUALS)
    check_choice("quantity", quantity, _TITLES)
    columns = _COLUMNS[quantity]
    given = models if isinstance(models, pd.DataFrame) else compare(models)
    table = _checked(given, columns)
    table.attrs["quantity"] = quantity
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
    _draw_legend(collection, table, visuals)
    return collection


def _checked(table: pd.DataFrame, needed: Sequence[str]) -> pd.DataFrame:
    missing = [name for name in needed if name not in table.columns]
    if missing or not len(table):
        raise ValueError(
            f"models must be a table from compare with one row or more, got {len(table)} rows and "
            f"no column {missing}; pass the table as compare returned it."
        )
    return table.sort_values("log_evidence", ascending=False, kind="stable", na_position="last")


def _drawn(table: pd.DataFrame) -> xr.Dataset:
    """Return point and interval of each model, NaN where there is nothing to draw."""
    probable = table.attrs["quantity"] == "probability"
    column, error = ("prob", "prob_mcse") if probable else ("log_evidence", "mcse")
    value = table[column].to_numpy(dtype=np.float64, copy=True)
    value[~np.isfinite(value)] = np.nan
    known = {} if probable else table.attrs.get("dof", {})
    half = layout.half_widths(table[error], [known.get(name, np.inf) for name in table.index])
    half[~np.isfinite(half)] = np.nan
    interval = np.stack([value - half, value + half], axis=1)
    if probable:
        interval = np.clip(interval, 0.0, 1.0)
    return xr.Dataset(
        {"log_evidence": ("model", value), "interval": (("model", "ci_bound"), interval)},
        coords={"model": _names(table), "ci_bound": ["lower", "upper"]},
    )


def _names(table: pd.DataFrame) -> NDArray[np.str_]:
    return np.array([str(name) for name in table.index], dtype=np.str_)


def _draw_points(collection: Any, table: pd.DataFrame, visuals: layout.Visuals) -> None:
    sound = (table["status"] == Status.OK).to_numpy()
    layout.draw_intervals(collection, _drawn(table), sound, visuals)


def _draw_differences(collection: Any, table: pd.DataFrame, visuals: layout.Visuals) -> None:
    """Write the log evidence and its difference to the best model above each point."""
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
            layout.text_above,
            f"difference_{row}",
            data=point + shift * width,
            store_artist=False,
            text=_text(table, row),
            horizontal_align=align,
            **arguments,
        )


def _alignment(place: float, *, best: bool) -> tuple[str, float]:
    """Return alignment and shift of a text, so that it stays inside the axes and off the line.

    ``place`` is 0 at the left end of what is drawn and 1 at the right end, and the shift is in the
    same units.
    """
    if best or place > 0.75:
        return "right", -0.01
    return ("left", 0.0) if place < 0.25 else ("center", 0.0)


def _text(table: pd.DataFrame, row: int) -> str:
    if table.attrs["quantity"] == "evidence":
        return _difference(table.iloc[row], best=row == 0)
    value, error = (float(table.iloc[row][name]) for name in ("prob", "prob_mcse"))
    return layout.with_error(value, error)


def _difference(row: "pd.Series[Any]", *, best: bool) -> str:
    value = layout.with_error(float(row["log_evidence"]), float(row["mcse"]))
    if best:
        return f"{value}, best"
    return f"{value}, {layout.with_error(-float(row['log_bf']), float(row['log_bf_mcse']))} below"


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
    title, xlabel = _TITLES[table.attrs["quantity"]]
    layout.draw_labels(
        collection,
        "log_evidence",
        visuals,
        title=f"{title} with 95 % interval\n(in parentheses: error of the last digits)",
        xlabel=xlabel,
    )
    ticks = layout.visual_arguments(visuals, "ticklabels")
    if ticks is not None:
        labels = [_label(str(name), row) for name, row in table.iterrows()]
        collection.map(layout.set_yticks, "yticks", values=height, labels=labels, **frame, **ticks)
    collection.map(draw.set_ylim, "ylim", limits=(0.5, len(table) + 0.7), **frame)
    if collection.backend == "matplotlib":
        collection.map(layout.write_out_numbers, "numbers", **frame)


def _label(name: str, row: "pd.Series[Any]") -> str:
    notes = [] if row["status"] == Status.OK else [str(row["status"])]
    if not np.isfinite(row["log_evidence"]):
        notes.append("no value to draw")
    return f"{name} ({', '.join(notes)})" if notes else name


def _draw_legend(collection: Any, table: pd.DataFrame, visuals: layout.Visuals) -> None:
    """Add a legend that explains open points, if there are any."""
    legend = layout.visual_arguments(visuals, "legend")
    if legend is not None and (table["status"] != Status.OK).any():
        layout.add_legend(collection, layout.of_statuses(), **legend)
