"""Functions that the plots share: the choice of the backend, the size of the figure, and labels.

arviz-plots is imported by the first plot and only here, because it imports a drawing library.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, described
from pm_evidence.core.records import Status
from pm_evidence.core.text import concise, decimals
from pm_evidence.estimators.errors import Spread, half_width

if TYPE_CHECKING:
    from arviz_plots.plot_collection import PlotCollection


Visuals = Mapping[str, Mapping[str, Any] | bool]

BACKENDS = ("matplotlib", "bokeh", "plotly", "none")
# Parts of every plot with two axes, and of every plot of labelled rows.
AXES = ("title", "xlabel", "ylabel")
ROWS = (
    *("error_bar", "point_estimate", "ref_line"),
    *("title", "xlabel", "ticklabels", "legend"),
)
# Where a legend stands below the plot.
_BELOW: dict[str, dict[str, Any]] = {
    "matplotlib": {"loc": "outside lower center", "frameon": False},
    "bokeh": {"side": "below"},
}
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Look:
    """How rows of one kind are drawn, and what their artists are called beside the part."""

    name: str
    bar: Mapping[str, Any]
    point: Mapping[str, Any]


# Looks of rows whose status is ok, and of the others, by their labels.
_SOUND, _DOUBTFUL = "ok", "cannot be trusted: see the status"
_LOOKS = {
    _SOUND: Look("", {"color": "C0", "width": 2}, {"color": "C0"}),
    _DOUBTFUL: Look(
        "_doubtful",
        {"color": "C1", "width": 2, "linestyle": "C1"},
        {"facecolor": "B0", "edgecolor": "C1", "size": 40},
    ),
}


def backend_name(backend: str | None) -> str:
    """Return the name of the backend: ArviZ's default unless one is asked for."""
    from arviz_base import rcParams

    name = check_choice(
        "backend", rcParams["plot.backend"] if backend is None else backend, BACKENDS
    )
    try:
        plot_backend(name)
    except ImportError as error:
        raise ValueError(
            f"backend must be one whose library is installed, got {name!r} ({error}); install "
            f"{name}, or pass backend='matplotlib'."
        ) from error
    return name


def plot_backend(backend: str) -> Any:
    """Return the module of arviz-plots that draws with ``backend``."""
    return import_module(f"arviz_plots.backend.{backend}")


def backend_of(target: Any) -> Any:
    """Return the module of arviz-plots that ``target`` belongs to."""
    module: Any = import_module("arviz_plots.plot_collection")
    return module.backend_from_object(target)


