"""Work and energy of paths in both directions; the gap between the directions is hysteresis."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import LogEvidence, Role
from pm_evidence.estimators.bar import overlap
from pm_evidence.estimators.errors import Spread, half_width
from pm_evidence.plots import layout
from pm_evidence.results import schema
from pm_evidence.results.datatree import log_evidence
from pm_evidence.results.stored import group_of, variable_of

Floats = NDArray[np.float64]

_KINDS = ("kde", "hist")
_DIRECTIONS: tuple[str, ...] = (Role.FORWARD, Role.REVERSE)
_BOUNDS: Mapping[str, str] = {Role.FORWARD: "lower", Role.REVERSE: "upper"}
# Tukey (1977) calls values beyond three interquartile ranges from the quartiles "far out". Of
# normal work 1 of 400,000 paths lies there.
_FAR_OUT = 3.0
_GRID = 2048  # points of a density, enough if one density is much narrower than the other
_MOST_BINS = 200
_NAMES: Mapping[str, str] = {
    Role.FORWARD: "forward (prior to posterior)",
    Role.REVERSE: "reverse (posterior to prior)",
}
_FEW_STAGES = 40  # up to here each stage gets a point
# Ratios above which the axis of the energy is not linear: the largest to the smallest energy if all
# are positive, and otherwise the largest absolute value to the usual one.
_WIDE_RANGE, _WIDE_SIZE = 100.0, 30.0
_CROWDED = 0.1  # if half of the stages lie below, beta gets a square-root axis
_SCALING_BACKENDS = ("matplotlib", "none")  # those of arviz-plots with scales of the axes
# Bennett's estimate is not trusted with fewer paths in the overlap (or half of what is possible).
# Beyond this variance of the work no sample of a usual size has paths in the overlap.
_LEAST_COMMON_PATHS, _LARGEST_VARIANCE = 10.0, 400.0
_BETA_TICKS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


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
    parts = ("density", "fill", "mean", "estimate", "interval", *layout.AXES, "legend")
    figure = layout.Figure(parts, visuals, backend, figure_kwargs, pc_kwargs)
    work, estimate = _checked(dt), log_evidence(dt)
    limits = _limits(work, estimate)
    data = _densities(work, limits, kind)
    figure.open(data, 3, aes={"color": [schema.DIRECTION]})
    _draw_estimate(figure, estimate)
    binned = "histogram" in data["plot_axis"]
    figure.draw("fill", "hist" if binned else layout.band, data, alpha=0.25)
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
    entries: dict[str, Mapping[str, Any]] = {}
    for name, values in work.items():
        color = figure.look(["color"], "work", **{schema.DIRECTION: name})
        entries[f"{name} work{_cut_off(values, limits)}"] = {**color, "width": 2}
        entries[_mean_label(name, values, limits)] = {**color, "linestyle": "C1"}
    if np.isfinite(estimate.value):
        value = layout.with_error(-estimate.value, estimate.mcse)
        label = f"{layout.MINUS}log Z = {value} ({estimate.estimator}, with 95 % interval)"
        entries[label] = {"color": "B1"}
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
    smooth = kind == "kde" and all(np.ptp(values) > 0 for values in inside.values())
    edges = _edges(np.concatenate([*inside.values()]), window)
    drawn = []
    for name, values in inside.items():
        share = len(values) / len(work[name])
        if smooth:
            grid, height = _kde(values, window)
            rows = {"x": grid, "y": share * height, "low": 0.0 * grid, "high": share * height}
        else:
            height = share * np.histogram(values, edges, density=True)[0]
            rows = {"left_edges": edges[:-1], "right_edges": edges[1:], "histogram": height}
        drawn.append(layout.curve("work", **rows))
    return xr.concat(drawn, xr.DataArray([*work], dims=schema.DIRECTION, name=schema.DIRECTION))


def _kde(values: Floats, window: tuple[float, float]) -> tuple[Floats, Floats]:
    from arviz_stats.base import array_stats

    grid, density, _ = array_stats.kde(values, custom_lims=window, grid_len=_GRID)
    return grid, density


def _edges(pooled: Floats, window: tuple[float, float]) -> Floats:
    """Return the edges of common bins of histograms (Freedman and Diaconis 1981)."""
    low, high = np.quantile(pooled, [0.25, 0.75])
    span = window[1] - window[0]
    width = max(2.0 * (high - low) / np.cbrt(pooled.size), span / _MOST_BINS)
    return np.linspace(*window, int(np.ceil(span / width)) + 1)


def _draw_estimate(figure: layout.Figure, estimate: LogEvidence) -> None:
    ends = np.array(_interval(estimate))
    if np.isfinite(ends).all():
        data = xr.Dataset({"work": ("bound", ends)})
        figure.draw("interval", "vspan", data, ignore_aes="all", color="B3", alpha=0.4)
    if np.isfinite(estimate.value):
        data = xr.Dataset({"work": -estimate.value})
        figure.draw("estimate", "vline", data, ignore_aes="all", color="B1")


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


@usual_floats()
def plot_energy(
    dt: xr.DataTree,
    *,
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "layout.PlotCollection":
    """Plot the mean energy against the inverse temperature, in each direction.

    The paths lag behind the temperature, because the kernel does not reach equilibrium at each
    stage: their mean energy is too high on the way to the posterior, and too low on the way back.
    This is called hysteresis, and the gap between the two lines shows it. The title gives the area
    of the gap in nats, the number of paths in the overlap of both directions, and whether the gap
    is too large; if it is, the run needs more stages or a better kernel.

    Parameters
    ----------
    dt : DataTree
        From ``sample_evidence``. A run in one direction gives one line.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        ArviZ's ``rcParams["plot.backend"]`` by default.
    visuals : mapping of str to mapping or bool, optional
        Arguments of each part, or False to leave it out: ``line``, ``point`` (drawn up to 40
        stages), ``band`` (mean plus and minus one standard deviation of the population; left out
        unless it is given, by True for instance), ``linear_part`` (dotted lines where an axis
        changes from a linear to a logarithmic one), ``title``, ``xlabel``, ``ylabel``, ``legend``.
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
        If it has no group ``annealing`` or no finite energy, or ``visuals`` names an unknown part.

    Notes
    -----
    The area between the lines is about the gap between the upper and the lower bound of log Z
    (Habeck 2017, Eq. 11 and Fig. 3B). It counts as too large if fewer than ten paths lie in the
    overlap of both directions, as counted by ``bar``. If the work is normally distributed, the area
    is its variance and determines this number; the title gives the area at which it is ten. A few
    paths with very large work increase the area without making the estimate worse; ``pe.plot_work``
    shows them. Each energy is drawn at the inverse temperature at which its population was last
    moved: the beginning of a stage on forward paths, the end of a stage on reverse paths.

    Energies that span several decades get a logarithmic axis or, if some are negative, an axis that
    is linear around zero and logarithmic beyond the dotted lines. The labels of the axes name every
    scale that is not linear. On a logarithmic axis the band is cut below half the lowest mean. If
    half of the inverse temperatures lie below 0.1, their axis has a square-root scale. Only
    matplotlib has these scales; the other backends of arviz-plots have linear axes.
    """
    parts = ("line", "point", "band", "linear_part", *layout.AXES, "legend")
    figure = layout.Figure(parts, visuals, backend, figure_kwargs, pc_kwargs)
    data = _energies(dt)
    scales = _Scales.of(data) if figure.backend in _SCALING_BACKENDS else _Scales()
    aes = {"color": [schema.DIRECTION], "linestyle": [schema.DIRECTION]}
    figure.open(data, 3, aes=aes)
    ignored = {"linestyle"} & figure.collection.aes_set
    banded = figure.visuals.get("band", False) is not False
    if banded:
        figure.draw("band", layout.band, data, ignore_aes=ignored, alpha=0.2)
    figure.draw("line", "line_xy", data, width=2)
    if data.sizes[schema.STAGE] <= _FEW_STAGES:
        figure.draw("point", "scatter_xy", data, ignore_aes=ignored, size=16)
    _draw_axes(figure, data, scales, banded)
    directions = [str(name) for name in data[schema.DIRECTION].values]
    title = "Mean energy along the path"
    if len(directions) > 1:
        title = f"Mean energy: a gap between the directions is hysteresis{_gap(dt, data)}"
    figure.labels("energy", title=title, **scales.labels())
    entries: dict[str, Mapping[str, Any]] = {}
    for name in directions:
        look = figure.look(["color", "linestyle"], "energy", **{schema.DIRECTION: name})
        entries[_NAMES[name]] = {**look, "width": 2}
    if banded:
        entries["± 1 standard deviation of the population"] = {"color": "B3", "width": 8}
    figure.legend(entries)
    return figure.collection


def _energies(dt: xr.DataTree) -> xr.Dataset:
    """Return where each energy was recorded, its mean, and one standard deviation around it."""
    group = group_of(dt, schema.ANNEALING)
    beta = group["beta"].to_numpy()
    places: dict[str, Floats] = {Role.FORWARD: beta[:-1], Role.REVERSE: beta[1:]}
    directions = [str(name) for name in group[schema.DIRECTION].values]
    mean, var = (
        group[name].where(np.isfinite(group[name])).to_numpy()
        for name in ("energy_mean", "energy_var")
    )
    if np.isnan(mean).all():
        raise ValueError(
            "dt must hold a finite mean energy, got none; sample with more draws or another "
            "reference."
        )
    x, half = np.stack([places[name] for name in directions]), np.sqrt(var)
    return xr.Dataset(
        {
            "energy": (
                (schema.DIRECTION, "plot_axis", schema.STAGE),
                np.stack([x, mean, mean - half, mean + half], axis=1),
            )
        },
        coords={schema.DIRECTION: directions, "plot_axis": ["x", "y", "low", "high"]},
    )


@dataclass(frozen=True)
class _Scales:
    """The scales of both axes; ``"symlog"`` is linear up to ``size`` and logarithmic beyond."""

    x: str = "linear"
    y: str = "linear"
    size: float = 0.0

    @classmethod
    def of(cls, data: xr.Dataset) -> "_Scales":
        """Return the scales that show all of the data."""
        mean = data["energy"].sel(plot_axis="y").to_numpy()
        mean = mean[np.isfinite(mean)]
        crowded = float(data["energy"].sel(plot_axis="x").median()) < _CROWDED
        low, high, size = float(mean.min()), float(mean.max()), _usual_size(mean)
        if low > 0:
            y = "log" if high > _WIDE_RANGE * low else "linear"
        else:
            y = "symlog" if max(-low, high) > _WIDE_SIZE * size else "linear"
        return cls("sqrt" if crowded else "linear", y, size)

    def labels(self) -> dict[str, str]:
        """Return the labels of the axes, which name scales that are not linear."""
        x = ", square-root scale" if self.x == "sqrt" else ""
        kinds = {
            "linear": "nats",
            "log": "nats, logarithmic scale",
            "symlog": f"nats, logarithmic beyond ± {self.size:g}",
        }
        return {"xlabel": f"inverse temperature β{x}", "ylabel": f"mean energy ({kinds[self.y]})"}


def _usual_size(mean: Floats) -> float:
    """Return the power of ten below the median size of the energies, and no less than a nat."""
    return float(10.0 ** np.floor(np.log10(max(float(np.median(np.abs(mean))), 1.0))))


def _draw_axes(figure: layout.Figure, data: xr.Dataset, scales: _Scales, banded: bool) -> None:
    """Set limits and scales of both axes."""
    if scales.x != "linear":
        figure.set("xscale", "set_xscale", "energy", scale=scales.x)
        labels = [f"{beta:g}" for beta in _BETA_TICKS]
        figure.set("xticks", "set_xticks", "energy", values=_BETA_TICKS, labels=labels)
    if scales.y == "linear":
        return
    figure.set("yscale", "set_yscale", "energy", scale=scales.y)
    if scales.y == "log" and banded:
        parts = data["energy"].sel(plot_axis=["y", "high"])
        low, high = float(parts.sel(plot_axis="y").min()), float(parts.max())
        figure.limits("energy", y=(0.5 * low, 2.0 * high))
    if scales.y == "symlog":
        figure.in_matplotlib(_set_linear_part, "energy", size=scales.size)
        for k, end in enumerate((-scales.size, scales.size)):
            look = {"name": f"linear_part_{k}", "color": "B3", "linestyle": "C2"}
            line = xr.Dataset({"energy": end})
            figure.draw("linear_part", "hline", line, ignore_aes="all", **look)


def _set_linear_part(da: xr.DataArray, target: Any, size: float) -> None:
    """Make the axis linear up to an absolute value of the energy; matplotlib's default is 2."""
    target.set_yscale("symlog", linthresh=size)


