"""Tables of results: DataFrames that show their main columns with suitable digits."""

from collections.abc import Callable
from functools import partial
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from pm_evidence.results.cells import (
    ERRORS,
    HEADINGS,
    cells,
    error_column,
    escaped,
    in_html,
    in_latex,
)

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

__all__ = ["EvidenceTable", "ShownTable", "latex_cells"]

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
                styler.format(partial(_constant, text=text), subset=([row], [column]))
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


def _constant(value: Any, text: str) -> str:
    """Return ``text``, which is shown instead of the value of a cell."""
    return text
