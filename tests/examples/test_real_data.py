"""Data sets: read what is there, and say what is missing."""

from io import BytesIO

import numpy as np
import pytest
import real_data

from pm_evidence.testing import log_marginal


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "nile.csv").write_text("time,value\n1871,1120\n1872,1160\n")
    return tmp_path


def write_pine(folder, rows, header="y,x,z"):
    lines = [header, *(",".join(map(str, row)) for row in rows)]
    (folder / "small" / "radiata_pine_friel_wyse.csv").write_text("\n".join(lines) + "\n")


def pine_rows(ninth=(3670.0, 32.3, 29.0)):
    rows = [(1000.0 + i, 20.0, 19.0) for i in range(42)]
    rows[8] = ninth
    return rows


def test_the_folder_is_the_argument_before_the_environment(folder, monkeypatch, tmp_path):
    other, missing = tmp_path / "other", tmp_path / "nowhere"
    other.mkdir()
    monkeypatch.setenv("PM_EVIDENCE_DATA", str(other))
    assert real_data.data_folder() == other
    assert real_data.data_folder(folder) == real_data.data_folder(str(folder)) == folder
    with pytest.raises(FileNotFoundError, match=r"^folder must name a folder.*nowhere"):
        real_data.data_folder(missing)
    monkeypatch.setenv("PM_EVIDENCE_DATA", str(missing))
    with pytest.raises(FileNotFoundError, match=r"^PM_EVIDENCE_DATA must name.*nowhere"):
        real_data.data_folder()
    for unset in (
        lambda: monkeypatch.delenv("PM_EVIDENCE_DATA"),
        lambda: monkeypatch.setenv("PM_EVIDENCE_DATA", ""),
    ):
        unset()
        with pytest.raises(FileNotFoundError, match=r"PM_EVIDENCE_DATA is not set.*pass folder="):
            real_data.data_folder()


def test_load_csv_reads_a_file_of_the_small_folder_or_says_what_is_there(folder, tmp_path):
    for name in ("nile", "nile.csv"):
        data = real_data.load_csv(name, folder)
        assert list(data.columns) == ["time", "value"]
        np.testing.assert_array_equal(data["value"], [1120, 1160])
    with pytest.raises(FileNotFoundError, match="must be one of nile, got 'galaxies'") as error:
        real_data.load_csv("galaxies", folder)
    assert str(folder / "small" / "galaxies.csv") in str(error.value)
    assert "PROVENANCE.txt" in str(error.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no file at all"):
        real_data.load_csv("nile", tmp_path / "empty")
    for name in ("../nile", "small/nile", "", ".csv"):  # a name cannot leave the folder
        with pytest.raises(ValueError, match="name must be the name of a file without folders"):
            real_data.load_csv(name, folder)


def test_radiata_pine_accepts_only_the_version_of_friel_and_wyse(folder):
    with pytest.raises(FileNotFoundError, match="astro-informatics/harmonic"):
        real_data.radiata_pine(folder)
    write_pine(folder, pine_rows())
    assert real_data.radiata_pine(folder).shape == (42, 3)
    write_pine(folder, pine_rows(ninth=(3160.0, 27.1, 26.3)))
    with pytest.raises(ValueError, match=r"row 9.*another version"):
        real_data.radiata_pine(folder)
    write_pine(folder, pine_rows(), header="x,y,z")
    with pytest.raises(ValueError, match="must have the columns y, x, z"):
        real_data.radiata_pine(folder)
    write_pine(folder, pine_rows()[:40])
    with pytest.raises(ValueError, match="40 rows"):
        real_data.radiata_pine(folder)


def write_pound(folder, returns, header="t,ret_demeaned,ret_raw,ret_dk_floored,"):
    (folder / "svpdx").mkdir(exist_ok=True)
    lines = [header + "ret_dk_floored_demeaned"]
    lines += [f"{t},{r},{r},{r},{r}" for t, r in enumerate(returns, 1)]
    (folder / "svpdx" / "svpdx.csv").write_text("\n".join(lines) + "\n")


def like_pound():
    """Numbers with the mean, standard deviation and first value of the returns."""
    first, n, deviation = -0.32023, 944, 0.71109
    # the rest: their mean, plus and minus what is left of the sum of squares
    mean = -first / n
    spread = np.sqrt((n * deviation**2 - first**2 - n * mean**2) / n)
    return [first, *(mean + spread * (-1) ** np.arange(n))]


def test_pound_dollar_refuses_other_columns_lengths_and_units(folder):
    with pytest.raises(FileNotFoundError, match=r"hold svpdx/svpdx.csv.*kaskr/adcomp"):
        real_data.pound_dollar(folder)
    write_pound(folder, like_pound())
    assert real_data.pound_dollar(folder).shape == (945, 5)
    write_pound(folder, like_pound(), header="t,raw,ret_raw,ret_dk_floored,")
    with pytest.raises(ValueError, match="must have the columns t, ret_demeaned"):
        real_data.pound_dollar(folder)
    write_pound(folder, like_pound()[:-1])
    with pytest.raises(ValueError, match="944 rows"):
        real_data.pound_dollar(folder)
    write_pound(folder, np.array(like_pound()) / 100)
    with pytest.raises(ValueError, match=r"0\.00711.*not in percent"):
        real_data.pound_dollar(folder)


def test_the_real_tables_are_the_published_ones(data_folder):
    data = real_data.pound_dollar(data_folder)
    returns = data["ret_demeaned"]
    assert returns.mean() == pytest.approx(0, abs=1e-12)
    assert returns.std() == pytest.approx(0.71109, abs=5e-6)
    raw = data["ret_raw"]
    assert (raw.min(), raw.max()) == pytest.approx((-3.296, 4.535), abs=5e-4)
    assert (raw == 0).sum() == 3
    changed = abs(raw - data["ret_dk_floored"]) > 1e-9  # the two differ by rounding elsewhere
    assert changed.sum() == 14
    assert (abs(raw[~changed]) >= 0.01).all()
    pine = real_data.radiata_pine(data_folder)
    assert pine.shape == (42, 3)
    assert pine.dtypes.eq("float64").all()
    assert tuple(pine.iloc[0]) == (3040.0, 29.2, 25.4)
    assert tuple(pine.iloc[41]) == (3030.0, 28.2, 28.2)


# --- NumPy archives ---

ARCHIVES = {  # by file: the function that reads it, and its first array
    "mnist/mnist_bits.npz": (real_data.mnist, "train_bits"),
    "mnist/mnist_uint8.npz": (real_data.mnist_pixels, "train_images"),
    "rbm_cd25/mnistvh_CD25.npz": (real_data.published_rbm, "vishid"),
    "dna/dna.npz": (real_data.dna, "x_train"),
    "usps_3v5/usps_3v5.npz": (real_data.usps, "x_train"),
}


def write_archive(folder, name, **arrays):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays)


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_that_are_missing_damaged_or_others_are_refused(folder, name):
    read, first = ARCHIVES[name]
    with pytest.raises(FileNotFoundError, match=rf"folder must hold {name}.*It holds ") as error:
        read(folder)
    assert str(folder / name) in str(error.value)
    (folder / name).parent.mkdir()
    array = BytesIO()
    np.save(array, np.zeros(3))
    for content in (b"", b"PK\x03\x04 cut off", b"no archive", array.getvalue()):
        (folder / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name} must be a NumPy archive.*replace the file"):
            read(folder)
    write_archive(folder, name, other=np.zeros(3))
    with pytest.raises(ValueError, match=rf"{name} must have the array .* got none"):
        read(folder)
    write_archive(folder, name, **{first: np.zeros((3, 4))})
    with pytest.raises(ValueError, match=r"got shape \(3, 4\) and dtype float64"):
        read(folder)


