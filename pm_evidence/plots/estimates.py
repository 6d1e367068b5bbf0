"""All estimates of the log evidence that one run gives."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import described, real_number
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import SOUND, Status
from pm_evidence.plots import layout
from pm_evidence.results import schema
from pm_evidence.results.stored import evidence_of

Floats = NDArray[np.float64]

# What an estimate counts as, with its looks.
_RECOMMENDED = "recommended"
_TRUSTED = "estimate"
_DISTRUSTED = "cannot be trusted"
_BOUND = "bound"
# Statuses of estimates that can be trusted, although they may not be what was asked for.
_OF_TRUSTED = (*SOUND, Status.INTERRUPTED, Status.WITHIN_ISLANDS)
_LOOKS = {
    _RECOMMENDED: layout.Look(
        "_recommended", {"color": "C0", "width": 4}, {"color": "C0", "size": 80}
    ),
    _TRUSTED: layout.Look("_estimate", {"color": "C0", "width": 2}, {"color": "C0", "size": 30}),
    _DISTRUSTED: layout.Look(
        "_cannot_be_trusted", {"color": "B3", "width": 2}, {"color": "B3", "size": 30}
    ),
    _BOUND: layout.Look(
        "_bound",
        {"color": "B1", "width": 1, "linestyle": "C1"},
        {"facecolor": "B0", "edgecolor": "B1", "size": 40},
    ),
}
_REFERENCE_LOOK: dict[str, Any] = {"color": "C1", "width": 2}
_INTERVAL = ["value", "lower", "upper"]
# The plot extends by at most this many times the range of the trusted estimates to either side, so
# that these take up at least a fifth of it.
_REACH = 2.0


@usual_floats()
def plot_estimates(
    dt: xr.DataTree,
    *,
    reference: float | None = None,
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "layout.PlotCollection":
    """Plot every estimate of the log evidence with its 95 % interval.

    The recommended estimate is at the top, and its interval is drawn as a band over the whole
    height. Bounds are at the bottom, with open points and dashed bars. A status other than ``"ok"``
    is beside the name, and estimates that cannot be trusted are grey.

    Parameters
    ----------
    dt : DataTree
        From ``sample_evidence``.
    reference : float, optional
        The exact log evidence, or another one to compare with, in nats: a vertical line.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` by default.
    visuals : mapping of str to mapping or bool, optional
        Arguments of each part, or False to leave it out: ``error_bar``, ``point_estimate``,
        ``out_of_range`` (numbers at the edges), ``recommended`` (the band), ``ref_line``,
        ``title``, ``xlabel``, ``ticklabels``, ``legend``.
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
        If it has no group ``log_evidence``, ``reference`` is not a finite number, or ``visuals``
        names an unknown part.

    Notes
    -----
    The plot shows the intervals of the recommended estimate and of all others that are ``"ok"``,
    and the reference. It also shows the other estimates up to twice the range of these intervals to
    either side, where their own intervals are cut off. An estimate further outside is written at
    the edge as a number with an arrow and its distance from the recommended estimate. An estimate
    that is not a number has a label, but no point.
    """
    parts = (*layout.ROWS, "out_of_range", "recommended")
    figure = layout.Figure(parts, visuals, backend, figure_kwargs, pc_kwargs)
    number = 0.0 if reference is None else real_number(reference)
    if number is None or not np.isfinite(number):
        raise ValueError(
            f"reference must be a finite log evidence in nats, got {described(reference)}; leave "
            "it out if there is none."
        )
    table = _table(dt)
    limits = _limits(table, reference)
    height = np.arange(len(table), 0, -1, dtype=np.float64)
    data = _drawn(table, limits)
    aes = {"y": ["model"]}
    figure.open(data[["log_evidence"]], (len(table) + 6) // 4, aes=aes, y=height)
    _draw_lines(figure, table, reference)
    labels = [_label(str(name), row) for name, row in table.iterrows()]
    figure.rows(data, table["kind"].to_numpy(), _LOOKS, labels, height, (0.6, 0.6))
    figure.limits("log_evidence", x=limits)
    _draw_out_of_range(figure, table, limits)
    texts = {"title": "Estimates with 95 % intervals", "xlabel": "log evidence (nats)"}
    figure.labels("log_evidence", **texts)
    entries = {kind: look.bar for kind, look in _LOOKS.items() if (table["kind"] == kind).any()}
    if reference is not None:
        text = f"{reference:.3f}".replace("-", layout.MINUS)
        entries[f"reference: {text}"] = _REFERENCE_LOOK
    figure.legend(entries)
    return figure.collection


def _table(dt: xr.DataTree) -> pd.DataFrame:
    """Return the estimates from top to bottom, with the ends of their intervals and their kind."""
    group = evidence_of(dt, "dt")
    if "dof" not in group:  # of an older file
        group = group.assign(dof=group["mcse"] * 0.0 + np.inf)
    columns = ["value", "mcse", "lower", "upper", "dof", "status"]
    table = group[columns].to_dataframe()[columns]
    table.index = table.index.astype(str)
    half = layout.half_widths(table["mcse"], table["dof"])
    table["lower"] = table["lower"].fillna(table["value"] - half)
    table["upper"] = table["upper"].fillna(table["value"] + half)
    table["recommended"] = table.index == group.attrs[schema.RECOMMENDED]
    table["kind"] = _DISTRUSTED
    table.loc[table["status"].isin(_OF_TRUSTED), "kind"] = _TRUSTED
    table.loc[table["recommended"] & table["status"].isin(_OF_TRUSTED), "kind"] = _RECOMMENDED
    table.loc[table["status"] == Status.BOUND, "kind"] = _BOUND
    place = 2 * (table["kind"] == _BOUND) - table["recommended"].astype(int)
    return table.iloc[np.argsort(place.to_numpy(), kind="stable")]


def _limits(table: pd.DataFrame, reference: float | None) -> tuple[float, float]:
    """Return the visible range of log Z."""
    sound = table["recommended"] | table["kind"].isin([_RECOMMENDED, _TRUSTED])
    core = _finite(table.loc[sound, _INTERVAL])
    if not core.size:
        core = _finite(table["value"])
    core = core if reference is None else np.append(core, reference)
    if not core.size:
        return 0.0, 1.0
    left, right = float(core.min()), float(core.max())
    reach = _REACH * (right - left)
    if reach <= 1e-9 * max(abs(left), abs(right)):  # no more than rounding errors
        reach = 1.0
    near = table.loc[table["value"].between(left - reach, right + reach), _INTERVAL]
    near = _finite(near.clip(left - reach, right + reach))
    left, right = min(left, near.min(initial=left)), max(right, near.max(initial=right))
    margin = 0.05 * (right - left) or 1.0
    return float(left - margin), float(right + margin)


def _finite(values: pd.DataFrame | pd.Series) -> Floats:
    """Return the finite values in one array."""
    array = values.to_numpy(dtype=np.float64).ravel()
    return array[np.isfinite(array)]


def _drawn(table: pd.DataFrame, limits: tuple[float, float]) -> xr.Dataset:
    """Return point and interval of each estimate, cut off at the limits."""
    value = table["value"].where(table["value"].between(*limits)).to_numpy(np.float64)
    low, high = np.clip(table[["lower", "upper"]].to_numpy(np.float64), *limits).T
    return layout.intervals_of("log_evidence", table.index.to_list(), value, low, high)


def _draw_lines(figure: layout.Figure, table: pd.DataFrame, reference: float | None) -> None:
    """Draw the recommended interval and the reference over the whole height."""
    row = table.loc[table["recommended"]]
    ends = row[["lower", "upper"]].to_numpy(dtype=np.float64).ravel()
    color = "C0" if (row["kind"] == _RECOMMENDED).all() else "B3"
    if ends.size and np.isfinite(ends).all():
        data = xr.Dataset({"log_evidence": ("end", ends)})
        figure.draw("recommended", "vspan", data, ignore_aes="all", color=color, alpha=0.15)
    if reference is not None:
        data = xr.Dataset({"log_evidence": float(reference)})
        figure.draw("ref_line", "vline", data, ignore_aes="all", **_REFERENCE_LOOK)


def _draw_out_of_range(
    figure: layout.Figure, table: pd.DataFrame, limits: tuple[float, float]
) -> None:
    """Write each estimate outside the plot at the edge that is nearest to it."""
    inset = 0.01 * (limits[1] - limits[0])
    best = table.loc[table["recommended"], "value"]
    for row, (name, value) in enumerate(table["value"].items()):
        if not (value < limits[0] or value > limits[1]):
            continue
        left = value < limits[0]
        text = _far_out(value, best.iloc[0] if len(best) else float("nan"))
        edge = [limits[0] + inset if left else limits[1] - inset]
        figure.draw(
            "out_of_range",
            "annotate_xy",
            xr.Dataset({"log_evidence": ("model", edge)}, coords={"model": [name]}),
            name=f"out_of_range_{row}",
            color="B2",
            store_artist=False,
            text=f"\N{LEFTWARDS ARROW} {text}" if left else f"{text} \N{RIGHTWARDS ARROW}",
            horizontal_align="left" if left else "right",
        )


def _far_out(value: float, best: float) -> str:
    """Return an estimate in words, and how far it is from the recommended one."""
    text = _short(value, 4)
    distance = value - best
    if np.isfinite(distance):
        side = "above" if distance > 0 else "below"
        text += f" ({_short(abs(distance), 3)} nats {side})"
    return text.replace("-", layout.MINUS)


def _short(value: float, digits: int) -> str:
    """Return a number with few digits, and an exponent from a million on."""
    return f"{float(f'{value:.{digits}g}'):g}"


def _label(name: str, row: "pd.Series[Any]") -> str:
    notes = ["recommended"] if row["recommended"] else []
    if row["status"] not in (Status.OK, Status.BOUND):
        notes.append(str(row["status"]))
    return f"{name} ({', '.join(notes)})" if notes else name
