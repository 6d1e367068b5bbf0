"""Log Bayes factors of other priors against the model as it is written."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_kind
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import Status
from pm_evidence.plots import layout

if TYPE_CHECKING:
    from arviz_plots.plot_collection import PlotCollection


Floats = NDArray[np.float64]

_COLUMNS = ("log_bf", "log_bf_mcse", "log_bf_dof", "how", "status")
_VISUALS = (
    "error_bar",
    "point_estimate",
    "number",
    "ref_line",
    "title",
    "xlabel",
    "ticklabels",
    "legend",
)
_GAP = 0.7  # between two variables, in rows
_ROOM = 0.15  # beside the outermost intervals, as a share of what they span


@usual_floats()
def plot_sensitivity(
    table: pd.DataFrame,
    *,
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Plot the log Bayes factor of each prior against the prior as it is written.

    Points to the right of the line are priors under which the evidence is larger. Numbers above the
    points are log Bayes factors in nats, with standard errors in parentheses. Priors whose status
    is not ``"ok"`` have open points and dashed bars.

    Parameters
    ----------
    table : DataFrame
        From ``prior_sensitivity``.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` by default.
    visuals : mapping of str to mapping or bool, optional
        Arguments of each part, or False to leave it out: ``error_bar``, ``point_estimate``,
        ``number``, ``ref_line`` (at the prior as it is written), ``title``, ``xlabel``,
        ``ticklabels``, ``legend`` (drawn if a status is not ``"ok"``).
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
        If ``table`` is not a DataFrame.
    ValueError
        If it lacks a column, or ``visuals`` names an unknown part.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    >>> table = pe.prior_sensitivity(model, {"mu": [0.5]}, random_seed=1, progressbar=False)
    >>> collection = pe.plot_sensitivity(table, backend="none")
    """
    visuals = layout.checked_visuals(visuals, _VISUALS)
    table = _checked(table)
    backend = layout.backend_name(backend)
    height = _heights(table)
    pc_kwargs["aes"] = {"y": ["model"], **pc_kwargs.get("aes", {})}
    pc_kwargs.setdefault("y", height)
    data = _drawn(table)
    collection = layout.new_collection(
        data[["log_bf"]],
        backend=backend,
        figure_kwargs=layout.figure_arguments(figure_kwargs, backend, (len(table) + 5) // 3, 1),
        **pc_kwargs,
    )
    _draw_line(collection, visuals)
    sound = (table["status"] == Status.OK).to_numpy()
    layout.draw_intervals(collection, data, sound, visuals)
    _draw_numbers(collection, table, data, visuals)
    _draw_frame(collection, table, data, height, visuals)
    legend = layout.visual_arguments(visuals, "legend")
    if legend is not None and not sound.all():
        layout.add_legend(collection, layout.of_statuses(), **legend)
    return collection


def _checked(table: Any) -> pd.DataFrame:
    check_kind("table", table, pd.DataFrame, "pass what prior_sensitivity returned")
    missing = [name for name in _COLUMNS if name not in table.columns]
    if missing or not len(table) or table.index.nlevels != 2:
        raise ValueError(
            f"table must be one from prior_sensitivity, got {len(table)} rows and no column "
            f"{missing}; pass the table as it was returned."
        )
    return pd.DataFrame(table)


def _heights(table: pd.DataFrame) -> Floats:
    """Return the position of each row, with a gap between variables."""
    variable = table.index.get_level_values(0).to_numpy()
    gaps = np.cumsum(np.append(False, variable[1:] != variable[:-1]))
    depth = np.arange(len(table)) + _GAP * gaps
    heights: Floats = depth.max() + 1.0 - depth
    return heights


def _drawn(table: pd.DataFrame) -> xr.Dataset:
    """Return point and interval of each prior, NaN where there is nothing to draw."""
    value = table["log_bf"].to_numpy(dtype=np.float64, copy=True)
    value[~np.isfinite(value)] = np.nan
    half = layout.half_widths(table["log_bf_mcse"], table["log_bf_dof"])
    half[~np.isfinite(half)] = np.nan
    interval = np.stack([value - half, value + half], axis=1)
    names = np.array([f"{variable}, {prior}" for variable, prior in table.index], dtype=np.str_)
    return xr.Dataset(
        {"log_bf": ("model", value), "interval": (("model", "ci_bound"), interval)},
        coords={"model": names, "ci_bound": ["lower", "upper"]},
    )


def _draw_line(collection: Any, visuals: layout.Visuals) -> None:
    """Draw a line at the model as it is written."""
    line = layout.visual_arguments(visuals, "ref_line", color="B3", linestyle="--")
    if line is not None:
        linestyles = layout.plot_backend(collection.backend).get_default_aes("linestyle", 2, {})
        line["linestyle"] = linestyles[1] if line["linestyle"] == "--" else line["linestyle"]
        zero = xr.Dataset({"log_bf": 0.0})
        collection.map(layout.draw().vline, "ref_line", data=zero, ignore_aes="all", **line)


def _draw_numbers(
    collection: Any, table: pd.DataFrame, data: xr.Dataset, visuals: layout.Visuals
) -> None:
    """Write the log Bayes factor above each point but those of the model as it is written."""
    arguments = layout.visual_arguments(visuals, "number", color="B1")
    if arguments is None:
        return
    for row, (value, error) in enumerate(zip(table["log_bf"], table["log_bf_mcse"], strict=True)):
        if not np.isfinite(value) or (value == 0.0 and error == 0.0):
            continue
        collection.map(
            layout.text_above,
            f"number_{row}",
            data=data[["log_bf"]].isel(model=[row]),
            store_artist=False,
            text=layout.with_error(float(value), float(error)),
            horizontal_align="center",
            **arguments,
        )


def _draw_frame(
    collection: Any,
    table: pd.DataFrame,
    data: xr.Dataset,
    height: Floats,
    visuals: layout.Visuals,
) -> None:
    layout.draw_labels(
        collection,
        "log_bf",
        visuals,
        title="Other priors against the model as written\n(95 % intervals)",
        xlabel="log Bayes factor (nats)",
    )
    frame = layout.frame_of("log_bf")
    ticks = layout.visual_arguments(visuals, "ticklabels")
    if ticks is not None:
        labels = [_label(str(v), str(p), s) for (v, p), s in table["status"].items()]
        collection.map(layout.set_yticks, "yticks", values=height, labels=labels, **frame, **ticks)
    limits = (0.5, float(height.max()) + 0.7)
    collection.map(layout.draw().set_ylim, "ylim", limits=limits, **frame)
    low, high = float(data["interval"].min()), float(data["interval"].max())
    if low < high:
        room = _ROOM * (high - low)  # for the numbers above the outermost points
        reach = (low - room, high + room)
        collection.map(layout.draw().set_xlim, "xlim", limits=reach, **frame)
    if collection.backend == "matplotlib":
        collection.map(layout.write_out_numbers, "numbers", **frame)


def _label(variable: str, prior: str, status: str) -> str:
    return f"{variable}: {prior}" + ("" if status == Status.OK else f" ({status})")