def test_other_images_and_digits_are_refused(folder):
    """Bits of another threshold have the right shape; a machine trained on them differs."""
    bits = {
        "train_bits": np.zeros((60_000, 98), np.uint8),
        "test_bits": np.zeros((10_000, 98), "u1"),
    }
    write_archive(folder, "mnist/mnist_bits.npz", **bits)
    with pytest.raises(ValueError, match=r"6,221,431 ones .* got 0 and 0 other than zero"):
        real_data.mnist(folder)
    write_archive(
        folder, "dna/dna.npz", x_train=np.ones((2000, 180), "u1"), x_test=np.ones((1186, 180), "u1")
    )
    with pytest.raises(ValueError, match="got 360,000 and 213,480 other than zero"):
        real_data.dna(folder)
    # labels of 0 and 1 instead of -1 and 1 are those of another file
    arrays = {"x_train": np.zeros((767, 256), "f4"), "x_test": np.zeros((773, 256), "f4")}
    labels = {"y_train": np.zeros(767, "i1"), "y_test": np.ones(773, "i1")}
    write_archive(folder, "usps_3v5/usps_3v5.npz", **arrays, **labels)
    with pytest.raises(ValueError, match=r"must hold 406 and 418 labels of 1.*got 0 and 773"):
        real_data.usps(folder)
    W, a, b = np.zeros((784, 500)), np.zeros(784), np.full(500, np.nan)
    write_archive(folder, "rbm_cd25/mnistvh_CD25.npz", vishid=W, visbiases=a, hidbiases=b)
    with pytest.raises(ValueError, match="must hold finite parameters, got others in hidbiases"):
        real_data.published_rbm(folder)


def test_threes_and_fives_are_sorted_by_class(data_folder):
    """The order in which adding points one by one leads astray."""
    train, labels, test, test_labels = real_data.usps(data_folder)
    assert train.shape == (767, 256) and test.shape == (773, 256)
    assert (np.diff(labels) != 0).sum() == (np.diff(test_labels) != 0).sum() == 1
    assert train.min() >= -1.0 and train.max() <= 1.0


def test_bits_are_the_pixels_above_127_and_dna_has_one_base_at_each_place(data_folder):
    """The images of both files are the same, and whole: 60,000 and 10,000 digits."""
    for bits, pixels in zip(
        real_data.mnist(data_folder), real_data.mnist_pixels(data_folder), strict=True
    ):
        assert bits.dtype == pixels.dtype == np.uint8
        assert bits.shape == pixels.shape
        np.testing.assert_array_equal(bits, pixels > 127)
    assert bits.shape == (10_000, 784)
    train = real_data.mnist_pixels(data_folder)[0]
    assert train.shape == (60_000, 784)
    assert train.mean() / 255 == pytest.approx(0.13066, abs=5e-6)
    for rows in real_data.dna(data_folder):  # three features for one base: at most one is 1
        assert rows.reshape(len(rows), 60, 3).sum(axis=2).max() == 1


def test_the_published_machine_knows_the_digits(data_folder):
    """Another order of the pixels gives a lower likelihood: 20 nats if images are transposed.

    Salakhutdinov and Murray (2008) report about -86.3 nats per test digit, drawn from the grey
    values, with log Z of about 451.3.
    """
    W, a, b = real_data.published_rbm(data_folder)
    pixels, rng = real_data.mnist_pixels(data_folder)[1], np.random.default_rng(1)
    digits = rng.random(pixels.shape) < pixels / 255
    assert log_marginal(digits, W, a, b).mean() - 451.3 == pytest.approx(-86.3, abs=0.5)
    turned = digits[:500].reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 784)
    assert log_marginal(turned, W, a, b).mean() - 451.3 < -100.0
