"""Which command makes which figure and table of the papers, and what made those in docs/figures.

    python -m examples.papers.stored make FOLDER [--only NAME ...] [--minutes 60]
    python -m examples.papers.stored page

``make`` runs the commands that take at most so long on an idle core, and stores what they write in
docs/figures. A script that was interrupted goes on from the runs that it has kept in FOLDER, and
what is stored already, by the same code from the same data, is not made again. ``page`` writes the
table of docs/papers.md.

docs/figures/papers.json records of each figure its command, and hashes of the code of its script
(without comments and docstrings, with the modules of examples/ that it imports), of its data, and
of the stored files.
"""

import argparse
import ast
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pm_evidence as pe

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
RECORD = FIGURES / "papers.json"
PAGE = ROOT / "docs" / "papers.md"
HEADER = "| figure | NAME | minutes | script |"
MNIST, MACHINE = "mnist/mnist_bits.npz", "rbm_cd25/mnistvh_CD25.npz"


@dataclass(frozen=True)
class Figure:
    """What a command makes.

    Parameters
    ----------
    name : str
        Unique; the first word names the page.
    title : str
        What it is called in the paper.
    command : str
        Script in examples/papers and its arguments; several ones are joined by ``&&``. FOLDER
        stands for the folder that they write to.
    files : dict of str to str
        Names in docs/figures of the files that it writes.
    data : tuple of str
        Files of real data that it reads.
    minutes : int
        Processor time on an idle core.
    """

    name: str
    title: str
    command: str
    files: dict[str, str]
    data: tuple[str, ...]
    minutes: int

    @property
    def scripts(self) -> list[Path]:
        """The scripts of the command."""
        words = [part.split()[0] for part in self.command.split(" && ")]
        return [ROOT / "examples" / "papers" / word for word in words]


