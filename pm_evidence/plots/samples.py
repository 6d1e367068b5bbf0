"""States of binary or grey units, drawn as images side by side."""

from collections.abc import Mapping
from math import ceil, isqrt, prod, sqrt
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_count, described, plain_array
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.plots import layout

Floats = NDArray[np.float64]

_BACKEND = "matplotlib"
_NAME, _VARIABLE = "samples", "v"
_MOST_DRAWS = 100  # of a DataTree
_MOST_IMAGES = 2500
_GAP_COLOR = "#b8cde0"  # no grey, so that gaps differ from all values
_GAP_SHARE = 14  # pixels of an image for each pixel of a gap
# Inches: width or height of an image, and the smallest and largest figure.
_IMAGE_SIZE, _SMALLEST, _LARGEST = 0.7, 2.0, 10.0


@usual_floats()
def plot_samples(
    samples: ArrayLike | xr.DataTree,
    *,
    shape: tuple[int, int] | None = None,
    n_columns: int | None = None,
    backend: str | None = None,
    visuals: layout.Visuals | None = None,
    figure_kwargs: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> "layout.PlotCollection":
    """Draw states of visible units, such as digits, as a grid of images.

    Parameters
    ----------
    samples : array_like or DataTree
        States of shape (n, n_pixels) or (n, n_rows, n_columns), binary or grey. Or a result whose
        group ``posterior`` has the variable ``v`` of shape (chain, draw, n_pixels); of more than
        100 draws, 100 at equal distances are drawn.
    shape : tuple of two ints, optional
        Rows and columns of an image. May be left out if the number of pixels is a square, or if
        ``samples`` have rows and columns.
    n_columns : int, optional
        Number of images side by side. By default the grid is about as wide as it is high.
    backend : {"matplotlib"}, optional
        The other backends of arviz-plots cannot draw images.
    visuals : mapping of str to mapping or bool, optional
        Arguments of each part, or False to leave it out: ``image`` (arguments of matplotlib's
        ``imshow``; ``cmap``, for instance), ``gap`` (``color`` of the lines between images; False
        for none), ``title``.
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
        If ``visuals`` or ``figure_kwargs`` is not a mapping.
    ValueError
        If ``samples`` are not finite numbers, or not of a shape that can be drawn; if ``shape`` is
        needed or does not match; or if another backend is asked for.

    Notes
    -----
    Values from 0 (white) to 1 (black) have the same look in every plot. If there are values
    beyond, the scale reaches up to them: bytes are drawn from 0 to the largest, spins from -1 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> import pm_evidence as pe
    >>> states = np.random.default_rng(1).integers(0, 2, size=(12, 64))
    >>> pe.plot_samples(states, n_columns=6).backend
    'matplotlib'
    """
    if backend is not None and not (isinstance(backend, str) and backend == _BACKEND):
        raise ValueError(
            f"backend must be '{_BACKEND}', got {described(backend)}: the other backends of "
            "arviz-plots cannot draw images; leave it out."
        )
    parts = ("image", "gap", "title")
    figure = layout.Figure(parts, visuals, _BACKEND, figure_kwargs, pc_kwargs)
    values, title = _values(samples)
    images = values.reshape(len(values), *_shape(values, shape))
    n, height, width = images.shape
    if n_columns is None:
        n_columns = ceil(sqrt(n * height / width))  # about as wide as it is high
    columns = min(check_count("n_columns", n_columns, 1), n)
    gap = layout.visual_arguments(figure.visuals, "gap", color=_GAP_COLOR)
    mosaic = _mosaic(images, columns, with_gaps=gap is not None)
    layout.check_mapping("figure_kwargs", figure_kwargs)
    size = np.array([columns * width, ceil(n / columns) * height]) / max(height, width)
    size = np.maximum(size * min(_IMAGE_SIZE, _LARGEST / size.max()), _SMALLEST)
    figure.figure_kwargs = {"figsize": tuple(size.tolist()), **(figure_kwargs or {})}
    try:
        figure.open(xr.Dataset({_NAME: 0.0}), 1)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            "figure_kwargs must hold arguments of a matplotlib figure, and others must be "
            f"arguments of PlotCollection.wrap, got {sorted([*figure.figure_kwargs, *pc_kwargs])} "
            f"({error}); correct them."
        ) from error
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 1.0)
    look: dict[str, Any] = {"cmap": "gray_r", "vmin": low, "vmax": high, "interpolation": "nearest"}
    figure.draw("image", _draw_image, None, image=mosaic, **look)
    figure.set("frame", _draw_frame, _NAME, **(gap or {"color": "none"}))
    if title:
        figure.labels(_NAME, title=title)
    return figure.collection


