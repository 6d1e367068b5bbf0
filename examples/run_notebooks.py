"""Run notebooks from top to bottom and store them with their outputs.

    python examples/run_notebooks.py examples/counts.ipynb

Without a name, all notebooks of the folder are run. Most of them read real data from the folder
that the environment variable PM_EVIDENCE_DATA names.
"""

import argparse
import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def run(path):
    """Run a notebook in the folder of the examples, and write it again."""
    os.environ.pop("MPLBACKEND", None)  # another backend than that of notebooks stores no pictures
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(notebook, timeout=3600, kernel_name="python3", resources=where).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the time of day
    nbformat.write(notebook, path)


def main():
    """Run the notebooks that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    for path in parser.parse_args().notebooks or sorted(FOLDER.glob("*.ipynb")):
        run(path)
        print(path)


if __name__ == "__main__":
    main()