def _named(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _of_carlson(number: int, script: str, data: Sequence[str], minutes: int) -> Figure:
    name = f"carlson2016_figure{number}"
    page = f"carlson2016/page.py --tables FOLDER --out FOLDER --only {number}"
    command = f"carlson2016/{script}.py FOLDER && {page}"
    files = _named(f"{name}.csv", f"{name}.png")
    return Figure(name, f"Figure {number}", command, files, tuple(data), minutes)


FRACCARO = "fraccaro2016_figure2", "fraccaro2016_figure4"
FIGURE2 = [f"{FRACCARO[0]}{end}.csv" for end in ("", "_compared", "_runs")]
POINTS = [f"{FRACCARO[0]}_100_points{end}.csv" for end in ("", "_compared", "_runs")]
FIGURE4 = [f"{FRACCARO[1]}{end}.csv" for end in ("", "_compared", "_runs")]
KIWAKI = [f"kiwaki2015_{kind}.csv" for kind in ("schedules", "path_ess", "beta")]
KIWAKI += ["kiwaki2015_sample_sizes.png", "kiwaki2015_log_z.png"]
TRAINED = "kiwaki2015/train.py FOLDER --missing"
MADE = (
    Figure(
        "habeck2017_toy",
        "Figures 1 and 2",
        "habeck2017/gaussian.py --out FOLDER",
        {
            "figure1.png": "habeck2017_figure1.png",
            "figure2.png": "habeck2017_figure2.png",
            "figure2.csv": "habeck2017_figure2.csv",
        },
        (),
        1,
    ),
    Figure(
        "habeck2017_ising",
        "Figure 3",
        "habeck2017/lattices.py ising --out FOLDER",
        {"figure3.png": "habeck2017_figure3.png", "figure3.csv": "habeck2017_figure3.csv"},
        (),
        2,
    ),
    Figure(
        "habeck2017_potts",
        "Figures 4A and 4B",
        "habeck2017/lattices.py potts --paper --out FOLDER",
        {"figure4.png": "habeck2017_figure4.png", "figure4.csv": "habeck2017_figure4.csv"},
        (),
        180,
    ),
    Figure(
        "habeck2017_machines",
        "Figure 4C",
        "habeck2017/machines.py FOLDER",
        _named("habeck2017_figure4c.csv", "habeck2017_figure4c.png"),
        (MNIST, MACHINE),
        6,
    ),
    Figure(
        "habeck2017_mixture",
        "section 6.4",
        "habeck2017/mixture.py FOLDER",
        _named(*(f"habeck2017_mixture{x}" for x in (".csv", "_evidence.png", "_probability.png"))),
        ("small/galaxies.csv",),
        3,
    ),
    _of_carlson(1, "figure1", [MNIST], 4),
    _of_carlson(2, "figure2", [], 10),
    _of_carlson(3, "figure3", [MNIST, MACHINE], 60),
    _of_carlson(4, "figure4", [MNIST, MACHINE], 20),
    _of_carlson(5, "tracking", ["dna/dna.npz"], 40),
    Figure(
        "fraccaro2016_points",
        "at equal cost",
        "fraccaro2016/figure2.py FOLDER --points 100",
        _named(*POINTS),
        ("usps_3v5/usps_3v5.npz",),
        10,
    ),
    Figure(
        "fraccaro2016_figure2",
        "Figure 2",
        "fraccaro2016/figure2.py FOLDER",
        _named(*FIGURE2, f"{FRACCARO[0]}.png"),
        ("usps_3v5/usps_3v5.npz",),
        20,
    ),
    Figure(
        "fraccaro2016_grid",
        "the grid of section 4.2",
        "fraccaro2016/grid.py FOLDER",
        _named("fraccaro2016_grid.csv", "fraccaro2016_grid_runs.csv", "fraccaro2016_grid.png"),
        ("usps_3v5/usps_3v5.npz",),
        15,
    ),
    Figure(
        "fraccaro2016_figure4",
        "Figure 4",
        "fraccaro2016/figure4.py FOLDER --particles 100",
        _named(*FIGURE4, f"{FRACCARO[1]}.png"),
        (MNIST, MACHINE),
        180,
    ),
    Figure(
        "fraccaro2016_figure5",
        "Figure 5",
        "fraccaro2016/figure5.py FOLDER",
        _named("fraccaro2016_figure5.png"),
        (MNIST,),
        5,
    ),
    Figure(
        "kiwaki2015_schedules",
        "Tables 1 and 2, Figures 1 to 6",
        f"{TRAINED} && kiwaki2015/schedules.py FOLDER --out FOLDER"
        " && kiwaki2015/page.py --tables FOLDER --out FOLDER",
        _named(*KIWAKI),
        (MNIST,),
        45,
    ),
    Figure(
        "tran_efficiency",
        "section 3.3",
        "tran_aisel/efficiency.py --out FOLDER",
        _named("tran_efficiency.csv", "tran_efficiency.png"),
        ("small/nile.csv",),
        10,
    ),
)


# --- hashes ---


def code_hash(scripts: Sequence[Path], read: Callable[[Path], str] = Path.read_text) -> str:
    """Return the hash of the tokens of scripts and of what they import from examples/."""
    seen: dict[str, str] = {}
    waiting = list(scripts)
    while waiting:
        path = waiting.pop()
        name = path.relative_to(ROOT).as_posix()
        if name not in seen:
            source = read(path)
            seen[name] = " ".join(_tokens(source))
            waiting += _imported(source, path)
    return _digest(json.dumps(seen, sort_keys=True).encode())


def data_hash(names: Sequence[str]) -> str:
    """Return the hash of files of real data."""
    folder = Path(os.environ["PM_EVIDENCE_DATA"]) if names else Path()
    return _digest(b"".join((folder / name).read_bytes() for name in names))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _tokens(source: str) -> list[str]:
    """Return the tokens of a module without comments, line breaks and docstrings."""
    blank = tokenize.COMMENT, tokenize.NL
    ends = tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING
    found, before = [], tokenize.ENCODING
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in blank:
            continue
        if token.type != tokenize.STRING or before not in ends:
            found.append(token.string.strip())
        before = token.type
    return found


def _imported(source: str, path: Path) -> list[Path]:
    """Return the modules of examples/ that a module imports, apart from the one that reads data."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    files = []
    for name in names:
        parts = name.split(".")
        if parts[-1] != "real_data":
            starts = (ROOT,) if parts[0] == "examples" else (path.parent,)
            files += [
                f
                for start in starts
                if (f := start.joinpath(*parts[:-1], f"{parts[-1]}.py")).is_file()
            ]
    return files


# --- the record ---


def record() -> dict[str, Any]:
    """Return what is recorded of the stored figures, by name."""
    return dict(json.loads(RECORD.read_text(encoding="utf-8"))) if RECORD.is_file() else {}


def noted(figure: Figure, command: str, code: str, version: str) -> dict[str, Any]:
    """Return the record of a figure whose files are in docs/figures."""
    return {
        "command": command,
        "version": version,
        "code": code,
        "data": data_hash(figure.data),
        "files": {name: _digest((FIGURES / name).read_bytes()) for name in figure.files.values()},
    }


def changed(figure: Figure, found: dict[str, Any]) -> str:
    """Return what a stored figure was made by: nothing, an earlier version, or the script."""
    if figure.name not in found:
        return "not stored"
    same = found[figure.name]["code"] == code_hash(figure.scripts)
    return "as it is" if same else "an earlier version"


def table() -> str:
    """Return the table of docs/papers.md."""
    found = record()
    lines = [HEADER, "|---|---|---|---|"]
    for figure in MADE:
        page = f"{figure.name.split('_')[0]}".replace("tran", "tran_aisel")
        title = f"[{page}]({page}.md), {figure.title}"
        state = changed(figure, found)
        lines.append(f"| {title} | `{figure.name}` | {figure.minutes} | {state} |")
    return "\n".join(lines)


def write_page() -> None:
    """Write the table into docs/papers.md."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(HEADER)
    after = rest.partition("\n\n")[2]
    PAGE.write_text(f"{before}{table()}\n\n{after}", encoding="utf-8")


def make(figure: Figure, folder: Path) -> None:
    """Run the command of a figure, and store what it has made."""
    own = folder / figure.name
    own.mkdir(parents=True, exist_ok=True)
    code = code_hash(figure.scripts)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    for part in figure.command.split(" && "):
        script, *arguments = part.replace("FOLDER", str(own)).split()
        path = ROOT / "examples" / "papers" / script
        subprocess.run([sys.executable, str(path), *arguments], check=True, env=environment)
    for made, name in figure.files.items():
        shutil.copyfile(own / made, FIGURES / name)
    found = record() | {figure.name: noted(figure, figure.command, code, pe.__version__)}
    text = json.dumps({f.name: found[f.name] for f in MADE if f.name in found}, indent=1)
    RECORD.write_text(text + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Make figures, or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("make", "page"))
    parser.add_argument("folder", type=Path, nargs="?", help="where runs are kept")
    parser.add_argument("--only", nargs="+", choices=[f.name for f in MADE])
    parser.add_argument("--minutes", type=int, default=60, help="leave out what takes longer")
    given = parser.parse_args(arguments)
    if given.what == "make":
        if given.folder is None:
            parser.error("make needs a folder")
        for figure in MADE:
            left_out = (
                figure.minutes > given.minutes
                if given.only is None
                else (figure.name not in given.only)
            )
            if left_out or changed(figure, record()) == "as it is":
                continue
            if figure.data and not os.environ.get("PM_EVIDENCE_DATA"):
                print(f"{figure.name} is left out: set PM_EVIDENCE_DATA to the folder of real data")
                continue
            print(f"{figure.name}: {figure.command}", flush=True)
            make(figure, given.folder)
    write_page()


if __name__ == "__main__":
    main()
