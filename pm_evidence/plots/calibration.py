"""Reliability of posterior model probabilities."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, check_kind
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.estimators.calibration import reliability
from pm_evidence.plots import layout
from pm_evidence.results.sensitivity import Calibration

Floats = NDArray[np.float64]

_VISUALS = ("point", "interval", "diagonal", "title", "xlabel", "ylabel")


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
    figure = layout.Figure(visuals, _VISUALS, backend)
    check_kind("calibration", calibration, Calibration, "pass what calibrate returned")
    check_count("bins", bins, 1)
    runs = calibration.runs
    names = [str(name) for name in runs["model"].values]
    names = names[:1] if len(names) == 2 else names  # of two models, one tells all
    pc_kwargs = {"cols": ["__variable__"], "col_wrap": 3, **pc_kwargs}
    n_cols = min(len(names), pc_kwargs["col_wrap"])
    n_rows = -(-len(names) // n_cols)
    panels = xr.Dataset(dict.fromkeys(names, 0.0))
    figure.open(panels, figure_kwargs, pc_kwargs, rows=2 * n_rows, cols=n_cols)
    for name in names:
        hit = (runs["drawn_from"] == name).values
        found = reliability(runs["prob"].sel(model=name).values, hit, bins)
        diagonal = layout.curve(name, [0.0, 1.0], [0.0, 1.0])
        figure.draw("diagonal", "line_xy", diagonal, color="B3", linestyle="C1")
        for j, x in enumerate(found["probability"]):
            bar = layout.curve(name, [x, x], [found["lower"][j], found["upper"][j]])
            figure.draw("interval", "line_xy", bar, name=f"interval_{j}", color="C0")
        points = layout.curve(name, found["probability"], found["frequency"])
        figure.draw("point", "scatter_xy", points, color="C0")
        figure.labels(
            name,
            title=f"{runs.sizes['data_set']} data sets, p = {calibration.p_value:.2g}",
            xlabel=f"probability of {name}",
            ylabel=f"share of data from {name}",
        )
        figure.limits(name, (-0.03, 1.03), (-0.03, 1.03))
    return figure.collection
