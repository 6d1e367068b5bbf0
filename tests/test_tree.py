"""The package and its tests as a tree: where tests lie, and how long files and functions are."""

import ast
from functools import cache
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "pm_evidence"
FILES = sorted((ROOT / PACKAGE).rglob("*.py"))


# --- names: from what a file writes to the module that defines it ---


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {module_of(path): path for path in FILES}


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports_of(path):
    """Local name of each import of a file, and the dotted name that it stands for."""
    names = {}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {a.asname or a.name: a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


@cache
def definition(name):
    """The module of the package that defines a dotted name, or None for a name of others."""
    if name in PATHS:
        return name
    parent, _, last = name.rpartition(".")
    if not parent:
        return None
    home = definition(parent)
    if home is None or PATHS[home].name != "__init__.py":
        return home
    origin = imports_of(PATHS[home]).get(last)
    return definition(origin) if origin and origin != name else home


def dotted(node):
    """The text of ``a.b.c``, or None where it does not begin with a plain name."""
    if isinstance(node, ast.Attribute):
        parent = dotted(node.value)
        return parent and f"{parent}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


@cache
def modules_used(path):
    """The modules whose names a file imports, or reaches as in ``pe.compare``."""
    names = imports_of(path)
    found = set(names.values())
    for node in ast.walk(tree_of(path)):
        text = dotted(node) if isinstance(node, ast.Attribute) else None
        first, _, rest = (text or "").partition(".")
        if rest and first in names:
            found.add(f"{names[first]}.{rest}")
    return {definition(name) for name in found}


def check_against(found, listed, what):
    """Fail for what is found and not listed, and for entries of the list that are out of date."""
    assert not found - listed, f"{what}: {sorted(found - listed)}"
    assert not listed - found, f"no longer so, take out of the list: {sorted(listed - found)}"


# --- every module has a test of its own place ---


def files_beside(module):
    """The test files of the folder of ``tests/`` that mirrors the one of a module."""
    folder = PATHS[module].parent.relative_to(ROOT / PACKAGE)
    return sorted((ROOT / "tests" / folder).glob("test_*.py"))


def untested():
    modules = [module for module, path in PATHS.items() if path.name != "__init__.py"]
    return {
        module
        for module in modules
        if not any(module in modules_used(path) for path in files_beside(module))
    }


# Modules that need no test of their own, each with its reason.
EXCEPTIONS: dict[str, str] = {}


def test_every_module_is_imported_by_a_test_of_its_own_place():
    """A module that only tests elsewhere reach can break without a test that names it.

    Used counts as imported: ``from pm_evidence.plots import plot_work`` and ``pe.plot_work`` stand
    for the module that defines ``plot_work``.
    """
    listed = set(EXCEPTIONS)
    check_against(untested(), listed, "no test in the folder of tests/ that mirrors theirs imports")


def test_names_are_followed_to_the_module_that_defines_them(tmp_path):
    """Were a package taken for the module behind it, every module would look tested."""
    assert definition("pm_evidence.plot_work") == "pm_evidence.plots.work"
    assert definition("pm_evidence.estimators.bar") == "pm_evidence.estimators.bar"
    assert definition("pm_evidence.results") == "pm_evidence.results"
    assert definition("pm_evidence.core.records.LogEvidence") == "pm_evidence.core.records"
    assert definition("numpy.random") is None
    file = tmp_path / "test_made_up.py"
    file.write_text("import pm_evidence as pe\nimport numpy as np\npe.plot_work(np.ones(2))\n")
    assert modules_used(file) == {"pm_evidence", "pm_evidence.plots.work", None}


def test_every_test_folder_mirrors_a_folder_of_the_package():
    """A test in a folder that mirrors nothing is not found by who looks for it."""
    other = {"benchmarks", "docs", "examples", "fuzz"}
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.parent.relative_to(ROOT / "tests")
        if not folder.parts or folder.parts[0] not in other:
            assert (ROOT / PACKAGE / folder).is_dir(), path


# --- length ---

MOST_LINES, MOST_FUNCTION_LINES = 400, 50


def short(path):
    return path.relative_to(ROOT / PACKAGE).as_posix()


def code_lines(function):
    """Lines of a function without those of its docstring."""
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        lines -= function.body[0].end_lineno - function.body[0].lineno + 1
    return lines


def test_no_file_is_long():
    """A file holds one noun; one of more than 400 lines holds two."""
    long = {short(path) for path in FILES if len(path.read_text().splitlines()) > MOST_LINES}
    check_against(long, set(), f"files of more than {MOST_LINES} lines")


def test_no_function_is_long():
    """A function does one job, in 50 lines or fewer, its docstring aside."""
    long = {
        (short(path), node.name)
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and code_lines(node) > MOST_FUNCTION_LINES
    }
    check_against(long, set(), f"functions of more than {MOST_FUNCTION_LINES} lines")


# --- repeated lines ---

REPEATED = 10

# Pairs of files that still share a run of ten or more equal lines: docstrings of parameters that
# several plots have, fields of two estimated likelihoods, and the signature of ``run_block``.
REPEATING = {
    ("samplers/ais.py", "samplers/sampler.py"),
    ("samplers/resample_move.py", "samplers/smc.py"),
    ("plots/energy.py", "plots/estimates.py"),
    ("plots/energy.py", "plots/work.py"),
    ("plots/estimates.py", "plots/work.py"),
    ("targets/estimated/random_effects/api.py", "targets/estimated/state_space/api.py"),
}


def telling_lines(text):
    """Lines that say something: no blank ones, comments, imports or lone punctuation."""
    tree, skipped = ast.parse(text), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            skipped.update(range(node.lineno, node.end_lineno + 1))
    lines = ((n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if n not in skipped)
    return [line for _, line in lines if any(c.isalnum() for c in line) and line[0] != "#"]


def repeats(texts):
    """Pairs of names of texts that share ``REPEATED`` or more lines in a row."""
    places = {}
    for name, text in texts.items():
        lines = telling_lines(text)
        for start in range(len(lines) - REPEATED + 1):
            places.setdefault(tuple(lines[start : start + REPEATED]), []).append((name, start))
    pairs = set()
    for found in places.values():
        for (one, start), (other, again) in combinations(found, 2):
            if one != other or again - start >= REPEATED:
                pairs.add((one, other))
    return pairs


def test_no_ten_lines_stand_in_two_places():
    """What is written twice is corrected once."""
    found = repeats({short(path): path.read_text() for path in FILES})
    check_against(found, REPEATING, f"files that share {REPEATED} lines in a row")


def test_repeats_are_found():
    """In two files and in one, whatever the indentation, and not across fewer lines."""
    nine = [f"x{k} = {k}" for k in range(9)]
    block, more = "\n".join([*nine, "y = 1"]), "\n".join([*nine, "", "# no line", "y = 2"])
    inside = "def f():\n" + "\n".join(f"    {line}" for line in block.splitlines())
    assert repeats({"a": block, "b": more}) == set()
    assert repeats({"a": block, "b": inside}) == {("a", "b")}
    assert repeats({"a": f"{block}\nz = 3\n{block}"}) == {("a", "a")}
