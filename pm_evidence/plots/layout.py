"""Functions that the plots share: the choice of the backend, the size of the figure, and labels.

arviz-plots is imported by the first plot and only here, because it imports a drawing library.
"""

from collections.abc import Mapping, Sequence
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
# Where a legend stands below the plot.
BELOW: dict[str, dict[str, Any]] = {
    "matplotlib": {"loc": "outside lower center", "frameon": False},
    "bokeh": {"side": "below"},
}
MINUS = "\N{MINUS SIGN}"
# Labels of rows whose status is ok, and of the others, which are drawn differently.
SOUND, DOUBTFUL = "ok", "cannot be trusted: see the status"
LOOKS: dict[str, dict[str, Any]] = {
    SOUND: {
        "name": "",
        "error_bar": {"color": "C0", "width": 2},
        "point_estimate": {"color": "C0"},
    },
    DOUBTFUL: {
        "name": "_doubtful",
        "error_bar": {"color": "C1", "width": 2, "linestyle": "C1"},
        "point_estimate": {"facecolor": "B0", "edgecolor": "C1", "size": 40},
    },
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
        self, visuals: Visuals | None, parts: tuple[str, ...], backend: str | None
    ) -> None:
        self.visuals = checked_visuals(visuals, parts)
        self.backend = backend_name(backend)

    def open(
        self,
        data: xr.Dataset,
        figure_kwargs: Mapping[str, Any] | None,
        pc_kwargs: dict[str, Any],
        *,
        rows: int,
        cols: int = 1,
        aes: Mapping[str, list[str]] | None = None,
    ) -> None:
        """Make the figure, with a size for ``rows`` by ``cols`` panels."""
        if aes is not None:
            pc_kwargs["aes"] = {**aes, **pc_kwargs.get("aes", {})}
        module: Any = import_module("arviz_plots")
        arguments = figure_arguments(figure_kwargs, self.backend, rows, cols)
        self.collection = module.PlotCollection.wrap(
            data, backend=self.backend, figure_kwargs=arguments, **pc_kwargs
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

    def rows(self, panel: str, labels: Sequence[str], height: Any, y: tuple[float, float]) -> None:
        """Set limits and labels of rows, and write the ticks of the other axis in full."""
        ticks = visual_arguments(self.visuals, "ticklabels")
        if ticks is not None:
            self.set("yticks", set_yticks, panel, values=height, labels=labels, **ticks)
        self.limits(panel, y=y)
        self.in_matplotlib(write_out_numbers, panel)

    def intervals(
        self, data: xr.Dataset, kinds: NDArray[Any], looks: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Draw points of rows with their intervals, with the looks of their kinds."""
        panel = str(next(iter(data.data_vars)))
        (dim,) = data[panel].dims
        for kind, look in looks.items():
            part = data.isel({dim: np.flatnonzero(kinds == kind)})
            if part.sizes[dim]:
                bar = part[["interval"]].rename(interval=panel)
                for visual, function, each in (
                    ("error_bar", "line_x", bar),
                    ("point_estimate", "scatter_x", part[[panel]]),
                ):
                    self.draw(visual, function, each, name=visual + look["name"], **look[visual])

    def forest(
        self,
        data: xr.Dataset,
        status: Any,
        height: NDArray[Any],
        labels: Sequence[str],
        reference: xr.Dataset,
        figure_kwargs: Mapping[str, Any] | None,
        pc_kwargs: dict[str, Any],
    ) -> None:
        """Make the figure, with points and intervals of labelled rows; open ones are explained."""
        panel = str(next(iter(data.data_vars)))
        pc_kwargs.setdefault("y", height)
        rows = (len(height) + 5) // 3
        self.open(data[[panel]], figure_kwargs, pc_kwargs, rows=rows, aes={"y": ["model"]})
        kinds = np.where(np.asarray(status) == Status.OK, SOUND, DOUBTFUL)
        self.reference(reference)
        self.intervals(data, kinds, LOOKS)
        self.rows(panel, labels, height, (0.5, float(height.max()) + 0.7))
        if (kinds == DOUBTFUL).any():
            self.legend([(kind, looks["error_bar"]) for kind, looks in LOOKS.items()])

    def reference(self, data: xr.Dataset) -> None:
        """Draw a dashed line at what rows are compared with."""
        dashed = plot_backend(self.backend).get_default_aes("linestyle", 2, {})[1]
        line = visual_arguments(self.visuals, "ref_line", color="B3", linestyle="--")
        if line is not None:
            line["linestyle"] = dashed if line["linestyle"] == "--" else line["linestyle"]
            self.collection.map(_visual("vline"), "ref_line", data=data, ignore_aes="all", **line)

    def look(self, aesthetics: list[str], panel: str, **selection: str) -> dict[str, Any]:
        """Return colour or line style of a facet."""
        found: dict[str, Any] = self.collection.get_aes_kwargs(aesthetics, panel, selection)
        return found

    def legend(self, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Add a legend below the plot, of lines with these labels and looks."""
        arguments = visual_arguments(self.visuals, "legend", **BELOW.get(self.backend, {}))
        if arguments is not None:
            plot_backend(self.backend).legend(
                self.collection,
                [dict(look) for _, look in entries],
                [label for label, _ in entries],
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


def curve(name: str, x: Any, y: Any) -> xr.Dataset:
    """Return a line of the plot ``name``, in the form that the visuals of arviz-plots take."""
    values = np.stack([np.asarray(x, float), np.asarray(y, float)])
    return xr.Dataset({name: (("plot_axis", "point"), values)}, coords={"plot_axis": ["x", "y"]})


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


def intervals_of(
    panel: str, names: Sequence[str], value: Any, half: NDArray[np.float64]
) -> xr.Dataset:
    """Return points and intervals of rows, NaN where there is nothing to draw."""
    value = np.where(np.isfinite(value), value, np.nan)
    half = np.where(np.isfinite(half), half, np.nan)
    interval = np.stack([value - half, value + half], axis=1)
    return xr.Dataset(
        {panel: ("model", value), "interval": (("model", "ci_bound"), interval)},
        coords={"model": np.array(names, dtype=np.str_), "ci_bound": ["lower", "upper"]},
    )
