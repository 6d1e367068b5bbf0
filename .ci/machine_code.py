"""Make the folder for the machine code of this source, kept between runs of CI, and print its name.

    python .ci/machine_code.py FOLDER

The folder within FOLDER is named by a hash of all sources that are compiled, or say what is, and of
the versions of what compiles them. Those of other sources that were not used for longest go.
"""

import hashlib
import platform
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPILERS = ("llvmlite", "numba", "numpy", "pymc", "pytensor", "scipy")
KEPT = 3


def key():
    """Return a hash of compiled sources and of versions."""
    found = hashlib.sha256(f"{sys.version} {platform.platform()}".encode())
    for name in COMPILERS:
        found.update(f"{name} {version(name)} ".encode())
    for path in sorted((ROOT / "pm_evidence").rglob("*.py")):
        content = path.read_bytes()
        if b"numba" in content or "compile" in path.parts:
            found.update(f"{path.relative_to(ROOT)} {len(content)} ".encode() + content)
    return found.hexdigest()[:16]


def main(parent):
    """Make the folder, and remove old ones beside it."""
    folder = parent / key()
    folder.mkdir(parents=True, exist_ok=True)
    folder.touch()
    others = [path for path in parent.iterdir() if path.is_dir() and path != folder]
    for old in sorted(others, key=lambda path: path.stat().st_mtime)[: -(KEPT - 1)]:
        shutil.rmtree(old, ignore_errors=True)
    print(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]).expanduser().absolute())
