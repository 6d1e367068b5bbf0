"""Reliability of posterior model probabilities."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, check_kind
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.estimators.calibration import reliability
from pm_evidence.plots import layout
from pm_evidence.results.sensitivity import Calibration

if TYPE_CHECKING:
    from arviz_plots.plot_collection import PlotCollection


Floats = NDArray[np.float64]

_VISUALS = ("point", "interval", "diagonal", "title", "xlabel", "ylabel")
_BINS = 10
_PAIR = 2  # of two models, one tells all


@usual_floats()
def plot_calibration(
    calibration: Calibration,
    *,
    bins: int = _BINS,
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
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
    visuals = layout.checked_visuals(visuals, _VISUALS)
    check_kind("calibration", calibration, Calibration, "pass what calibrate returned")
    check_count("bins", bins, 1)
    backend = layout.backend_name(backend)
    runs = calibration.runs
    names = [str(name) for name in runs["model"].values]
    names = names[:1] if len(names) == _PAIR else names
    pc_kwargs.setdefault("cols", ["__variable__"])
    pc_kwargs.setdefault("col_wrap", 3)
    n_cols = min(len(names), pc_kwargs["col_wrap"])
    n_rows = -(-len(names) // n_cols)
    collection = layout.new_collection(
        xr.Dataset(dict.fromkeys(names, 0.0)),
        backend=backend,
        figure_kwargs=layout.figure_arguments(figure_kwargs, backend, 2 * n_rows, n_cols),
        **pc_kwargs,
    )
    for name in names:
        probability = runs["prob"].sel(model=name).values
        hit = (runs["drawn_from"] == name).values
        _draw_model(collection, name, reliability(probability, hit, bins), visuals)
        _draw_frame(collection, name, calibration, visuals)
    return collection


def _draw_model(
    collection: Any, name: str, found: dict[str, Floats], visuals: layout.Visuals
) -> None:
    draw = layout.draw()
    diagonal = layout.visual_arguments(visuals, "diagonal", color="B3", linestyle="C1")
    if diagonal is not None:
        ends = layout.curve(name, [0.0, 1.0], [0.0, 1.0])
        collection.map(draw.line_xy, "diagonal", data=ends, **diagonal)
    interval = layout.visual_arguments(visuals, "interval", color="C0")
    if interval is not None:
        for j, x in enumerate(found["probability"]):
            bar = layout.curve(name, [x, x], [found["lower"][j], found["upper"][j]])
            collection.map(draw.line_xy, f"interval_{j}", data=bar, **interval)
    point = layout.visual_arguments(visuals, "point", color="C0")
    if point is not None:
        points = layout.curve(name, found["probability"], found["frequency"])
        collection.map(draw.scatter_xy, "point", data=points, **point)


def _draw_frame(
    collection: Any, name: str, calibration: Calibration, visuals: layout.Visuals
) -> None:
    n = calibration.runs.sizes["data_set"]
    layout.draw_labels(
        collection,
        name,
        visuals,
        title=f"{n} data sets, p = {calibration.p_value:.2g}",
        xlabel=f"probability of {name}",
        ylabel=f"share of data from {name}",
    )
    limits = (-0.03, 1.03)
    frame = layout.frame_of(name)
    collection.map(layout.draw().set_xlim, "xlim", limits=limits, **frame)
    collection.map(layout.draw().set_ylim, "ylim", limits=limits, **frame)
