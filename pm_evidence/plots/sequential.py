"""The Bayes factor of two models after each data point."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pm_evidence.core.checks import described
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.estimators.errors import Spread, combined, half_width
from pm_evidence.plots import layout
from pm_evidence.results.sequential import sequences_of

if TYPE_CHECKING:
    from arviz_plots.plot_collection import PlotCollection

_VISUALS = ("line", "point", "band", "ref_line", "category", "title", "xlabel", "ylabel")
_FEW = 60  # data points up to which each is marked
# Kass and Raftery (1995): log Bayes factors from which on evidence is positive, strong, very strong
_CATEGORIES = {1.0: "positive", 3.0: "strong", 5.0: "very strong"}


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
) -> "PlotCollection":
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
    figure = layout.Figure(visuals, _VISUALS, backend)
    is_pair = isinstance(names, tuple | list) and len(names) == 2
    if not is_pair or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"names must be two strings, got {described(names)}; pass for example ('a', 'b')."
        )
    data = _drawn(dt1, dt2)
    figure.open(data, figure_kwargs, pc_kwargs, rows=3)
    bounds = data["log_bf"].sel(plot_axis=["y", "low", "high"])
    low, high = float(bounds.min()), float(bounds.max())
    room = 0.05 * max(high - low, 1.0)
    figure.draw("band", _band, data, color="C0", alpha=0.25)
    for height, name in _lines(low - room, high + room):
        line = xr.Dataset({"log_bf": height})
        look = {"color": "B3", "linestyle": "C1" if height else "C0", "alpha": 0.6}
        figure.draw("ref_line", _hline, line, name=f"ref_line_{height:g}", **look)
        figure.draw("category", _text, line, name=f"category_{height:g}", string=name, color="B3")
    figure.draw("line", "line_xy", data, color="C0", width=2)
    if data.sizes["point"] <= _FEW:
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


def _drawn(dt1: Any, dt2: Any) -> xr.Dataset:
    """Return the log Bayes factor after each number of data points, and its 95 % interval."""
    first, second = sequences_of(dt1, dt2)
    value = first.log_evidence - second.log_evidence
    dof = [float(len(each.influence) - 1) for each in (first, second)]
    half = [0.0]
    for pair in zip(first.error()[1:], second.error()[1:], strict=True):
        half.append(half_width(combined(*map(Spread, pair, dof))))
    rows = np.stack([first.n_data.astype(float), value, value - half, value + half])
    return xr.Dataset(
        {"log_bf": (("plot_axis", "point"), rows)},
        coords={"plot_axis": ["x", "y", "low", "high"]},
    )


def _lines(low: float, high: float) -> list[tuple[float, str]]:
    """Return the heights of lines between two bounds, with what begins there."""
    found = [(0.0, "")]
    for height, name in _CATEGORIES.items():
        found += [(height, name), (-height, name)]
    return [each for each in found if low < each[0] < high]


def _band(da: xr.DataArray, target: Any, **arguments: Any) -> Any:
    x, low, high = (da.sel(plot_axis=name).values for name in ("x", "low", "high"))
    return layout.backend_of(target).fill_between_y(x, low, high, target, **arguments)


def _text(da: xr.DataArray, target: Any, string: str, **arguments: Any) -> Any:
    """Write the name of a category above the left end of its line."""
    place = {"vertical_align": "bottom", "horizontal_align": "left"}
    return layout.backend_of(target).text(0.0, float(da), string, target, **place, **arguments)


def _hline(da: xr.DataArray, target: Any, **arguments: Any) -> Any:
    return layout.backend_of(target).hline(float(da), target, **arguments)
