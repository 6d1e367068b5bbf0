"""What is stored of the papers' figures: its record, its hashes, and a short run of each script."""

import json

import numpy as np
import pandas as pd
import pytest

from examples.papers import stored
from examples.papers.fraccaro2016 import figure2
from examples.papers.habeck2017 import gaussian, lattices
from examples.real_data import usps
from pm_evidence.kernels import SpinMetropolis
from pm_evidence.lattices import Ising

PAPERS = ("habeck2017", "carlson2016", "fraccaro2016", "kiwaki2015", "tran")


def table_of(name):
    return pd.read_csv(stored.FIGURES / name)


# --- the record ---


def test_every_stored_file_is_recorded_as_it_is():
    """A file that was exchanged would keep the hash of the code that made another one."""
    found = {}
    for figure in stored.record().values():
        found |= figure["files"]
    names = {f.name for f in stored.FIGURES.iterdir() if f.name.startswith(PAPERS)}
    assert set(found) == names
    for name, digest in found.items():
        assert stored._digest((stored.FIGURES / name).read_bytes()) == digest, name


def test_the_page_tells_which_scripts_have_changed():
    """After a change: make the figure anew, or ``python -m examples.papers.stored page``."""
    assert stored.table() in stored.PAGE.read_text(encoding="utf-8")


def test_data_are_those_that_the_figures_were_made_from(data_folder, monkeypatch):
    monkeypatch.setenv("PM_EVIDENCE_DATA", str(data_folder))
    for figure in stored.MADE:
        made = stored.record().get(figure.name, {})
        assert made.get("data", stored.data_hash(figure.data)) == stored.data_hash(figure.data)


def test_commands_name_scripts_and_files_that_there_are():
    for figure in stored.MADE:
        assert all(script.is_file() for script in figure.scripts), figure.name
    assert len({f.name for f in stored.MADE}) == len(stored.MADE)
    assert set(stored.record()) <= {f.name for f in stored.MADE}


def test_the_hash_is_that_of_code_and_of_what_it_imports():
    """Comments, docstrings and line breaks do not count; numbers do, also in imported modules."""
    script = stored.ROOT / "examples" / "papers" / "fraccaro2016" / "figure4.py"
    read, edits = [], {}

    def source(path):
        read.append(path.name)
        text = path.read_text(encoding="utf-8")
        for before, after in edits.get(path.name, ()):
            assert before in text
            text = text.replace(before, after)
        return text

    plain = stored.code_hash([script], source)
    assert set(read) == {"figure4.py", "runs.py", "train.py"}
    edits["runs.py"] = [
        ('"""Estimates that are kept', '"""Numbers that are kept'),
        ("\n\n\n", "\n\n"),
    ]
    edits["runs.py"] += [("  # from a seed", "  # given a seed")]
    assert stored.code_hash([script], source) == plain
    edits["runs.py"] = [("RESAMPLES, SEED = 95.0, 4000", "RESAMPLES, SEED = 95.0, 4001")]
    assert stored.code_hash([script], source) != plain


def test_a_figure_is_made_and_recorded(tmp_path, monkeypatch):
    """With a script that takes no time; a second call makes nothing, a changed script all again."""
    script = tmp_path / "examples" / "papers" / "script.py"
    script.parent.mkdir(parents=True)
    script.write_text("import sys; open(f'{sys.argv[1]}/a.csv', 'a').write('x')\n")
    figures, page = tmp_path / "figures", tmp_path / "page.md"
    figures.mkdir()
    page.write_text(f"Before.\n\n{stored.HEADER}\n|---|---|---|---|\n\nAfter.\n")
    made = (stored.Figure("carlson_a", "A", "script.py FOLDER", {"a.csv": "b.csv"}, (), 1),)
    values = {"ROOT": tmp_path, "FIGURES": figures, "PAGE": page, "MADE": made}
    for name, value in (values | {"RECORD": figures / "papers.json"}).items():
        monkeypatch.setattr(stored, name, value)
    for wanted in ("x", "x"):
        stored.main(["make", str(tmp_path / "runs")])
        assert (figures / "b.csv").read_text() == wanted
    assert page.read_text().count("as it is") == 1 and page.read_text().endswith("\n\nAfter.\n")
    record = json.loads((figures / "papers.json").read_text())["carlson_a"]
    assert set(record) == {"command", "version", "code", "data", "files"}
    script.write_text(script.read_text().replace("'x'", "'y'"))
    stored.write_page()
    assert page.read_text().count("an earlier version") == 1
    stored.main(["make", str(tmp_path / "runs")])
    assert (figures / "b.csv").read_text() == "xy"


# --- short runs: the same layout, and numbers within the stored ones ---


def test_the_toy():
    """Biases of 100 repetitions lie within 4 standard errors of those of 1000."""
    runs, _ = gaussian.repeat(gaussian.SETTINGS["geometric"], 10, 100, seed=1)
    made = gaussian.summary(runs).reset_index()
    found = table_of("habeck2017_figure2.csv")
    assert list(made) == list(found)
    found = found[found.K == 10]
    assert made.estimator.tolist() == found.estimator.tolist()
    error = np.abs(made.bias.to_numpy() - found.bias.to_numpy())
    assert (error < 4.0 * found.sd / np.sqrt(100)).all()


def test_the_ising_lattice():
    """A repetition lies within 5 standard deviations of the ten that are stored."""
    blocks = lattices.simulate(Ising(32), SpinMetropolis(1, "random"), 1000, 1000, 1024, 99)
    rows = pd.DataFrame(lattices.rows([b.work for b in blocks], N=1024, repetition=99))
    made, found = lattices.summary(rows, "N").reset_index(), table_of("habeck2017_figure3.csv")
    assert list(made) == list(found)
    found = found[found.N == 1024]
    assert made.estimator.tolist() == found.estimator.tolist()
    assert (np.abs(made["mean"].to_numpy() - found["mean"]) < 5.0 * found.sd).all()


@pytest.mark.parametrize("label", ["RM", "ARM", "ARM, anticipate"])
def test_the_first_hundred_digits(label, data_folder):
    """16 estimates: their mean lies within 4 of its errors, and their sd within a factor of two."""
    inputs, labels = usps(data_folder)[:2]
    chosen = np.random.default_rng(0).permutation(len(labels))[:100]
    method = next(m for m in figure2.FEW if m.label == label)
    made = figure2.batch_of(method, (inputs[chosen], labels[chosen]), 100, 1000)
    found = table_of("fraccaro2016_figure2_100_points_runs.csv")
    assert ["setting", "size", "seed", *made] == list(found)
    log_z = found.log_z[found.setting == label]
    assert abs(made["log_z"].mean() - log_z.mean()) < 4.0 * log_z.std() / np.sqrt(16)
    assert 0.5 < made["log_z"].std() / log_z.std() < 2.0