class Figure:
    """A figure of arviz-plots with one plot per variable or facet, and what was asked of its parts.

    Functions that draw are given, or named if they are visuals of arviz-plots.
    """

    collection: "PlotCollection"

    def __init__(
        self,
        parts: tuple[str, ...],
        visuals: Visuals | None,
        backend: str | None,
        figure_kwargs: Mapping[str, Any] | None,
        pc_kwargs: Mapping[str, Any],
    ) -> None:
        self.visuals = checked_visuals(visuals, parts)
        self.backend = backend_name(backend)
        self.figure_kwargs, self.pc_kwargs = figure_kwargs, pc_kwargs

    def open(self, data: xr.Dataset, n_rows: int, n_cols: int = 1, **defaults: Any) -> None:
        """Make the figure, with a size for some panels; the user's arguments go before defaults."""
        arguments = {**defaults, **self.pc_kwargs}
        if "aes" in defaults:
            arguments["aes"] = {**defaults["aes"], **arguments["aes"]}
        module: Any = import_module("arviz_plots")
        self.collection = module.PlotCollection.wrap(
            data,
            backend=self.backend,
            figure_kwargs=figure_arguments(self.figure_kwargs, self.backend, n_rows, n_cols),
            **arguments,
        )

    def draw(self, part: str, function: Any, data: Any, *, name: str = "", **defaults: Any) -> None:
        """Draw a part, unless it is switched off, and store it by ``name``."""
        arguments = visual_arguments(self.visuals, part, **defaults)
        if arguments is not None:
            self.collection.map(_visual(function), name or part, data=data, **arguments)

    def set(self, name: str, function: Any, panel: str, **arguments: Any) -> None:
        """Set something of a panel, such as the limits of an axis, once."""
        self.collection.map(
            _visual(function),
            name,
            data=xr.Dataset({panel: 0.0}),
            ignore_aes="all",
            store_artist=False,
            **arguments,
        )

    def labels(self, panel: str, **texts: str) -> None:
        """Write the title and the labels of the axes that are given."""
        functions = {"title": "labelled_title", "xlabel": "labelled_x", "ylabel": "labelled_y"}
        for label, text in texts.items():
            arguments = visual_arguments(self.visuals, label, text=text)
            if arguments is not None:
                self.set(label, functions[label], panel, **arguments)

    def limits(
        self,
        panel: str,
        x: tuple[float, float] | None = None,
        y: tuple[float, float] | None = None,
    ) -> None:
        """Set the limits of the axes for which they are given."""
        for axis, limits in (("x", x), ("y", y)):
            if limits is not None:
                self.set(f"{axis}lim", f"set_{axis}lim", panel, limits=limits)

    def in_matplotlib(self, function: Any, panel: str, **arguments: Any) -> None:
        """Call a function of the axes of a panel that only matplotlib has."""
        if self.backend == "matplotlib":
            self.set(function.__name__, function, panel, **arguments)

    def rows(
        self,
        data: xr.Dataset,
        kinds: NDArray[Any],
        looks: Mapping[str, Look],
        labels: Sequence[str],
        height: NDArray[np.float64],
        margins: tuple[float, float],
    ) -> None:
        """Draw points and intervals of labelled rows, with the looks of their kinds.

        ``margins`` are the room below the lowest row, whose height is 1, and above the highest.
        """
        panel = str(next(iter(data.data_vars)))
        for kind, look in looks.items():
            part = data.isel(model=np.flatnonzero(kinds == kind))
            if part.sizes["model"]:
                bar, point = part[["interval"]].rename(interval=panel), part[[panel]]
                self.draw("error_bar", "line_x", bar, name=f"error_bar{look.name}", **look.bar)
                name = f"point_estimate{look.name}"
                self.draw("point_estimate", "scatter_x", point, name=name, **look.point)
        ticks = visual_arguments(self.visuals, "ticklabels")
        if ticks is not None:
            self.set("yticks", set_yticks, panel, values=height, labels=labels, **ticks)
        self.limits(panel, y=(1.0 - margins[0], float(height.max()) + margins[1]))
        self.in_matplotlib(write_out_numbers, panel)

    def forest(
        self,
        data: xr.Dataset,
        status: Any,
        labels: Sequence[str],
        height: NDArray[np.float64],
        reference: float,
    ) -> None:
        """Make a figure of labelled rows and a dashed line; open points are explained."""
        panel = str(next(iter(data.data_vars)))
        self.open(data[[panel]], (len(height) + 5) // 3, aes={"y": ["model"]}, y=height)
        at = xr.Dataset({panel: reference})
        self.draw("ref_line", "vline", at, ignore_aes="all", color="B3", linestyle="C1")
        kinds = np.where(np.asarray(status) == Status.OK, _SOUND, _DOUBTFUL)
        self.rows(data, kinds, _LOOKS, labels, height, (0.5, 0.7))
        if (kinds == _DOUBTFUL).any():
            self.legend({kind: look.bar for kind, look in _LOOKS.items()})

    def look(self, aesthetics: list[str], panel: str, **selection: str) -> dict[str, Any]:
        """Return colour or line style of a facet."""
        found: dict[str, Any] = self.collection.get_aes_kwargs(aesthetics, panel, selection)
        return found

    def legend(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Add a legend below the plot, of lines with these looks by their labels."""
        arguments = visual_arguments(self.visuals, "legend", **_BELOW.get(self.backend, {}))
        if arguments is not None:
            plot_backend(self.backend).legend(
                self.collection,
                [dict(look) for look in entries.values()],
                list(entries),
                update_visuals=False,
                **arguments,
            )


def _visual(function: Any) -> Any:
    """Return a function that draws; a name is that of a visual of arviz-plots."""
    if isinstance(function, str):
        return getattr(import_module("arviz_plots.visuals"), function)
    return function


def checked_visuals(visuals: Visuals | None, valid: tuple[str, ...]) -> Visuals:
    """Return ``visuals``."""
    check_mapping("visuals", visuals)
    unknown = [name for name in visuals or {} if name not in valid]
    if unknown:
        raise ValueError(f"visuals must name some of {list(valid)}, got {unknown}; rename them.")
    for name, given in (visuals or {}).items():
        if not isinstance(given, Mapping | bool):
            raise TypeError(
                f"visuals[{name!r}] must be a mapping of arguments or False, got "
                f"{described(given)}; pass for example {{'color': 'C1'}}."
            )
    return visuals or {}


def check_mapping(name: str, value: Any) -> None:
    """Raise TypeError unless a value is None or a mapping with names as keys."""
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, got {described(value)}; leave it out for none.")
    for key in value or ():
        if not isinstance(key, str):
            raise TypeError(
                f"{name} must have names as keys, got {described(key)}; put it in quotes."
            )


def figure_arguments(
    given: Mapping[str, Any] | None, backend: str, rows: int, cols: int
) -> dict[str, Any]:
    """Return the arguments of the figure, with a size for ``rows`` by ``cols`` panels."""
    check_mapping("figure_kwargs", given)
    arguments = dict(given or {})
    if backend == "matplotlib":
        # leaves space for long labels and for the legend, which arviz-plots places outside
        arguments.setdefault("layout", "constrained")
    arguments["figsize"] = plot_backend(backend).scale_fig_size(
        arguments.get("figsize"),
        rows=rows,
        cols=cols,
        figsize_units=arguments.get("figsize_units"),
    )
    arguments["figsize_units"] = "dots"
    return arguments


def visual_arguments(visuals: Visuals, name: str, **defaults: Any) -> dict[str, Any] | None:
    """Return the arguments of one visual; None when it is switched off."""
    given = visuals.get(name, True)
    if given is False:
        return None
    return {**defaults, **(given if isinstance(given, Mapping) else {})}


def curve(name: str, **rows: Any) -> xr.Dataset:
    """Return what is drawn in the plot ``name``, in the form that arviz-plots takes.

    Rows are ``x`` and ``y`` of a line, ``low`` and ``high`` of a band, or the edges and heights of
    a histogram.
    """
    values = np.stack([np.asarray(row, float) for row in rows.values()])
    return xr.Dataset({name: (("plot_axis", "point"), values)}, coords={"plot_axis": list(rows)})


def number(value: float, error: float) -> str:
    """Return ``value`` with the digits that its error leaves, and a typographic minus."""
    digits = decimals(error)
    return f"{round(value, digits):.{max(digits, 0)}f}".replace("-", MINUS)


def with_error(value: float, error: float) -> str:
    """Return ``value`` with its error in parentheses, and a typographic minus."""
    return concise(value, error).replace("-", MINUS)


def half_widths(mcse: Sequence[float], dof: Sequence[float]) -> NDArray[np.float64]:
    """Return half the lengths of the 95 % intervals of estimates with these errors."""
    return np.array([half_width(Spread(*each)) for each in zip(mcse, dof, strict=True)])


def set_yticks(da: Any, target: Any, values: Any, labels: list[str], **arguments: Any) -> Any:
    """Set ticks of the y axis with labels; arviz-plots has a function for the x axis only."""
    return backend_of(target).yticks(values, labels, target, **arguments)


def whole_ticks(da: Any, target: Any, axes: str = "x") -> None:
    """Let matplotlib place ticks of some axes at whole numbers only."""
    for axis in axes:
        getattr(target, f"{axis}axis").get_major_locator().set_params(integer=True)


def write_out_numbers(da: Any, target: Any) -> None:
    """Let matplotlib write few ticks in full, and not -1204.3 as -0.3 with an offset."""
    target.ticklabel_format(axis="x", useOffset=False)
    target.locator_params(axis="x", nbins=5)


def text_above(da: Any, target: Any, y: Any, **arguments: Any) -> Any:
    """Write a text above a point of a row."""
    return _visual("annotate_xy")(da, target, y=np.asarray(y) + 0.28, **arguments)


def band(da: xr.DataArray, target: Any, **arguments: Any) -> Any:
    """Fill what lies between the rows ``low`` and ``high`` of a curve."""
    x, low, high = (da.sel(plot_axis=row).values for row in ("x", "low", "high"))
    return backend_of(target).fill_between_y(x, low, high, target, **arguments)


def intervals_of(panel: str, names: Sequence[str], value: Any, low: Any, high: Any) -> xr.Dataset:
    """Return points and intervals of rows, NaN where there is nothing to draw."""
    value = np.where(np.isfinite(value), value, np.nan)
    interval = np.stack([low, high], axis=1)
    drawn = np.isfinite(interval) & np.isfinite(value)[:, None]
    return xr.Dataset(
        {
            panel: ("model", value),
            "interval": (("model", "ci_bound"), np.where(drawn, interval, np.nan)),
        },
        coords={"model": np.array(names, dtype=np.str_), "ci_bound": ["lower", "upper"]},
    )
