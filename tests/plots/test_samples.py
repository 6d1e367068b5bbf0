"""plot_samples: each state is drawn once, whole, in its place and on one scale."""

from functools import partial

import numpy as np
import pytest
import xarray as xr

import pm_evidence as pe
from pm_evidence.plots.samples import plot_samples
from tests.api.refusals import check_refusals
from tests.plots.drawing import only_plot

RNG = np.random.default_rng(1)


def image_of(collection):
    """The one image that is drawn."""
    (image,) = only_plot(collection).get_images()
    return image


def drawn_states(collection, n_columns, shape, gap=1):
    """Cut the mosaic into its images, row by row; missing ones are NaN throughout."""
    mosaic, (rows, columns) = image_of(collection).get_array().filled(np.nan), shape
    return [
        mosaic[top : top + rows, left : left + columns]
        for top in range(gap, mosaic.shape[0], rows + gap)
        for left in range(gap, n_columns * (columns + gap), columns + gap)
    ]


def tree(values, dims=("chain", "draw", "v_dim")):
    return xr.DataTree.from_dict({"posterior": xr.Dataset({"v": (dims, values)})})


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.float32])
def test_every_state_is_drawn_in_its_place(dtype):
    """A transposed state, or one in the place of another, would look like a wrong sampler."""
    states = RNG.integers(0, 2, size=(7, 12)).astype(dtype)
    collection = plot_samples(states, shape=(3, 4), n_columns=3)
    images = drawn_states(collection, 3, (3, 4))
    assert len(images) == 9
    for state, image in zip(states, images, strict=False):
        np.testing.assert_array_equal(image, state.reshape(3, 4))
    assert np.isnan(images[7:]).all()
    mosaic = image_of(collection).get_array()
    assert mosaic.shape == (3 * 4 + 1, 3 * 5 + 1)
    assert mosaic.count() == 7 * 12
    assert collection.backend == "matplotlib"
    assert pe.plot_samples is plot_samples


def test_squares_need_no_shape():
    states = RNG.integers(0, 2, size=(4, 784))
    images = drawn_states(plot_samples(states), 2, (28, 28), gap=2)
    for state, image in zip(states, images, strict=True):
        np.testing.assert_array_equal(image, state.reshape(28, 28))


def test_states_with_rows_and_columns_keep_them():
    states = RNG.choice([-1, 1], size=(4, 2, 8))
    (first, *_) = drawn_states(plot_samples(states, n_columns=2), 2, (2, 8))
    np.testing.assert_array_equal(first, states[0])
    (first, *_) = drawn_states(plot_samples(states, n_columns=2, shape=(4, 4)), 2, (4, 4))
    np.testing.assert_array_equal(first, states[0].reshape(4, 4))


