"""Mean energy along the path in both directions; the gap between them is hysteresis."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import Role
from pm_evidence.estimators.bar import overlap
from pm_evidence.plots import layout
from pm_evidence.results import schema
from pm_evidence.results.stored import group_of, variable_of

Floats = NDArray[np.float64]

_VISUALS = ("line", "point", "band", "linear_part", "title", "xlabel", "ylabel", "legend")
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
    figure = layout.Figure(visuals, _VISUALS, backend)
    data = _drawn(dt)
    scales = _Scales.of(data) if figure.backend in _SCALING_BACKENDS else _Scales()
    aes = {"color": [schema.DIRECTION], "linestyle": [schema.DIRECTION]}
    figure.open(data, figure_kwargs, pc_kwargs, rows=3, aes=aes)
    ignored = {"linestyle"} & figure.collection.aes_set
    banded = figure.visuals.get("band", False) is not False
    if banded:
        figure.draw("band", _band, data, ignore_aes=ignored, alpha=0.2)
    figure.draw("line", "line_xy", data, width=2)
    if data.sizes[schema.STAGE] <= _FEW_STAGES:
        figure.draw("point", "scatter_xy", data, ignore_aes=ignored, size=16)
    _draw_axes(figure, data, scales, banded)
    directions = [str(name) for name in data[schema.DIRECTION].values]
    title = "Mean energy along the path"
    if len(directions) > 1:
        title = f"Mean energy: a gap between the directions is hysteresis{_gap(dt, data)}"
    figure.labels("energy", title=title, **scales.labels())
    entries: list[tuple[str, dict[str, Any]]] = []
    for name in directions:
        look = figure.look(["color", "linestyle"], "energy", **{schema.DIRECTION: name})
        entries.append((_NAMES[name], {**look, "width": 2}))
    if banded:
        entries.append(("± 1 standard deviation of the population", {"color": "B3", "width": 8}))
    figure.legend(entries)
    return figure.collection


def _drawn(dt: xr.DataTree) -> xr.Dataset:
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


def _band(da: xr.DataArray, target: Any, **arguments: Any) -> Any:
    x, low, high = (da.sel(plot_axis=name).values for name in ("x", "low", "high"))
    return layout.backend_of(target).fill_between_y(x, low, high, target, **arguments)


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
        ends = xr.Dataset({"energy": ("end", [-scales.size, scales.size])})
        figure.draw("linear_part", _hlines, ends, ignore_aes="all", color="B3", linestyle="C2")


def _set_linear_part(da: xr.DataArray, target: Any, size: float) -> None:
    """Make the axis linear up to an absolute value of the energy; matplotlib's default is 2."""
    target.set_yscale("symlog", linthresh=size)


def _hlines(da: xr.DataArray, target: Any, **arguments: Any) -> None:
    for height in da.values:
        layout.backend_of(target).hline(float(height), target, **arguments)


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
