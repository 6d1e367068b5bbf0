"""Densities of the work of forward and of reverse paths, which cross at minus the log evidence."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import LogEvidence, Role
from pm_evidence.estimators.errors import Spread, half_width
from pm_evidence.plots import layout
from pm_evidence.results import schema
from pm_evidence.results.datatree import log_evidence
from pm_evidence.results.stored import group_of

Floats = NDArray[np.float64]

_VISUALS = (
    "density",
    "fill",
    "mean",
    "estimate",
    "interval",
    "title",
    "xlabel",
    "ylabel",
    "legend",
)
_KINDS = ("kde", "hist")
_DIRECTIONS: tuple[str, ...] = (Role.FORWARD, Role.REVERSE)
_BOUNDS: Mapping[str, str] = {Role.FORWARD: "lower", Role.REVERSE: "upper"}
# Tukey (1977) calls values beyond three interquartile ranges from the quartiles "far out". Of
# normal work 1 of 400,000 paths lies there.
_FAR_OUT = 3.0
_GRID = 2048  # points of a density, enough if one density is much narrower than the other
_MOST_BINS = 200


@usual_floats()
def plot_work(
    dt: xr.DataTree,
    *,
    kind: str = "kde",
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "layout.PlotCollection":
    """Plot the densities of forward and of reverse work, which cross at minus log Z.

    If the two densities overlap, log Z can be estimated well; if there is a gap between them, the
    run needs more stages or a better kernel. The plot also shows the recommended estimate with its
    95 % interval, and the mean work of each direction, which bounds log Z.

    Parameters
    ----------
    dt : DataTree
        From ``sample_evidence`` with paths in both directions.
    kind : {"kde", "hist"}
        How the densities are drawn. Work that does not vary is drawn as a histogram in any case.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` by default.
    visuals : mapping of str to mapping or bool, optional
        Arguments of each part, or False to leave it out: ``density``, ``fill`` (below a density),
        ``mean`` (the bounds), ``estimate``, ``interval``, ``title``, ``xlabel``, ``ylabel``,
        ``legend``.
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
        If it lacks the group ``work`` or ``log_evidence``, work of one direction or any finite
        work; or if ``kind`` or ``visuals`` holds an unknown name.

    Notes
    -----
    With ``p_F`` and ``p_R`` the densities of forward and reverse work, Crooks' theorem says
    ``p_F(w) / p_R(w) = exp(w + log Z)`` (Crooks 1999; Habeck 2017, Eq. 8 and Fig. 1A). It holds
    for the exact densities, and only if reverse paths start from the posterior. The drawn densities
    are smoothed and cross near the estimate.

    The plot shows each direction up to three interquartile ranges beyond its quartiles, or up to
    its last path if that is nearer. The estimate and its interval are included unless they would
    make the plot more than three times as wide. Paths outside the plot are counted in the
    densities, so that the area below a density may be less than one; the legend gives their share,
    and that of paths of weight zero (infinite work). A mean outside the plot is given as a number.
    """
    check_choice("kind", kind, _KINDS)
    figure = layout.Figure(visuals, _VISUALS, backend)
    work, estimate = _checked(dt), log_evidence(dt)
    limits = _limits(work, estimate)
    data = _densities(work, limits, kind)
    figure.open(data, figure_kwargs, pc_kwargs, rows=3, aes={"color": [schema.DIRECTION]})
    _draw_estimate(figure, estimate)
    binned = "histogram" in data["plot_axis"]
    figure.draw("fill", "hist" if binned else _fill, data, alpha=0.25)
    figure.draw("density", "step_hist" if binned else "line_xy", data, width=2)
    means = np.array([work[name].mean() for name in _DIRECTIONS])
    means[(means < limits[0]) | (means > limits[1])] = np.nan
    directions = {schema.DIRECTION: list(_DIRECTIONS)}
    inside = xr.Dataset({"work": (schema.DIRECTION, means)}, coords=directions)
    figure.draw("mean", "vline", inside, linestyle="C1")
    figure.labels(
        "work",
        title=f"Work of annealing: the densities cross at {layout.MINUS}log Z",
        xlabel="work (nats)",
        ylabel="density (per nat)",
    )
    highest = float(data["work"].isel(plot_axis=-1).max())
    figure.limits("work", limits, (0.0, 1.05 * highest))
    figure.in_matplotlib(layout.write_out_numbers, "work")
    entries: list[tuple[str, Mapping[str, Any]]] = []
    for name, values in work.items():
        color = figure.look(["color"], "work", **{schema.DIRECTION: name})
        entries.append((f"{name} work{_cut_off(values, limits)}", {**color, "width": 2}))
        entries.append((_mean_label(name, values, limits), {**color, "linestyle": "C1"}))
    if np.isfinite(estimate.value):
        value = layout.with_error(-estimate.value, estimate.mcse)
        label = f"{layout.MINUS}log Z = {value} ({estimate.estimator}, with 95 % interval)"
        entries.append((label, {"color": "B1"}))
    figure.legend(entries)
    return figure.collection


def _checked(dt: xr.DataTree) -> dict[str, Floats]:
    """Return the work of each direction."""
    group = group_of(dt, schema.WORK)
    there = [name for name in _DIRECTIONS if name in group]
    if len(there) < len(_DIRECTIONS):
        raise ValueError(
            f"dt must hold work of both directions, got only {' and '.join(there) or 'none'}; "
            'sample with method="ais", which anneals both ways.'
        )
    work = {name: group[name].to_numpy() for name in _DIRECTIONS}
    for name, values in work.items():
        if not np.isfinite(values).any():
            raise ValueError(
                f"dt must hold finite {name} work, got {values.size} paths without any; "
                "sample with more draws or another reference."
            )
    return work


def _limits(work: Mapping[str, Floats], estimate: LogEvidence) -> tuple[float, float]:
    """Return the visible range of work."""
    ends: list[float] = []
    for values in work.values():
        finite = values[np.isfinite(values)]
        low, high = np.quantile(finite, [0.25, 0.75])
        far = _FAR_OUT * (high - low)
        ends += [max(finite.min(), low - far), min(finite.max(), high + far)]
    left, right = float(min(ends)), float(max(ends))
    wanted = np.array([-estimate.value, *_interval(estimate)])
    reach = right - left
    wanted = np.clip(wanted[~np.isnan(wanted)], left - reach, right + reach)
    left, right = min(left, wanted.min(initial=left)), max(right, wanted.max(initial=right))
    margin = 0.05 * (right - left)
    if margin <= 1e-9 * max(abs(left), abs(right)):  # no more than rounding errors
        margin = 0.5
    return float(left - margin), float(right + margin)


def _interval(estimate: LogEvidence) -> tuple[float, float]:
    """Return the 95 % interval of minus log Z."""
    half = half_width(Spread(estimate.mcse, estimate.dof))
    low = estimate.lower if np.isfinite(estimate.lower) else estimate.value - half
    high = estimate.upper if np.isfinite(estimate.upper) else estimate.value + half
    return -high, -low


def _densities(work: Mapping[str, Floats], limits: tuple[float, float], kind: str) -> xr.Dataset:
    """Return the density of each direction, in the form that the visuals of arviz-plots take."""
    padding = 0.25 * (limits[1] - limits[0])  # a smoothing kernel at the edge extends beyond it
    window = (limits[0] - padding, limits[1] + padding)
    inside = {
        name: values[(values > window[0]) & (values < window[1])] for name, values in work.items()
    }
    shares = [len(inside[name]) / len(work[name]) for name in _DIRECTIONS]
    if kind == "kde" and all(np.ptp(values) > 0 for values in inside.values()):
        axes = ["x", "y"]
        rows = [_kde(inside[name], window) for name in _DIRECTIONS]
    else:
        axes = ["left_edges", "right_edges", "histogram"]
        rows = _histograms([inside[name] for name in _DIRECTIONS], window)
    density = np.stack(rows)
    density[:, -1] *= np.array(shares)[:, None]
    return xr.Dataset(
        {"work": ((schema.DIRECTION, "plot_axis", "point"), density)},
        coords={schema.DIRECTION: list(_DIRECTIONS), "plot_axis": axes},
    )


def _kde(values: Floats, window: tuple[float, float]) -> Floats:
    from arviz_stats.base import array_stats

    grid, density, _ = array_stats.kde(values, custom_lims=window, grid_len=_GRID)
    return np.stack([grid, density])


def _histograms(directions: list[Floats], window: tuple[float, float]) -> list[Floats]:
    """Return edges and densities of histograms in common bins (Freedman and Diaconis 1981)."""
    pooled = np.concatenate(directions)
    low, high = np.quantile(pooled, [0.25, 0.75])
    span = window[1] - window[0]
    width = max(2.0 * (high - low) / np.cbrt(pooled.size), span / _MOST_BINS)
    edges = np.linspace(*window, int(np.ceil(span / width)) + 1)
    heights = [np.histogram(values, edges, density=True)[0] for values in directions]
    return [np.stack([edges[:-1], edges[1:], height]) for height in heights]


def _draw_estimate(figure: layout.Figure, estimate: LogEvidence) -> None:
    ends = np.array(_interval(estimate))
    if np.isfinite(ends).all():
        data = xr.Dataset({"work": ("bound", ends)})
        figure.draw("interval", "vspan", data, ignore_aes="all", color="B3", alpha=0.4)
    if np.isfinite(estimate.value):
        data = xr.Dataset({"work": -estimate.value})
        figure.draw("estimate", "vline", data, ignore_aes="all", color="B1")


def _fill(da: xr.DataArray, target: Any, **arguments: Any) -> Any:
    x, y = da.sel(plot_axis="x").values, da.sel(plot_axis="y").values
    return layout.backend_of(target).fill_between_y(x, np.zeros_like(y), y, target, **arguments)


def _cut_off(values: Floats, limits: tuple[float, float]) -> str:
    """Return the shares of paths outside the plot, in words."""
    parts = {
        "further left": np.mean(values < limits[0]),
        "further right": np.mean((values > limits[1]) & np.isfinite(values)),
        "of weight zero": np.mean(np.isposinf(values)),
    }
    shares = [f"{100 * share:.2g} % {place}" for place, share in parts.items() if share > 0]
    return f" ({', '.join(shares)})" if shares else ""


def _mean_label(name: str, values: Floats, limits: tuple[float, float]) -> str:
    mean = float(values.mean())
    if not np.isfinite(mean):
        return f"mean {name} work is infinite: no {_BOUNDS[name]} bound"
    text = layout.number(mean, float(values.std()) / np.sqrt(len(values)))
    seen = limits[0] <= mean <= limits[1]
    side = "right" if mean > limits[1] else "left"
    place = "" if seen else f", further {side}"
    return f"mean {name} work = {text}{place}: minus the {_BOUNDS[name]} bound"