@pytest.mark.parametrize(
    ("n", "shape", "columns"), [(1, (4, 4), 1), (20, (4, 4), 5), (12, (2, 8), 2)]
)
def test_the_grid_is_about_square(n, shape, columns):
    height, width = shape
    mosaic = image_of(plot_samples(np.zeros((n, *shape)))).get_array()
    assert mosaic.shape == (-(-n // columns) * (height + 1) + 1, columns * (width + 1) + 1)


def test_no_more_columns_than_states():
    assert image_of(plot_samples(np.zeros((3, 16)), n_columns=50)).get_array().shape[1] == 16


@pytest.mark.parametrize(
    ("values", "limits"),
    [
        ([0, 1], (0, 1)),
        ([0.2, 0.3], (0, 1)),
        ([0, 0], (0, 1)),
        ([0, 200], (0, 200)),
        ([-1, 1], (-1, 1)),
    ],
    ids=str,
)
def test_the_scale_is_the_same_for_all_binary_and_grey_states(values, limits):
    """A scale that follows the values makes states of zeros and states of ones look the same."""
    image = image_of(plot_samples([values], shape=(1, 2)))
    assert image.get_clim() == limits
    assert image.get_cmap().name == "gray_r"


def test_gaps_have_a_colour_that_no_value_has():
    axes = only_plot(plot_samples(np.zeros((4, 16))))
    red, _, blue, alpha = axes.get_facecolor()
    assert alpha == 1.0 and blue - red > 0.1
    assert axes.axison and not axes.spines["left"].get_visible()
    assert not axes.get_xticks().size and not axes.get_yticks().size


def test_looks_can_be_changed():
    visuals = {"image": {"cmap": "viridis", "vmax": 2.0}, "gap": {"color": "red"}}
    collection = plot_samples(np.zeros((4, 16)), visuals=visuals)
    assert image_of(collection).get_cmap().name == "viridis"
    assert image_of(collection).get_clim() == (0.0, 2.0)
    assert only_plot(collection).get_facecolor() == (1.0, 0.0, 0.0, 1.0)
    without = plot_samples(np.zeros((4, 16)), visuals={"gap": False})
    assert image_of(without).get_array().shape == (8, 8)
    assert not only_plot(plot_samples(np.zeros((4, 16)), visuals={"image": False})).get_images()


def test_the_figure_grows_with_the_grid_up_to_a_limit():
    def size(n, **arguments):
        figure = plot_samples(np.zeros((n, 16)), **arguments).get_viz("figure")
        return tuple(figure.get_size_inches())

    assert size(1) == (2.0, 2.0)
    assert size(64) == pytest.approx((5.6, 5.6))
    assert size(2500) == pytest.approx((10.0, 10.0))
    assert size(4, figure_kwargs={"figsize": (4, 3)}) == pytest.approx((4.0, 3.0))


def test_draws_of_a_result_are_drawn():
    values = RNG.integers(0, 2, size=(2, 3, 16))
    collection = plot_samples(tree(values), n_columns=3)
    images = drawn_states(collection, 3, (4, 4))
    np.testing.assert_array_equal(images, values.reshape(6, 4, 4))
    assert only_plot(collection).get_title() == ""
    with_rows = tree(values.reshape(2, 3, 2, 8), ("chain", "draw", "row", "column"))
    np.testing.assert_array_equal(
        drawn_states(plot_samples(with_rows, n_columns=3), 3, (2, 8)), values.reshape(6, 2, 8)
    )


def test_of_many_draws_some_are_drawn_and_the_title_says_so():
    """All chains are seen, and nobody takes the picture for the whole result."""
    values = np.broadcast_to(np.arange(4000.0).reshape(4, 1000, 1), (4, 1000, 16))
    collection = plot_samples(tree(values))
    first = [image[0, 0] for image in drawn_states(collection, 10, (4, 4))]
    assert len(first) == 100 and (first[0], first[-1]) == (0.0, 3999.0)
    assert set(np.diff(first)) <= {40.0, 41.0}
    assert only_plot(collection).get_title() == "100 of 4,000 draws"
    off = plot_samples(tree(values), visuals={"title": False})
    assert only_plot(off).get_title() == ""


def test_it_is_saved(tmp_path):
    plot_samples(RNG.integers(0, 2, size=(9, 784))).savefig(tmp_path / "samples.png")
    assert (tmp_path / "samples.png").stat().st_size > 2000


def test_the_default_backend_of_arviz_does_not_matter(monkeypatch):
    from arviz_base import rcParams

    monkeypatch.setitem(rcParams, "plot.backend", "none")
    assert plot_samples(np.zeros((2, 4))).backend == "matplotlib"


def test_what_cannot_be_drawn_is_refused():
    """Other backends cannot draw images."""
    pixels = np.zeros((2, 16))
    cases = [
        (np.zeros(784), {}, r"samples must have shape \(n, n_pixels\) .* got \(784,\); pass sam"),
        (np.zeros((0, 4)), {}, r"got \(0, 4\)"),
        (np.zeros((2, 3, 4, 5)), {}, r"got \(2, 3, 4, 5\)"),
        (np.zeros((2501, 4)), {}, r"at most 2,500 states, got 2,501; .* samples\[::26\]"),
        ([[0.0, np.nan]], {}, "samples must hold finite numbers"),
        ([["a", "b"]], {}, "samples must hold real numbers or booleans"),
        ([[1, 2], [3]], {}, "samples must be an array"),
        (np.zeros((2, 180)), {}, r"is 180 and no square; pass .* such as \(12, 15\)"),
        (np.zeros((2, 180)), {"shape": (10, 10)}, r"as each of samples, 180, got 10 x 10 = 100"),
        (pixels, {"shape": 4}, r"shape must be two numbers, got 4"),
        (pixels, {"shape": (4, 4.0)}, r"shape\[1\] must be a whole number"),
        (pixels, {"n_columns": 0}, "n_columns must be a whole number of at least 1"),
        (pixels, {"visuals": {"images": False}}, r"got \['images'\]; rename"),
        (
            np.zeros((2, 16)),
            {"figure_kwargs": {"size": 3}},
            r"figure_kwargs must hold arguments of .* got \['figsize', 'size'\]",
        ),
        (pixels, {"backend": np.zeros(2)}, "backend must be 'matplotlib', got an array"),
        (xr.DataTree(), {}, r"variable 'v' .* got the variables \(none\)"),
        (tree(np.zeros((2, 2, 4)), ("draw", "chain", "x")), {}, "must have the variable 'v'"),
        (
            tree(np.zeros((2, 2)), ("chain", "draw")),
            {},
            r"samples.posterior\['v'\] must have shape",
        ),
        (tree(np.full((2, 2, 4), np.inf)), {}, r"samples.posterior\['v'\] must hold finite"),
    ]
    for backend in ("bokeh", "plotly", "none", "gnuplot"):
        message = rf"must be 'matplotlib', got '{backend}': the other"
        cases += [(pixels, {"backend": backend}, message)]
    check_refusals(
        plot_samples,
        [({"samples": given, **options}, ValueError, said) for given, options, said in cases],
    )
    options = [
        ({"figure_kwargs": 3}, TypeError, "figure_kwargs must be a mapping"),
        ({"visuals": [1]}, TypeError, "visuals must be a mapping"),
    ]
    check_refusals(partial(plot_samples, pixels), options)
