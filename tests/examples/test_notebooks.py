"""The notebooks of examples/ are stored as they ran, are small, and run from top to bottom.

They hold their estimates against exact values themselves, by ``assert``.
"""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[2] / "examples"
NAMES = [
    "counts",
    "dask_cluster",
    "ising_and_rbm",
    "model_comparison",
    "posterior_to_bayes_factor",
    "stochastic_volatility",
]
SHORTER = {"stochastic_volatility": ("ERROR = 0.05", "ERROR = 0.3")}  # else it runs for an hour
END = {"stochastic_volatility": "## Make it yours"}
MOST_BYTES = {"stochastic_volatility": 500_000}


def read(name):
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def test_every_notebook_is_tested():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_as_it_ran(name):
    """The site shows these outputs; what ran in another order may not run again."""
    cells = read(name).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not any(output.output_type == "error" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    printed = "".join(output.get("text", "") for output in outputs)
    assert not any(word in printed for word in ("Traceback", "site-packages", str(Path.home())))
    assert (
        cells[0].source.startswith("# ")
        and END.get(name, "## What to remember") in cells[-1].source
    )
    assert (FOLDER / f"{name}.ipynb").stat().st_size < MOST_BYTES.get(name, 300_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_from_top_to_bottom(name, data_folder, monkeypatch):
    monkeypatch.setenv("PM_EVIDENCE_DATA", str(data_folder))
    where = {"metadata": {"path": str(FOLDER)}}
    notebook = read(name)
    if name in SHORTER:
        setting, shorter = SHORTER[name]
        assert any(setting in cell.source for cell in notebook.cells)
        for cell in notebook.cells:
            cell.source = cell.source.replace(setting, shorter)
    NotebookClient(notebook, timeout=3600, kernel_name="python3", resources=where).execute()
