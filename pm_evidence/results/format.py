"""Tables of results as text, LaTeX or HTML."""

from html import escape
from typing import Any

import pandas as pd

from pm_evidence.core.checks import check_choice, check_kind, described
from pm_evidence.results.cells import ERRORS, HEADINGS, cells, error_column, escaped, in_html
from pm_evidence.results.table import latex_cells

__all__ = ["format_table"]

_STYLES = ("text", "latex", "html")
_NUMBERS = ("parentheses", "plus_minus")


def format_table(
    table: pd.DataFrame,
    style: str = "text",
    *,
    numbers: str = "parentheses",
    columns: list[str] | None = None,
    caption: str | None = None,
) -> str:
    r"""Write a table with the digits that the errors of its numbers leave.

    Parameters
    ----------
    table : DataFrame
        From ``compare``, ``prior_sensitivity`` or ``summary``, also if it was changed, or read from
        a file.
    style : {"text", "latex", "html"}
        What is written. LaTeX needs the package ``booktabs``.
    numbers : {"parentheses", "plus_minus"}
        ``-31.036(8)``, where the digits in parentheses are the error in units of the last digit, or
        ``-31.036 ± 0.008``.
    columns : list of str, optional
        Columns of the table, in the order in which they are written. Errors are written with their
        numbers. By default, those of log evidence, Bayes factors, probabilities, LOO and statuses
        that the table has; of other tables all columns.
    caption : str, optional
        Caption of the table in LaTeX and HTML; characters that have a meaning there are escaped.

    Returns
    -------
    str
        The table. Names are escaped for LaTeX or HTML.

    Raises
    ------
    TypeError
        If ``table`` is not a DataFrame.
    ValueError
        If it has no rows, a column is not there, or ``style`` or ``numbers`` is unknown.

    Notes
    -----
    An error is given with two digits if its first three are below 355, and with one otherwise
    (Particle Data Group, Review of Particle Physics, section 5.3), and its number is rounded to the
    same digit. Numbers without an error have three digits.

    Examples
    --------
    >>> from pm_evidence.core.records import LogEvidence
    >>> from pm_evidence.results import compare
    >>> evidence = {"a_1": LogEvidence(-33.1, 0.02, "bar"), "b": LogEvidence(-30, 0.02, "bar")}
    >>> table = compare(evidence)
    >>> print(format_table(table, "latex", numbers="plus_minus", columns=["log_evidence"]))
    \begin{tabular}{ll}
    \toprule
     & log evidence \\
    \midrule
    b & $-30.000 \pm 0.020$ \\
    a\_1 & $-33.100 \pm 0.020$ \\
    \bottomrule
    \end{tabular}
    """
    check_kind("table", table, pd.DataFrame, "pass what compare returned")
    check_choice("style", style, _STYLES)
    check_choice("numbers", numbers, _NUMBERS)
    if not len(table):
        raise ValueError("table must have at least one row, got none; pass what compare returned.")
    if caption is not None and not isinstance(caption, str):
        raise TypeError(f"caption must be a text, got {described(caption)}; leave it out for none.")
    table = pd.DataFrame(table)
    names = _columns(table, columns)
    if style == "latex":
        return _latex(table, names, numbers, caption)
    shown = cells(table, names, numbers)
    if style == "text":
        return shown.to_string()
    html = in_html(shown).to_html(border=0, justify="left")
    if caption is None:
        return html
    head, rest = html.split(">", 1)
    return f"{head}>\n  <caption>{escape(caption)}</caption>{rest}"


def _columns(table: pd.DataFrame, asked: Any) -> list[str]:
    """Return the columns that are written."""
    there = [str(name) for name in table.columns]
    if asked is None:
        known = [name for name in HEADINGS if name in there]
        if any(name in known for name in ERRORS):
            return known
        errors = {error_column(name, there) for name in there}
        return [name for name in there if name not in errors]
    if isinstance(asked, str) or not isinstance(asked, list | tuple) or not asked:
        raise TypeError(
            f"columns must be a list of names, got {described(asked)}; pass for example "
            '["log_evidence", "status"].'
        )
    missing = [name for name in asked if name not in there]
    if missing:
        raise ValueError(f"columns must be among {there}, got {missing}; leave them out.")
    return list(asked)


def _latex(table: pd.DataFrame, names: list[str], numbers: str, caption: str | None) -> str:
    shown = latex_cells(table, names, numbers)
    options = {} if caption is None else {"caption": escaped(caption)}
    return str(shown.to_latex(escape=False, multirow=False, **options)).strip()
