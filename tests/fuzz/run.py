"""Makes calls with wrong arguments in a process of its own, and reports what came of them.

    python -m tests.fuzz.run SEED NUMBER PAIRS LOG

The last line of the file LOG names the call under way, should the process die.
"""

import contextlib
import faulthandler
import io
import json
import linecache
import logging
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

import pm_evidence
from tests.fuzz.cases import Call, calls, pairs

_PACKAGE = str(Path(pm_evidence.__file__).parent)
_LONGEST_CALL = 300.0  # seconds, of which compiling may take most


def main(seed: int, number: int, n_pairs: int, log: str) -> None:
    """Make calls with one wrong argument, all of them for 0, and with two, and print a report."""
    warnings.simplefilter("ignore")
    logging.disable()
    rng = np.random.default_rng(seed)
    everything = list(calls())
    order = rng.permutation(len(everything))[: number or None]
    chosen = [*(everything[index] for index in order), *pairs(n_pairs, rng)]
    outcomes, complaints = Counter(), []
    start = time.process_time()
    # checkpoints of a wrong name are made in a folder that is thrown away
    elsewhere = tempfile.TemporaryDirectory()
    with Path(log).open("w") as stream, elsewhere as folder, contextlib.chdir(folder):
        for call in chosen:
            print(call, file=stream, flush=True)
            faulthandler.dump_traceback_later(_LONGEST_CALL, exit=True)
            outcome, complaint = judge(call)
            faulthandler.cancel_dump_traceback_later()
            outcomes[outcome] += 1
            if complaint:
                complaints.append(f"{outcome}: {call}: {complaint}")
    report = {**outcomes, "seconds": time.process_time() - start, "complaints": complaints}
    print("REPORT" + json.dumps(report))


def judge(call: Call) -> tuple[str, str]:
    """Return what a call came to, and what is wrong with that."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            call.function(**call.arguments)
    except (ValueError, TypeError) as error:
        message, where = str(error), traceback.extract_tb(error.__traceback__)[-1]
        if not _raised_by_us(where.filename, where.lineno):
            return "foreign", f"{type(error).__name__}: {message[:200]} [{where.name}]"
        if not any(re.search(rf"\b{re.escape(name)}\b", message) for name in call.wrong):
            return "unnamed", f"{type(error).__name__}: {message[:200]}"
        return "refused", ""
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        if isinstance(error, ZeroDivisionError) and "failing function" in call.wrong.values():
            return "accepted", ""  # the user's own exception
        if isinstance(error, pm_evidence.NumericalError):
            return "refused", ""
        return "foreign", f"{type(error).__name__}: {str(error)[:200]} [{where.name}]"
    return "accepted", ""


def _raised_by_us(filename: str, line: int | None) -> bool:
    """Return whether a statement of the package raised it, and not what the statement called."""
    return filename.startswith(_PACKAGE) and linecache.getline(
        filename, line or 0
    ).lstrip().startswith("raise")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), sys.argv[4])
