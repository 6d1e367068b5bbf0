"""Evidences of several models: compared, under other priors, datum by datum, and calibrated."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count, check_kind, described
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.errors import Spread, combined, half_width
from pm_evidence.plots import layout
from pm_evidence.results.calibration import Calibration, reliability
from pm_evidence.results.compare import compare
from pm_evidence.results.sequential import sequences_of

Floats = NDArray[np.float64]

_COLUMNS = {
    "evidence": ("log_evidence", "mcse", "log_bf", "log_bf_mcse", "status"),
    "probability": ("log_evidence", "prob", "prob_mcse", "status"),
}
_TITLES = {
    "evidence": ("Log evidence", "log evidence (nats)"),
    "probability": ("Posterior probability", "posterior probability"),
}
_OF_SENSITIVITY = ("log_bf", "log_bf_mcse", "log_bf_dof", "how", "status")
_GAP = 0.7  # between two variables, in rows
_FEW_POINTS = 60  # data points up to which each is marked
# Kass and Raftery (1995): log Bayes factors from which on evidence is positive, strong, very strong
_CATEGORIES = {1.0: "positive", 3.0: "strong", 5.0: "very strong"}
# Width of a point in relation to that of the whole plot.
_POINT = 0.02


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
    parts = (*layout.ROWS, "difference")
    figure = layout.Figure(parts, visuals, backend, figure_kwargs, pc_kwargs)
    check_choice("quantity", quantity, _TITLES)
    table = models if isinstance(models, pd.DataFrame) else compare(models)
    missing = [name for name in _COLUMNS[quantity] if name not in table.columns]
    if missing or not len(table):
        raise ValueError(
            f"models must be a table from compare with one row or more, got {len(table)} rows and "
            f"no column {missing}; pass the table as compare returned it."
        )
    table = table.sort_values("log_evidence", ascending=False, kind="stable", na_position="last")
    data = _compared(table, quantity)
    height = np.arange(len(table), 0, -1, dtype=np.float64)
    labels = [_label(str(name), row) for name, row in table.iterrows()]
    figure.forest(data, table["status"], labels, height, float(data["log_evidence"][0]))
    _draw_numbers(figure, table, data, quantity)
    title, xlabel = _TITLES[quantity]
    title += f" with 95 % interval\n(in parentheses: error of the last digits){_of_narrow(data)}"
    figure.labels("log_evidence", title=title, xlabel=xlabel)
    return figure.collection


def _compared(table: pd.DataFrame, quantity: str) -> xr.Dataset:
    """Return point and interval of each model."""
    probable = quantity == "probability"
    column, error = ("prob", "prob_mcse") if probable else ("log_evidence", "mcse")
    known = {} if probable else table.attrs.get("dof", {})
    half = layout.half_widths(table[error], [known.get(name, np.inf) for name in table.index])
    value = table[column].to_numpy(float)
    low, high = value - half, value + half
    if probable:
        low, high = np.clip([low, high], 0.0, 1.0)
    return layout.intervals_of("log_evidence", [*map(str, table.index)], value, low, high)


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


@usual_floats()
def plot_sensitivity(
    table: pd.DataFrame,
    *,
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "layout.PlotCollection":
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
    parts = (*layout.ROWS, "number")
    figure = layout.Figure(parts, visuals, backend, figure_kwargs, pc_kwargs)
    check_kind("table", table, pd.DataFrame, "pass what prior_sensitivity returned")
    missing = [name for name in _OF_SENSITIVITY if name not in table.columns]
    if missing or not len(table) or table.index.nlevels != 2:
        raise ValueError(
            f"table must be one from prior_sensitivity, got {len(table)} rows and no column "
            f"{missing}; pass the table as it was returned."
        )
    variable = table.index.get_level_values(0).to_numpy()
    depth = np.arange(len(table)) + _GAP * np.cumsum(np.append(0, variable[1:] != variable[:-1]))
    height = depth.max() + 1.0 - depth
    names = [f"{variable}, {prior}" for variable, prior in table.index]
    half = layout.half_widths(table["log_bf_mcse"], table["log_bf_dof"])
    value = table["log_bf"].to_numpy(float)
    data = layout.intervals_of("log_bf", names, value, value - half, value + half)
    labels = [
        f"{variable}: {prior}" + ("" if status == Status.OK else f" ({status})")
        for (variable, prior), status in table["status"].items()
    ]
    figure.forest(data, table["status"], labels, height, 0.0)
    for row, (value, error) in enumerate(zip(table["log_bf"], table["log_bf_mcse"], strict=True)):
        if np.isfinite(value) and (value != 0.0 or error != 0.0):
            figure.draw(
                "number",
                layout.text_above,
                data[["log_bf"]].isel(model=[row]),
                name=f"number_{row}",
                color="B1",
                store_artist=False,
                text=layout.with_error(float(value), float(error)),
                horizontal_align="center",
            )
    title = "Other priors against the model as written\n(95 % intervals)"
    figure.labels("log_bf", title=title, xlabel="log Bayes factor (nats)")
    low, high = float(data["interval"].min()), float(data["interval"].max())
    if low < high:
        room = 0.15 * (high - low)  # for the numbers above the outermost points
        figure.limits("log_bf", x=(low - room, high + room))
    return figure.collection


@usual_floats()
def plot_sequential(
    dt1: xr.DataTree,
    dt2: xr.DataTree,
    *,
    names: tuple[str, str] = ("model 1", "model 2"),
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "layout.PlotCollection":
    """Plot the log Bayes factor of two models after each data point, with a 95 % band.

    The line shows how the evidence develops as data come in: above zero it is for the first model.
    Dashed lines are where it becomes positive, strong and very strong (Kass and Raftery 1995).

    Parameters
    ----------
    dt1, dt2 : DataTree
        Results of ``sample_evidence`` for both models, with ``method="resample_move"`` and the same
        path, such as ``pe.paths.DataPoints(order="given", batches=1)``. Only numbers of data points
        that both have on their paths are drawn.
    names : pair of str
        Names of the models, for the labels.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` by default.
    visuals : mapping of str to mapping or bool, optional
        Arguments of each part, or False to leave it out: ``line``, ``point`` (drawn up to 60 data
        points), ``band``, ``ref_line`` (at zero and where categories begin), ``category`` (their
        names), ``title``, ``xlabel``, ``ylabel``.
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
        If a result is not a DataTree.
    ValueError
        If the observed data or the order of the data points differ, a run did not add data points,
        ``names`` are not two, or ``visuals`` names an unknown part.

    Notes
    -----
    The band is that of the Monte Carlo error after each data point, a Student's t interval from the
    spread of islands. It is not simultaneous, and does not tell how the line will go on.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> def normal(sigma):
    ...     with pm.Model() as model:
    ...         mu = pm.Normal("mu", 0, sigma)
    ...         pm.Normal("y", mu, 1, observed=[0.5, 1.5, 0.2, 0.9])
    ...     path = pe.paths.DataPoints(order="given", batches=1)
    ...     return pe.sample_evidence(
    ...         model, method="resample_move", path=path, random_seed=1, progressbar=False
    ...     )
    >>> collection = pe.plot_sequential(normal(1), normal(3), backend="none")
    """
    parts = ("line", "point", "band", "ref_line", "category", *layout.AXES)
    figure = layout.Figure(parts, visuals, backend, figure_kwargs, pc_kwargs)
    is_pair = isinstance(names, tuple | list) and len(names) == 2
    if not is_pair or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"names must be two strings, got {described(names)}; pass for example ('a', 'b')."
        )
    data = _sequence(dt1, dt2)
    figure.open(data, 3)
    bounds = data["log_bf"].sel(plot_axis=["y", "low", "high"])
    low, high = float(bounds.min()), float(bounds.max())
    room = 0.05 * max(high - low, 1.0)
    figure.draw("band", layout.band, data, color="C0", alpha=0.25)
    place: dict[str, Any] = {"x": 0.0, "vertical_align": "bottom", "horizontal_align": "left"}
    for height, name in _lines(low - room, high + room):
        line = xr.Dataset({"log_bf": height})
        look = {"color": "B3", "linestyle": "C1" if height else "C0", "alpha": 0.6}
        figure.draw("ref_line", "hline", line, name=f"ref_line_{height:g}", **look)
        label = {"text": name, "color": "B3", **place}
        figure.draw("category", "annotate_xy", line, name=f"category_{height:g}", **label)
    figure.draw("line", "line_xy", data, color="C0", width=2)
    if data.sizes["point"] <= _FEW_POINTS:
        figure.draw("point", "scatter_xy", data, color="C0", size=16)
    figure.limits("log_bf", y=(low - room, high + room))
    figure.in_matplotlib(layout.whole_ticks, "log_bf")
    figure.labels(
        "log_bf",
        title=f"Evidence for {names[0]} (above 0) or {names[1]} (below)",
        xlabel="number of data points",
        ylabel="log Bayes factor (nats)",
    )
    return figure.collection


def _sequence(dt1: Any, dt2: Any) -> xr.Dataset:
    """Return the log Bayes factor after each number of data points, and its 95 % interval."""
    first, second = sequences_of(dt1, dt2)
    value = first.log_evidence - second.log_evidence
    dof = [float(len(each.influence) - 1) for each in (first, second)]
    half = [0.0]
    for pair in zip(first.error()[1:], second.error()[1:], strict=True):
        half.append(half_width(combined(*map(Spread, pair, dof))))
    return layout.curve("log_bf", x=first.n_data, y=value, low=value - half, high=value + half)


def _lines(low: float, high: float) -> list[tuple[float, str]]:
    """Return the heights of lines between two bounds, with what begins there."""
    found = [(0.0, "")]
    for height, name in _CATEGORIES.items():
        found += [(height, name), (-height, name)]
    return [each for each in found if low < each[0] < high]


@usual_floats()
def plot_calibration(
    calibration: Calibration,
    *,
    bins: int = 10,
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "layout.PlotCollection":
    """Plot how often a model was the right one against the probability that it was given.

    Data sets are sorted by the posterior probability of a model, and divided into bins of equal
    size. Points are the mean probability and the share of data sets from that model in each bin,
    with the 95 % interval of the share. Probabilities that are right lie along the diagonal. Each
    model has a plot; of two models only the first has one, because the other is its mirror image.

    Parameters
    ----------
    calibration : Calibration
        From ``calibrate``.
    bins : int
        Number of bins.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` by default.
    visuals : mapping of str to mapping or bool, optional
        Arguments of each part, or False to leave it out: ``point``, ``interval``, ``diagonal``,
        ``title``, ``xlabel``, ``ylabel``.
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
        If ``calibration`` is not a Calibration.
    ValueError
        If ``bins`` is not a count, or ``visuals`` names an unknown part.

    Notes
    -----
    The intervals are those of Clopper and Pearson (1934), which cover at least 95 %. The p value in
    the title is that of the test of all probabilities, which needs no bins.
    """
    parts = ("point", "interval", "diagonal", *layout.AXES)
    figure = layout.Figure(parts, visuals, backend, figure_kwargs, pc_kwargs)
    check_kind("calibration", calibration, Calibration, "pass what calibrate returned")
    check_count("bins", bins, 1)
    runs = calibration.runs
    names = [str(name) for name in runs["model"].values]
    names = names[:1] if len(names) == 2 else names  # of two models, one tells all
    n_cols = min(len(names), pc_kwargs.get("col_wrap", 3))
    n_rows = -(-len(names) // n_cols)
    panels = xr.Dataset(dict.fromkeys(names, 0.0))
    figure.open(panels, 2 * n_rows, n_cols, cols=["__variable__"], col_wrap=3)
    for name in names:
        hit = (runs["drawn_from"] == name).values
        found = reliability(runs["prob"].sel(model=name).values, hit, bins)
        diagonal = layout.curve(name, x=[0.0, 1.0], y=[0.0, 1.0])
        figure.draw("diagonal", "line_xy", diagonal, color="B3", linestyle="C1")
        for j, x in enumerate(found["probability"]):
            bar = layout.curve(name, x=[x, x], y=[found["lower"][j], found["upper"][j]])
            figure.draw("interval", "line_xy", bar, name=f"interval_{j}", color="C0")
        points = layout.curve(name, x=found["probability"], y=found["frequency"])
        figure.draw("point", "scatter_xy", points, color="C0")
        figure.labels(
            name,
            title=f"{runs.sizes['data_set']} data sets, p = {calibration.p_value:.2g}",
            xlabel=f"probability of {name}",
            ylabel=f"share of data from {name}",
        )
        figure.limits(name, (-0.03, 1.03), (-0.03, 1.03))
    return figure.collection
