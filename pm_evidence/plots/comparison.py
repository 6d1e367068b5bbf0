"""Log evidences, or posterior probabilities, of several models, best on top."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.plots import layout
from pm_evidence.results.compare import compare

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
) -> "layout.PlotCollection":
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
    figure = layout.Figure(visuals, _VISUALS, backend)
    check_choice("quantity", quantity, _TITLES)
    table = models if isinstance(models, pd.DataFrame) else compare(models)
    missing = [name for name in _COLUMNS[quantity] if name not in table.columns]
    if missing or not len(table):
        raise ValueError(
            f"models must be a table from compare with one row or more, got {len(table)} rows and "
            f"no column {missing}; pass the table as compare returned it."
        )
    table = table.sort_values("log_evidence", ascending=False, kind="stable", na_position="last")
    data = _drawn(table, quantity)
    height = np.arange(len(table), 0, -1, dtype=np.float64)
    labels = [_label(str(name), row) for name, row in table.iterrows()]
    best = data[["log_evidence"]].isel(model=0, drop=True)
    figure.forest(data, table["status"], height, labels, best, figure_kwargs, pc_kwargs)
    _draw_numbers(figure, table, data, quantity)
    title, xlabel = _TITLES[quantity]
    title += f" with 95 % interval\n(in parentheses: error of the last digits){_of_narrow(data)}"
    figure.labels("log_evidence", title=title, xlabel=xlabel)
    return figure.collection


def _drawn(table: pd.DataFrame, quantity: str) -> xr.Dataset:
    """Return point and interval of each model."""
    probable = quantity == "probability"
    column, error = ("prob", "prob_mcse") if probable else ("log_evidence", "mcse")
    known = {} if probable else table.attrs.get("dof", {})
    half = layout.half_widths(table[error], [known.get(name, np.inf) for name in table.index])
    names = [str(name) for name in table.index]
    data = layout.intervals_of("log_evidence", names, table[column].to_numpy(float), half)
    if probable:
        data["interval"] = data["interval"].clip(0.0, 1.0)
    return data


# Width of a point in relation to that of the whole plot.
_POINT = 0.02


def _of_narrow(data: xr.Dataset) -> str:
    """Return what is to be said of intervals that points hide."""
    low, high = (data["interval"].isel(ci_bound=side).to_numpy() for side in (0, 1))
    known = np.isfinite(high - low)
    whole = np.ptp(np.concatenate([low[known], high[known]])) if known.any() else 0.0
    hidden = (high - low)[known] < _POINT * whole
    if not hidden.any():
        return ""
    return f"\n({'all' if hidden.all() else 'some'} intervals are narrower than the points)"


def _draw_numbers(
    figure: layout.Figure, table: pd.DataFrame, data: xr.Dataset, quantity: str
) -> None:
    """Write the log evidence and its difference to the best model above each point."""
    ends = data["interval"].fillna(data["log_evidence"])
    left, width = float(ends.min()), float(ends.max() - ends.min())
    for number, (_, row) in enumerate(table.iterrows()):
        point, best = data[["log_evidence"]].isel(model=[number]), number == 0
        if quantity == "probability":
            text = layout.with_error(float(row["prob"]), float(row["prob_mcse"]))
        else:
            text = layout.with_error(float(row["log_evidence"]), float(row["mcse"]))
            below = layout.with_error(-float(row["log_bf"]), float(row["log_bf_mcse"]))
            text += ", best" if best else f", {below} below"
        # inside the axes, and off the line
        place = (float(point["log_evidence"].item()) - left) / width if width > 0 else 0.5
        align, shift = ("left", 0.0) if place < 0.25 else ("center", 0.0)
        if best or place > 0.75:
            align, shift = "right", -0.01
        figure.draw(
            "difference",
            layout.text_above,
            point + shift * width,
            name=f"difference_{number}",
            color="B1",
            store_artist=False,
            text=text,
            horizontal_align=align,
        )


def _label(name: str, row: "pd.Series[Any]") -> str:
    notes = [] if row["status"] == Status.OK else [str(row["status"])]
    if not np.isfinite(row["log_evidence"]):
        notes.append("no value to draw")
    return f"{name} ({', '.join(notes)})" if notes else name
