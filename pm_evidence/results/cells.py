"""Cells of tables as text: numbers with the digits that their errors leave, also in LaTeX."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from pm_evidence.core.concise import concise, plus_minus

__all__ = [
    "ERRORS",
    "HEADINGS",
    "cells",
    "error_column",
    "escaped",
    "in_html",
    "in_latex",
    "numeric",
]

# Columns of the tables of this package: the error of each number, and headings.
ERRORS: Mapping[str, str] = {
    "log_evidence": "mcse",
    "log_bf": "log_bf_mcse",
    "prob": "prob_mcse",
    "elpd_loo": "elpd_se",
    "elpd_diff": "elpd_diff_se",
}
HEADINGS: Mapping[str, str] = {
    "log_evidence": "log evidence",
    "log_bf": "log Bayes factor",
    "prob": "probability",
    "elpd_loo": "LOO elpd",
    "elpd_diff": "elpd difference",
    "how": "computed by",
    "status": "status",
}
_NUMBERS: Mapping[str, Callable[[float, float], str]] = {
    "parentheses": concise,
    "plus_minus": plus_minus,
}
_WHOLE, _LARGE = 100.0, 1e6  # between these a number is rounded to a whole one
_MINUS = "\N{MINUS SIGN}"
_PLUS_MINUS, _TIMES = "\N{PLUS-MINUS SIGN}", "\N{MULTIPLICATION SIGN}"


def error_column(name: str, columns: Sequence[str]) -> str | None:
    """Return the column that holds the error of another; None if there is none."""
    candidates = (ERRORS.get(name), f"mcse_{name}")
    return next((found for found in candidates if found in columns), None)


def numeric(table: pd.DataFrame, name: str) -> bool:
    """Return whether a column holds numbers that are written with the digits of an error."""
    return bool(pd.api.types.is_float_dtype(table[name]))


def cells(
    table: pd.DataFrame, columns: Sequence[str], numbers: str = "parentheses"
) -> pd.DataFrame:
    """Return some columns of a table as text.

    Parameters
    ----------
    table : DataFrame
        With the columns of errors that belong to those that are asked for.
    columns : sequence of str
        What is shown.
    numbers : {"parentheses", "plus_minus"}
        How a number is written with its error.
    """
    text = {}
    for name in columns:
        error = error_column(name, list(table.columns))
        if error is not None:
            pairs = zip(table[name].astype(float), table[error].astype(float), strict=True)
            text[name] = [_with_error(value, each, numbers) for value, each in pairs]
        elif numeric(table, name):
            text[name] = [_plain(float(value)) for value in table[name]]
        else:
            text[name] = [str(value) for value in table[name]]
    return pd.DataFrame(text, index=table.index)


def _plain(value: float) -> str:
    """Return a number without an error, with three digits or as a whole number."""
    return f"{value:.0f}" if _WHOLE <= abs(value) < _LARGE else f"{value:.3g}"


def _with_error(value: float, error: float, numbers: str) -> str:
    if value == 0.0 and error == 0.0:
        return "0"  # what others are compared with
    return _NUMBERS[numbers](value, error)


def in_html(shown: pd.DataFrame) -> pd.DataFrame:
    """Return texts of cells with headings, and with typographic minus signs in numbers."""
    texts: pd.DataFrame = shown.replace(r"(^|e)-(?=\d|inf)", f"\\1{_MINUS}", regex=True)
    return texts.rename(columns=HEADINGS)


def in_latex(number: str) -> str:
    """Return a number as LaTeX, with its error in either form."""
    value, _, remark = number.partition(" ")
    if remark.startswith(_PLUS_MINUS):
        value, remark = number.replace(f" {_PLUS_MINUS} ", r" \pm "), ""
    value = re.sub(r"e([+-]\d+)$", lambda found: rf" \times 10^{{{int(found[1])}}}", value)
    value = value.replace("inf", r"\infty").replace("nan", r"\mathrm{nan}")
    return f"${value}$ {remark}".rstrip()


def escaped(text: Any) -> str:
    """Return a text in which the characters that LaTeX reads as commands are escaped."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {character: f"\\{character}" for character in "&%$#_{}"}
    special |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    special |= {_TIMES: r"$\times$", _PLUS_MINUS: r"$\pm$", "\n": " "}
    return "".join(special.get(character, character) for character in str(text))
