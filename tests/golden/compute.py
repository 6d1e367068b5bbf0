"""Compute the golden numbers, and say which of them have moved.

``make golden`` compares the numbers of this tree with those that are stored, and ``make golden
WRITE=1`` stores them. ``make golden BASE=commit`` computes those of a commit on this machine and
compares.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.processor import least, made_with

ROOT = Path(__file__).resolve().parents[2]
STORED = Path(__file__).with_name("numbers.json")
N_PROCESSES = 2

Numbers = dict[str, dict[str, Any]]


def computed(root: Path = ROOT) -> Numbers:
    """Run all golden runs of a tree, in processes of their own, and return their numbers."""
    code = "from tests.golden.runs import RUNS; print('\\n'.join(RUNS))"
    names = _python(root, "-c", code).communicate()[0].split("\n")[:-1]
    parts = [names[i::N_PROCESSES] for i in range(N_PROCESSES)]
    running = [_python(root, "-m", "tests.golden.runs", *part) for part in parts]
    found: Numbers = {}
    for process in running:
        for line in process.communicate()[0].splitlines():
            if line.startswith("{"):
                found |= json.loads(line)
    missing = [name for name in names if name not in found]
    if not names or missing or any(process.returncode for process in running):
        raise RuntimeError(f"golden runs must end, these of {root} did not: {missing or 'all'}")
    return {name: found[name] for name in names}


def _python(root: Path, *arguments: str) -> subprocess.Popen[str]:
    one_core = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    env = os.environ | least() | one_core | {"PYTHONPATH": str(root)}
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, cwd=root, env=env, stdout=subprocess.PIPE, text=True)


def moved(before: Numbers, after: Numbers) -> list[str]:
    """Return a line for each run whose numbers are not the same, with what has moved."""
    lines = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            lines.append(f"{name}: {'new' if old is None else 'gone'}")
            continue
        changes = [
            f"{key} {_text(old.get(key))} -> {_text(new.get(key))}"
            for key in [*old, *(key for key in new if key not in old)]
            if not _same(old.get(key), new.get(key))
        ]
        if changes:
            lines.append(f"{name}: {'; '.join(changes)}")
    return lines


def contradicted(before: Numbers, after: Numbers) -> list[str]:
    """Return a line for each estimate that is not within six standard errors of the one before.

    Independent estimates differ by as much once in 500 million comparisons.
    """
    lines = []
    for name in before.keys() & after.keys():
        for key, old in before[name].items():
            new = after[name].get(key)
            if not (_is_estimate(old) and _is_estimate(new)):
                continue
            error = (old[1] ** 2 + new[1] ** 2) ** 0.5
            if old[2] == new[2] == "ok" and not abs(old[0] - new[0]) <= 6.0 * error + 1e-9:
                lines.append(f"{name}: {key} {_text(old)} -> {_text(new)}")
    return lines


def _is_estimate(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and isinstance(value[2], str)


def _same(old: Any, new: Any) -> bool:
    return json.dumps(old) == json.dumps(new)  # a NaN is the same as another


def _text(value: Any) -> str:
    return "none" if value is None else json.dumps(value)


def read() -> tuple[dict[str, str], Numbers]:
    """Return what the stored numbers were made with, and the numbers."""
    stored = json.loads(STORED.read_text())
    return stored["made_with"], stored["runs"]


def write(numbers: Numbers) -> None:
    """Store numbers, one to a line."""
    runs = ",\n".join(
        f" {json.dumps(name)}: {{\n"
        + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
        + "\n }"
        for name, found in numbers.items()
    )
    facts = json.dumps(made_with(), indent=1).replace("\n", "\n ")
    STORED.write_text(f'{{\n"made_with": {facts},\n"runs": {{\n{runs}\n}}\n}}\n')


def of_commit(commit: str) -> Numbers:
    """Return the numbers of the golden runs of a commit, computed on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            return computed(tree)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main() -> int:
    """Compare, or store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the numbers of this tree")
    parser.add_argument("--base", help="a commit to compare with, instead of the stored numbers")
    options = parser.parse_args()
    numbers = computed()
    if options.write:
        write(numbers)
        print(f"The numbers of {len(numbers)} runs are stored in {STORED.relative_to(ROOT)}.")
        return 0
    if options.base:
        before, origin = of_commit(options.base), f"of {options.base}"
    else:
        facts, before = read()
        origin = "that are stored"
        others = [
            f"{k} {v} there, {made_with()[k]} here" for k, v in facts.items() if made_with()[k] != v
        ]
        if others:
            print(f"Other versions may round differently: {'; '.join(others)}.")
    lines = moved(before, numbers)
    print("\n".join(lines) or f"All {len(numbers)} runs have the numbers {origin}.")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
