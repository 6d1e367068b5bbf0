"""Many wrong arguments in one test, which says which of them went wrong."""

import re


def check_refusals(function, cases):
    """Call with the arguments of each case ``(arguments, error, message)``, and see it refused.

    The error has to be of that type, and its text to match that pattern.
    """
    wrong = []
    for arguments, error, message in cases:
        try:
            function(**arguments)
        except error as found:
            if not re.search(message, str(found)):
                wrong.append(f"{message!r} does not match {str(found)!r}")
        except Exception as found:
            wrong.append(f"{message!r}: {type(found).__name__} instead: {found}")
        else:
            wrong.append(f"{message!r}: {str(arguments)[:200]} was accepted")
    assert not wrong, "\n".join(wrong)
