"""Log Bayes factors of other priors against the model as it is written."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_kind
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import Status
from pm_evidence.plots import layout

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
    figure = layout.Figure(visuals, _VISUALS, backend)
    check_kind("table", table, pd.DataFrame, "pass what prior_sensitivity returned")
    missing = [name for name in _COLUMNS if name not in table.columns]
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
    data = layout.intervals_of("log_bf", names, table["log_bf"].to_numpy(float), half)
    labels = [
        f"{variable}: {prior}" + ("" if status == Status.OK else f" ({status})")
        for (variable, prior), status in table["status"].items()
    ]
    written = xr.Dataset({"log_bf": 0.0})  # the model as it is written
    figure.forest(data, table["status"], height, labels, written, figure_kwargs, pc_kwargs)
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
