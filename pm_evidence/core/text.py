"""Numbers rounded to the digits that their errors justify, and small tables for notebooks."""

import math
from collections.abc import Sequence
from html import escape

# Particle Data Group, Review of Particle Physics, section 5.3: an error whose first three digits
# are below 355 is given with two digits, and one above that with a single digit.
_TWO_DIGITS_BELOW = 3.55
_UNKNOWN_DIGITS, _EXACT_DIGITS = 2, 4  # decimals of a value whose error is unknown, or zero
_MOST_DECIMALS = 12  # further digits of a log evidence are rounding errors of a float
# An exponent is used if value and error are both below the first, or either reaches the second.
_SMALL, _LARGE = 1e-4, 1e12


def decimals(error: float) -> int:
    """Return the number of decimals that an error justifies; negative if digits are dropped."""
    if not math.isfinite(error) or error <= 0.0:
        return _UNKNOWN_DIGITS
    exponent = math.floor(math.log10(error))
    two = error / 10.0**exponent < _TWO_DIGITS_BELOW
    return min(two - exponent, _MOST_DECIMALS)


def concise(value: float, error: float) -> str:
    """Return a value with its standard error in parentheses.

    The error is given with two digits if its first three are below 355, and with one otherwise
    (Particle Data Group, Review of Particle Physics, section 5.3). The value is rounded to the same
    digit.
    """
    if not math.isfinite(value):
        return str(float(value))
    exponent = _exponent(value, error)
    if exponent is None:
        return _plain(value, error)
    scale = 10.0**exponent
    number, space, rest = _plain(value / scale, error / scale).partition(" ")
    return f"{number}e{exponent:+03d}{space}{rest}"


def plus_minus(value: float, error: float) -> str:
    """Return a value with its standard error after a plus-minus sign."""
    if not (math.isfinite(value) and math.isfinite(error)):
        return concise(value, error)
    exponent = _exponent(value, error)
    scale = 1.0 if exponent is None else 10.0**exponent
    value, error = value / scale, error / scale
    # 0.0996 is rounded to 0.10, whose digits start a decade higher
    digits = decimals(round(error, decimals(error)))
    shown = max(digits, 0) if error > 0.0 else _EXACT_DIGITS
    value, error = round(value, max(digits, -12)) + 0.0, round(error, digits)
    text = f"{value:.{shown}f} ± {error:.{shown}f}"
    return text if exponent is None else f"({text})e{exponent:+03d}"


def _exponent(value: float, error: float) -> int | None:
    """Return the power of ten that value and error are divided by; None if they are not."""
    size = max(abs(value), error if math.isfinite(error) else 0.0)
    if not (size >= _LARGE or 0.0 < size < _SMALL):
        return None
    exponent = math.floor(math.log10(size))
    scale = 10.0**exponent
    return exponent if scale > 0.0 and math.isfinite(scale) else None


def _plain(value: float, error: float) -> str:
    if not math.isfinite(error):
        return f"{value:.{_UNKNOWN_DIGITS}f}" + (
            " (error unknown)" if math.isnan(error) else "(inf)"
        )
    rounded = round(error, decimals(error))
    if rounded == 0.0:
        return f"{value:.{_EXACT_DIGITS}f}(0)"
    digits = decimals(rounded)  # 0.0996 is rounded to 0.10, whose digits start a decade higher
    rounded, value = round(rounded, digits), round(value, digits) + 0.0  # never -0.0
    if rounded >= 1.0:
        shown = max(digits, 0)
        return f"{value:.{shown}f}({rounded:.{shown}f})"
    return f"{value:.{digits}f}({round(rounded * 10**digits)})"


def facts(caption: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return an HTML table of names and texts, without rows whose text is empty."""
    lines = "".join(
        f'<tr><th style="text-align: left">{escape(name)}</th>'
        f'<td style="text-align: left">{escape(text)}</td></tr>'
        for name, text in rows
        if text
    )
    return (
        '<table><caption style="text-align: left; font-weight: bold">'
        f"{escape(caption)}</caption><tbody>{lines}</tbody></table>"
    )
