"""Tables of results: as DataFrames, as text, LaTeX or HTML."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from pm_evidence.core.checks import check_choice, check_kind, described
from pm_evidence.core.records import LogEvidence, Status, with_pointer
from pm_evidence.core.text import concise, plus_minus

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler


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
    """Return some columns of a table as text."""
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


_WIDTH = 80  # of text, if pandas sets none


class ShownTable(pd.DataFrame):
    """A DataFrame that shows only its main columns.

    Its text, its HTML in a notebook, `style` and `to_latex` show numbers with the digits that the
    errors justify: ``-31.036(8)``. All columns can be used as in any DataFrame. A table that is
    made from it, such as ``table[["log_bf", "log_bf_mcse"]]`` or ``pandas.DataFrame(table)``, is an
    ordinary DataFrame that shows all of its columns.
    """

    # Columns that are shown where they are there; those without which it is a plain table; and the
    # one that holds what is written below it.
    _main: ClassVar[tuple[str, ...]] = ()
    _needed: ClassVar[frozenset[str]] = frozenset()
    _notes: ClassVar[str] = "warning"

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    def __repr__(self) -> str:
        if not self._is_whole():
            return super().__repr__()
        shown = cells(self, self._shown()).to_string()
        hidden = len(self.columns) - len(self._shown())
        note = f"[{hidden} more columns: see table.columns, or pandas.DataFrame(table)]"
        width = pd.get_option("display.width") or _WIDTH
        notes = [
            fill(f"{name}: {text}", width, subsequent_indent="  ", break_long_words=False)
            for name, text in self._noted()
        ]
        text = [fill(text, width) for text in [self.attrs.get("explanation", "")] if text]
        return "\n".join([shown, note, *notes, *text])

    def _repr_html_(self) -> str | None:
        if not self._is_whole():
            html: str | None = super()._repr_html_()
            return html
        shown = in_html(cells(self, self._shown()))
        notes = "".join(f"<li><b>{escape(n)}</b>: {escape(t)}</li>" for n, t in self._noted())
        table = shown.to_html(border=0, justify="left")
        text = escape(str(self.attrs.get("explanation", "")))
        return table + (f"<ul>{notes}</ul>" if notes else "") + (f"<p>{text}</p>" if text else "")

    @property
    def style(self) -> "Styler":
        """A pandas ``Styler`` of the main columns, whose cells keep their numbers."""
        if not self._is_whole():
            return super().style
        shown = self._shown()
        styler = pd.DataFrame(self).style
        styler.hide([name for name in self.columns if name not in shown], axis="columns")
        styler.format_index(lambda name: HEADINGS.get(name, name), axis="columns")
        texts = cells(self, shown)
        for column in shown:
            for row in self.index:
                text = str(texts.loc[row, column])
                styler.format(lambda _, text=text: text, subset=([row], [column]))
        return styler

    def to_latex(self, buf: Any = None, **kwargs: Any) -> Any:
        r"""Write the main columns as a LaTeX table, with numbers such as ``$-31.036(8)$``.

        Parameters
        ----------
        buf : path or file, optional
            Where to write; a string is returned if it is left out.
        **kwargs
            Passed to ``pandas.DataFrame.to_latex``. With ``columns``, pandas writes the table, with
            those columns and plain numbers.
        """
        if "columns" in kwargs or not self._is_whole():
            return super().to_latex(buf, **kwargs)
        shown = latex_cells(self, self._shown(), "parentheses")
        return shown.to_latex(buf, **{"escape": False, "multirow": False, **kwargs})

    def _shown(self) -> list[str]:
        return [name for name in self._main if name in self.columns]

    def _is_whole(self) -> bool:
        """Whether all columns of the table are still there."""
        return self._needed <= set(self.columns) and len(self) > 0

    def _noted(self) -> list[tuple[str, str]]:
        """Return what is written below the table: names of rows, and texts."""
        rows = self[self._notes].items()
        return [(_name_of(label), str(text)) for label, text in rows if text]


class EvidenceTable(ShownTable):
    """A DataFrame from ``pe.compare``, which shows only its main columns.

    These are log evidence, log Bayes factor, probability and status, and the columns of LOO where
    they were asked for.
    """

    _main = ("log_evidence", "log_bf", "prob", "elpd_loo", "elpd_diff", "status")
    _needed = frozenset({"log_evidence", "log_bf", "prob", "status", "warning", "mcse"}) | {
        ERRORS["log_bf"],
        ERRORS["prob"],
    }


AS_WRITTEN = "as written"


@dataclass(frozen=True)
class Row:
    """The evidence under one prior of a variable."""

    variable: str  # the variable, and the name of its prior
    prior: str
    factor: float  # what its spread is multiplied by; NaN for another distribution
    evidence: LogEvidence  # log evidence in nats, with the status of the row
    # Log Bayes factor against the model as it is written, its error and the degrees of freedom of
    # the error
    log_bf: float
    log_bf_mcse: float
    log_bf_dof: float = float("inf")
    how: str = AS_WRITTEN  # ``"as written"``, ``"reweighted"`` or ``"new run"``
    pareto_k: float = float("nan")  # of the weights of the draws; NaN without weights
    ess: float = float("nan")


class SensitivityTable(ShownTable):
    """A DataFrame from ``pe.prior_sensitivity``, which shows only its main columns.

    These are log evidence, log Bayes factor against the model as it is written, how both were
    computed, and the status.
    """

    _main = ("log_evidence", "log_bf", "how", "status")
    _needed = frozenset(
        {"log_evidence", "log_bf", "how", "status", "warning", "mcse", "log_bf_mcse"}
    )


def sensitivity_table(rows: Sequence[Row]) -> SensitivityTable:
    """Return the table of some rows, in their order."""
    evidence = [row.evidence for row in rows]
    with np.errstate(over="ignore"):
        bf = np.exp([row.log_bf for row in rows])
    table = pd.DataFrame(
        {
            "factor": [row.factor for row in rows],
            "log_evidence": [each.value for each in evidence],
            "mcse": [each.mcse for each in evidence],
            "log_bf": [row.log_bf for row in rows],
            "log_bf_mcse": [row.log_bf_mcse for row in rows],
            "bf": bf,
            "how": [row.how for row in rows],
            "pareto_k": [row.pareto_k for row in rows],
            "ess": [row.ess for row in rows],
            "status": [str(each.status) for each in evidence],
            "warning": [_warning(each) for each in evidence],
            "dof": [each.dof for each in evidence],
            "log_bf_dof": [row.log_bf_dof for row in rows],
        },
        index=pd.MultiIndex.from_tuples(
            [(row.variable, row.prior) for row in rows], names=["variable", "prior"]
        ),
    )
    return SensitivityTable(table)


def _warning(evidence: LogEvidence) -> str:
    if evidence.status == Status.OK:
        return ""
    return f"{evidence.status}: {with_pointer(evidence.status, evidence.message)}"


def latex_cells(table: pd.DataFrame, columns: list[str], numbers: str) -> pd.DataFrame:
    """Return some columns of a table as LaTeX, with headings and escaped names."""
    shown = cells(table, columns, numbers)
    for name in columns:
        has_error = error_column(name, list(table.columns)) is not None
        number = has_error or pd.api.types.is_numeric_dtype(table[name])
        shown[name] = [in_latex(text) if number else escaped(text) for text in shown[name]]
    shown.columns = pd.Index([escaped(HEADINGS.get(name, name)) for name in columns])
    if isinstance(shown.index, pd.MultiIndex):
        rows = [tuple(map(escaped, label)) for label in shown.index]
        shown.index = pd.MultiIndex.from_tuples(rows)
    else:
        shown.index = pd.Index([escaped(name) for name in shown.index])
    return shown


def _name_of(label: Any) -> str:
    """Return the label of a row as text."""
    return ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)


_STYLES = ("text", "latex", "html")


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
        options = {} if caption is None else {"caption": escaped(caption)}
        shown = latex_cells(table, names, numbers)
        return str(shown.to_latex(escape=False, multirow=False, **options)).strip()
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