def _values(samples: Any) -> tuple[NDArray[Any], str]:
    """Return the states to be drawn, of any shape from the second axis on, and a title."""
    if isinstance(samples, xr.DataTree):
        return _draws(samples)
    values = _checked("samples", samples)
    if values.ndim not in (2, 3) or values.size == 0:
        raise ValueError(
            f"samples must have shape (n, n_pixels) or (n, n_rows, n_columns), got {values.shape}; "
            "pass samples[None] for a single state."
        )
    if len(values) > _MOST_IMAGES:
        step = ceil(len(values) / _MOST_DRAWS)
        raise ValueError(
            f"samples must be at most {_MOST_IMAGES:,} states, got {len(values):,}; draw some of "
            f"them, such as samples[::{step}]."
        )
    return values, ""


def _draws(dt: xr.DataTree) -> tuple[NDArray[Any], str]:
    """Return draws of a result at equal distances, and a title if others are left out."""
    posterior = dt["posterior"].to_dataset() if "posterior" in dt.children else xr.Dataset()
    if _VARIABLE not in posterior or posterior[_VARIABLE].dims[:2] != ("chain", "draw"):
        raise ValueError(
            f"samples must have the variable {_VARIABLE!r} of shape (chain, draw, n_pixels) in the "
            f"group 'posterior', got the variables {', '.join(map(str, posterior)) or '(none)'}; "
            "pass an array, such as dt.posterior['x'].stack(s=['chain', 'draw']).T."
        )
    values = _checked(f"samples.posterior[{_VARIABLE!r}]", posterior[_VARIABLE].to_numpy())
    if values.ndim not in (3, 4) or values.size == 0:
        raise ValueError(
            f"samples.posterior[{_VARIABLE!r}] must have shape (chain, draw, n_pixels), got "
            f"{values.shape}; pass an array of shape (n, n_pixels)."
        )
    values = values.reshape(-1, *values.shape[2:])
    n = len(values)
    if n <= _MOST_DRAWS:
        return values, ""
    kept = np.linspace(0, n - 1, _MOST_DRAWS).astype(int)
    return values[kept], f"{_MOST_DRAWS} of {n:,} draws"


def _checked(name: str, values: Any) -> NDArray[Any]:
    """Return an array of finite numbers."""
    array = plain_array(name, values)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must hold real numbers or booleans, got {described(values)}; convert it with "
            ".astype(float)."
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} must hold finite numbers, got infinite or NaN entries; leave them out."
        )
    return array


def _shape(values: NDArray[Any], shape: Any) -> tuple[int, int]:
    """Return rows and columns of an image."""
    n_pixels = prod(values.shape[1:])
    if shape is None:
        if values.ndim == 3:
            return values.shape[1], values.shape[2]
        side = isqrt(n_pixels)
        if side**2 == n_pixels:
            return side, side
        rows = next(k for k in range(side, 0, -1) if n_pixels % k == 0)
        raise ValueError(
            f"shape must be given, because the number of pixels is {n_pixels} and no square; pass "
            f"shape=(rows, columns), such as {rows, n_pixels // rows}."
        )
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise ValueError(f"shape must be two numbers, got {described(shape)}; pass (28, 28).")
    rows, columns = (check_count(f"shape[{k}]", size, 1) for k, size in enumerate(shape))
    if rows * columns != n_pixels:
        raise ValueError(
            f"shape must have as many pixels as each of samples, {n_pixels}, got {rows} x "
            f"{columns} = {rows * columns}; correct it."
        )
    return rows, columns


def _mosaic(images: NDArray[Any], columns: int, *, with_gaps: bool) -> Floats:
    """Return one image of all, NaN in the gaps and where images are missing."""
    n, height, width = images.shape
    gap = max(1, max(height, width) // _GAP_SHARE) if with_gaps else 0
    rows = ceil(n / columns)
    mosaic = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap), np.nan)
    for k, image in enumerate(images):
        top, left = (k // columns) * (height + gap) + gap, (k % columns) * (width + gap) + gap
        mosaic[top : top + height, left : left + width] = image
    return mosaic


def _draw_image(da: Any, target: Any, *, image: Floats, **arguments: Any) -> Any:
    """Draw an image; NaN are transparent."""
    return target.imshow(image, **arguments)


def _draw_frame(da: Any, target: Any, *, color: Any) -> None:
    """Remove ticks and lines of the axes, and set the colour that is seen through gaps."""
    # the function remove_axis of arviz-plots would remove the colour, too
    target.set(xticks=[], yticks=[], facecolor=color)
    target.spines[:].set_visible(False)