def _gap(dt: xr.DataTree, data: xr.Dataset) -> str:
    """Return in words how large the gap between the directions is, and whether it is too large."""
    if data.sizes[schema.DIRECTION] < 2:
        return ""
    beta = group_of(dt, schema.ANNEALING)["beta"].to_numpy()
    there, back = (
        data["energy"].sel({schema.DIRECTION: name, "plot_axis": "y"}).to_numpy()
        for name in (Role.FORWARD, Role.REVERSE)
    )
    terms = (there - back) * np.diff(beta)
    area = float(terms[np.isfinite(terms)].sum())
    text = f"\nits area: {area:.3g} nats".replace("-", layout.MINUS)
    if schema.WORK not in dt.children:
        return text
    group = group_of(dt, schema.WORK)
    work = [
        variable_of(group, schema.WORK, name, (f"{name}_path",), "dt")
        for name in (Role.FORWARD, Role.REVERSE)
    ]
    n, shared = min(map(len, work)), overlap(work[0], work[1])
    needed = min(_LEAST_COMMON_PATHS, 0.5 * shared.most_common)
    verdict = "not too large" if shared.n_common >= needed else "too large"
    return (
        f"{text}; {shared.n_common:.0f} of {n} paths overlap: {verdict}\n"
        f"(too large: fewer than {needed:.0f}, or normal work with {_largest_variance(n):.2g} nats)"
    )


def _largest_variance(n: int) -> float:
    """Return the variance of normal work at which few of ``n`` paths lie in both directions.

    With variance ``v`` forward work has the mean ``-log Z + v / 2``, and a path counts as common by
    the probability that Bennett's ratio gives it to be a reverse one.
    """
    from scipy.optimize import brentq
    from scipy.special import expit

    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()

    def excess(variance: float) -> float:
        common = weights @ expit(-(0.5 * variance + np.sqrt(variance) * nodes))
        return float(np.log(n * common / min(_LEAST_COMMON_PATHS, n / 4.0)))

    return float(brentq(excess, 0.0, _LARGEST_VARIANCE))
