"""Real data that examples and tests read; they are not part of the package.

They lie in a folder that the environment variable ``PM_EVIDENCE_DATA`` names. Tables are
comma-separated files with a header, ``<folder>/small/<name>.csv`` and ``<folder>/svpdx/svpdx.csv``;
binary data and the parameters of a machine are NumPy archives, ``<folder>/<name>/<file>.npz``.
"""

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ENVIRONMENT_VARIABLE",
    "data_folder",
    "dna",
    "load_csv",
    "mnist",
    "mnist_pixels",
    "pound_dollar",
    "published_rbm",
    "radiata_pine",
    "usps",
]

ENVIRONMENT_VARIABLE = "PM_EVIDENCE_DATA"

_SMALL = "small"
# Where each file comes from, and what it has to look like.
_SOURCES = {
    "radiata_pine_friel_wyse": (
        "It is examples/data/radiata_pine.dat of github.com/astro-informatics/harmonic, at commit "
        "dbb9feab66a71224a67b001314b926247abb2af3, with the header y,x,z and commas."
    ),
    "svpdx": (
        "Its returns are those of tmb_examples/sdv_multi_data.R (column V1, the column "
        "ret_demeaned here) of github.com/kaskr/adcomp, at commit "
        "af56b572e124274faee0e4b5d935fc77b2e2fe7c."
    ),
    "mnist/mnist_uint8.npz": (
        "It holds train_images (60000, 28, 28) and test_images (10000, 28, 28) of MNIST, as bytes "
        "in the original order."
    ),
    "mnist/mnist_bits.npz": (
        "It holds train_bits and test_bits, numpy.packbits(pixels > 127, axis=1) of the 784 pixels "
        "of each image of MNIST, in the original order."
    ),
    "rbm_cd25/mnistvh_CD25.npz": (
        "It holds vishid, visbiases and hidbiases of mnistvh_CD25.mat, which comes with the "
        "programs of Salakhutdinov and Murray (2008); a copy is in github.com/a-taherkhani/"
        "neural_net, at commit 7b24bf86a7c298170ba0ccd17ff95f87bc334246."
    ),
    "dna/dna.npz": (
        "It holds x_train (2000, 180) and x_test (1186, 180) of dna.scale and dna.scale.t of "
        "LIBSVM; a copy is in github.com/zpli0320/dataset, at commit "
        "9d76c73bdf96dd61c1a47ebbcde19131fc1b574c."
    ),
    "usps_3v5/usps_3v5.npz": (
        "It holds x_train (767, 256) and x_test (773, 256) in single precision, y_train and y_test "
        "(3 is +1, 5 is -1) as bytes, of usps_resampled.mat of gaussianprocess.org/gpml/data in "
        "the order of its loadBinaryUSPS(3, 5)."
    ),
}
_PINE_SHAPE = (42, 3)
# Row 9 of Friel and Wyse's file; the BUGS examples have (3160, 27.1, 26.3) there.
_PINE_ROW_9 = (3670.0, 32.3, 29.0)
_POUND_COLUMNS = ["t", "ret_demeaned", "ret_raw", "ret_dk_floored", "ret_dk_floored_demeaned"]
_POUND_ROWS = 945
# Mean and standard deviation of ret_demeaned, and its first value; in percent a day.
_POUND_FACTS = (0.0, 0.71109, -0.32023)
_PIXELS = 784
# Pixels above 127 in the training and in the test images of MNIST.
_MNIST_ONES = (6_221_431, 1_052_359)
# Ones in the training and in the test rows of the DNA data.
_DNA_ONES = (91_233, 53_669)
# Threes in the training and in the test images of USPS 3 against 5.
_USPS_THREES = (406, 418)


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of real data.

    Parameters
    ----------
    folder : path, optional
        The folder; what the environment variable ``PM_EVIDENCE_DATA`` names by default.

    Raises
    ------
    FileNotFoundError
        If neither names a folder, or what is named is not one.
    """
    given = os.environ.get(ENVIRONMENT_VARIABLE, "") if folder is None else folder
    if not os.fspath(given):
        raise FileNotFoundError(
            "folder must name the folder of real data, but it is not given and the environment "
            f"variable {ENVIRONMENT_VARIABLE} is not set; set {ENVIRONMENT_VARIABLE}, or pass "
            f"folder=. It holds {_SMALL}/<name>.csv."
        )
    path = Path(given).expanduser()
    if not path.is_dir():
        origin = ENVIRONMENT_VARIABLE if folder is None else "folder"
        raise FileNotFoundError(
            f"{origin} must name a folder, got {str(given)!r}, of which there is none at "
            f"{path.absolute()}; correct {origin}, or make the folder. It holds "
            f"{_SMALL}/<name>.csv."
        )
    return path


def load_csv(name: str, folder: str | os.PathLike[str] | None = None) -> "pd.DataFrame":
    """Return one of the small data sets.

    Parameters
    ----------
    name : str
        Name of the file in the subfolder ``small``, with or without ``.csv``.
    folder : path, optional
        The folder; what the environment variable ``PM_EVIDENCE_DATA`` names by default.

    Raises
    ------
    ValueError
        If ``name`` is a path.
    FileNotFoundError
        If there is no such folder, or no such file in it.
    """
    import pandas as pd

    stem = name.removesuffix(".csv")
    if not stem or Path(stem).name != stem:
        raise ValueError(
            f"name must be the name of a file without folders, got {name!r}; pass folder= for the "
            "folder that it lies in."
        )
    path = data_folder(folder) / _SMALL / f"{stem}.csv"
    if not path.is_file():
        raise FileNotFoundError(_missing(stem, path))
    return pd.read_csv(path)


def radiata_pine(folder: str | os.PathLike[str] | None = None) -> "pd.DataFrame":
    """Return the strength and density of 42 specimens of radiata pine.

    Parameters
    ----------
    folder : path, optional
        The folder; what the environment variable ``PM_EVIDENCE_DATA`` names by default.

    Returns
    -------
    DataFrame
        ``y``, maximum compressive strength parallel to the grain; ``x``, density; ``z``, density
        adjusted for resin content; units as published.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or no such file in it.
    ValueError
        If the file holds something else.

    Notes
    -----
    Williams (1959), in the version of Friel and Wyse (2012). The version that comes with BUGS
    differs in row 9, and with it the evidence of either regression.
    """
    name = "radiata_pine_friel_wyse"
    data = load_csv(name, folder)
    if list(data.columns) != ["y", "x", "z"] or data.shape != _PINE_SHAPE:
        raise ValueError(
            f"{name}.csv must have the columns y, x, z and 42 rows, got {list(data.columns)} and "
            f"{len(data)} rows. {_SOURCES[name]}"
        )
    if tuple(data.iloc[8]) != _PINE_ROW_9:
        raise ValueError(
            f"{name}.csv must have {_PINE_ROW_9} in row 9, got {tuple(data.iloc[8])}: this is "
            f"another version of the data. {_SOURCES[name]}"
        )
    return data


def pound_dollar(folder: str | os.PathLike[str] | None = None) -> "pd.DataFrame":
    """Return daily returns of the pound sterling against the US dollar, 1981 to 1985.

    Parameters
    ----------
    folder : path, optional
        The folder; what the environment variable ``PM_EVIDENCE_DATA`` names by default.

    Returns
    -------
    DataFrame
        945 rows, 1 October 1981 to 28 June 1985, in percent: ``t``, number of the day, from 1;
        ``ret_demeaned``, log returns less their mean, which is the series that is usually
        modelled; ``ret_raw``, log returns; ``ret_dk_floored`` and ``ret_dk_floored_demeaned``,
        the same with returns below 0.01 in size set to 0.01 in size, so that their logs exist.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or no such file in it.
    ValueError
        If the file holds something else.

    Notes
    -----
    Harvey, Ruiz and Shephard (1994); Durbin and Koopman (2012). The days have no dates.
    """
    path = data_folder(folder) / "svpdx" / "svpdx.csv"
    if not path.is_file():
        raise FileNotFoundError(
            f"folder must hold svpdx/svpdx.csv, but there is no {path.absolute()}; name another "
            f"folder with {ENVIRONMENT_VARIABLE} or folder=, or put the file there. "
            f"{_SOURCES['svpdx']}"
        )
    import pandas as pd

    data = pd.read_csv(path)
    if list(data.columns) != _POUND_COLUMNS or len(data) != _POUND_ROWS:
        raise ValueError(
            f"svpdx.csv must have the columns {', '.join(_POUND_COLUMNS)} and {_POUND_ROWS} rows, "
            f"got {list(data.columns)} and {len(data)} rows. {_SOURCES['svpdx']}"
        )
    returns = data["ret_demeaned"]
    facts = returns.mean(), returns.std(), returns.iloc[0]
    if not np.allclose(facts, _POUND_FACTS, atol=1e-5):
        raise ValueError(
            "ret_demeaned in svpdx.csv must have mean, standard deviation and first value "
            f"{_POUND_FACTS}, got {tuple(round(float(fact), 5) for fact in facts)}: these are "
            f"other returns, or not in percent. {_SOURCES['svpdx']}"
        )
    return data


def mnist(folder: str | os.PathLike[str] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of MNIST as 0 and 1: pixels above 127 are 1.

    Parameters
    ----------
    folder : path, optional
        The folder; what the environment variable ``PM_EVIDENCE_DATA`` names by default.

    Returns
    -------
    train, test : ndarray of uint8, shape (60000, 784) and (10000, 784)
        Images row by row, in the original order.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or no such file in it.
    ValueError
        If the file holds something else.
    """
    name = "mnist/mnist_bits.npz"
    shapes = {"train_bits": (60_000, _PIXELS // 8), "test_bits": (10_000, _PIXELS // 8)}
    packed = _archive(name, shapes, "uint8", folder)
    train, test = (np.unpackbits(packed[key], axis=1, count=_PIXELS) for key in shapes)
    _check_ones(name, (train, test), _MNIST_ONES)
    return train, test


def mnist_pixels(folder: str | os.PathLike[str] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of MNIST as bytes.

    ``rng.random(x.shape) < x / 255`` draws binary images, as Salakhutdinov and Murray (2008) did.

    Parameters
    ----------
    folder : path, optional
        The folder; what the environment variable ``PM_EVIDENCE_DATA`` names by default.

    Returns
    -------
    train, test : ndarray of uint8, shape (60000, 784) and (10000, 784)
        Pixels from 0 to 255, row by row, in the original order.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or no such file in it.
    ValueError
        If the file holds something else.
    """
    name = "mnist/mnist_uint8.npz"
    shapes = {"train_images": (60_000, 28, 28), "test_images": (10_000, 28, 28)}
    images = _archive(name, shapes, "uint8", folder)
    train, test = (images[key].reshape(-1, _PIXELS) for key in shapes)
    _check_ones(name, (train > 127, test > 127), _MNIST_ONES)
    return train, test


def published_rbm(
    folder: str | os.PathLike[str] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the restricted Boltzmann machine CD25(500) of Salakhutdinov and Murray (2008).

    It was trained by them on MNIST, with contrastive divergence of up to 25 steps. Its log Z, by
    annealed importance sampling, is about 451.3 nats.

    Parameters
    ----------
    folder : path, optional
        The folder; what the environment variable ``PM_EVIDENCE_DATA`` names by default.

    Returns
    -------
    W : ndarray of float64, shape (784, 500)
        Weights; pixels are in the order of `mnist`.
    visible_bias : ndarray of float64, shape (784,)
        Biases of the pixels.
    hidden_bias : ndarray of float64, shape (500,)
        Biases of the hidden units.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or no such file in it.
    ValueError
        If the file holds something else.
    """
    name = "rbm_cd25/mnistvh_CD25.npz"
    shapes = {"vishid": (_PIXELS, 500), "visbiases": (_PIXELS,), "hidbiases": (500,)}
    found = _archive(name, shapes, "float64", folder)
    for key, values in found.items():
        if not np.isfinite(values).all():
            raise ValueError(
                f"{name} must hold finite parameters, got others in {key}; replace the file. "
                f"{_SOURCES[name]}"
            )
    return found["vishid"], found["visbiases"], found["hidbiases"]


def dna(folder: str | os.PathLike[str] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the DNA data: splice junctions, 60 bases with three binary features for each.

    Parameters
    ----------
    folder : path, optional
        The folder; what the environment variable ``PM_EVIDENCE_DATA`` names by default.

    Returns
    -------
    train, test : ndarray of uint8, shape (2000, 180) and (1186, 180)
        Features, 0 and 1.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or no such file in it.
    ValueError
        If the file holds something else.
    """
    name = "dna/dna.npz"
    found = _archive(name, {"x_train": (2000, 180), "x_test": (1186, 180)}, "uint8", folder)
    both = found["x_train"], found["x_test"]
    _check_ones(name, both, _DNA_ONES)
    return both


def usps(
    folder: str | os.PathLike[str] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the images of threes and fives of the USPS digits, sorted by class.

    Parameters
    ----------
    folder : path, optional
        The folder; what the environment variable ``PM_EVIDENCE_DATA`` names by default.

    Returns
    -------
    train, labels, test, test_labels : ndarray
        Pixels from -1 to 1, float64, shape (767, 256) and (773, 256), and labels, +1 for a three
        and -1 for a five.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or no such file in it.
    ValueError
        If the file holds something else.

    Notes
    -----
    The split of Kuss and Rasmussen (2005).
    """
    name = "usps_3v5/usps_3v5.npz"
    shapes = {"x_train": (767, 256), "x_test": (773, 256)}
    images = _archive(name, shapes, "float32", folder)
    labels = _archive(name, {"y_train": (767,), "y_test": (773,)}, "int8", folder)
    counts = tuple(int((labels[key] == 1).sum()) for key in ("y_train", "y_test"))
    pixels = max(float(np.abs(values).max()) for values in images.values())
    if counts != _USPS_THREES or pixels > 1.0:
        raise ValueError(
            f"{name} must hold {_USPS_THREES[0]} and {_USPS_THREES[1]} labels of 1, and pixels "
            f"from -1 to 1, got {counts[0]} and {counts[1]} labels, and pixels up to {pixels:.3g} "
            f"in size; replace the file. {_SOURCES[name]}"
        )
    train, test = (images[key].astype(float) for key in shapes)
    return train, labels["y_train"], test, labels["y_test"]


def _archive(
    name: str,
    shapes: dict[str, tuple[int, ...]],
    dtype: str,
    folder: str | os.PathLike[str] | None,
) -> dict[str, np.ndarray]:
    """Return arrays of a NumPy archive, of given names, shapes and dtype."""
    path = data_folder(folder) / name
    if not path.is_file():
        raise FileNotFoundError(
            f"folder must hold {name}, but there is no {path.absolute()}; name another folder with "
            f"{ENVIRONMENT_VARIABLE} or folder=, or put the file there. {_SOURCES[name]}"
        )
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            found = {key: archive[key] for key in archive.files if key in shapes}
    except (BadZipFile, zlib.error, ValueError, EOFError, TypeError) as error:
        raise ValueError(
            f"{name} must be a NumPy archive, but it cannot be read ({error}); replace the file. "
            f"{_SOURCES[name]}"
        ) from error
    for key, shape in shapes.items():
        array = found.get(key)
        if array is None or array.shape != shape or array.dtype != dtype:
            there = "none" if array is None else f"shape {array.shape} and dtype {array.dtype}"
            raise ValueError(
                f"{name} must have the array {key} of shape {shape} and dtype {dtype}, got "
                f"{there}; replace the file. {_SOURCES[name]}"
            )
    return found


def _check_ones(name: str, arrays: tuple[np.ndarray, ...], ones: tuple[int, ...]) -> None:
    """Raise ValueError unless each array has its number of ones, and zeros elsewhere."""
    counts = tuple(int(np.count_nonzero(array)) for array in arrays)
    if counts != ones or any(array.max() > 1 for array in arrays):
        raise ValueError(
            f"{name} must hold {ones[0]:,} ones in its training and {ones[1]:,} in its test data, "
            f"and zeros elsewhere, got {counts[0]:,} and {counts[1]:,} other than zero: these are "
            f"other data; replace the file. {_SOURCES[name]}"
        )


def _missing(stem: str, path: Path) -> str:
    there = sorted(file.stem for file in path.parent.glob("*.csv"))
    source = _SOURCES.get(stem, "PROVENANCE.txt of the folder says where its files come from.")
    return (
        f"name must be one of {', '.join(there) or '(no file at all)'}, got {stem!r}: there is no "
        f"{path.absolute()}; correct the name, name another folder with {ENVIRONMENT_VARIABLE} or "
        f"folder=, or put the file there. {source}"
    )
