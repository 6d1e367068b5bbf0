"""A table of compared models: a DataFrame that shows its main columns with suitable digits."""

import re
from collections.abc import Callable
from functools import partial
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING, Any

import pandas as pd

from pm_evidence.core.concise import concise

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

__all__ = ["EvidenceTable"]

# Columns that are shown, with their headings.
_SHOWN = {
    "log_evidence": "log evidence",
    "log_bf": "log Bayes factor",
    "prob": "probability",
    "status": "status",
}
_WIDTH = 80  # of text, if pandas sets none
_MINUS = "\N{MINUS SIGN}"


class EvidenceTable(pd.DataFrame):
    """A DataFrame from ``pe.compare``, which shows only its main columns.

    Its text, its HTML in a notebook, `style` and `to_latex` show log evidence, log Bayes factor,
    probability and status, with the digits that the errors justify: ``-31.036(8)``. All columns can
    be used as in any DataFrame. A table that is made from it, such as
    ``table[["log_bf", "log_bf_mcse"]]`` or ``pandas.DataFrame(table)``, is an ordinary DataFrame
    that shows all of its columns.
    """

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    def __repr__(self) -> str:
        if not self._is_whole():
            return super().__repr__()
        shown = self._texts().to_string()
        hidden = len(self.columns) - len(_SHOWN)
        note = f"[{hidden} more columns: see table.columns, or pandas.DataFrame(table)]"
        width = pd.get_option("display.width") or _WIDTH
        warnings = [
            fill(f"{name}: {text}", width, subsequent_indent="  ", break_long_words=False)
            for name, text in self["warning"].items()
            if text
        ]
        return "\n".join([shown, note, *warnings])

    def _repr_html_(self) -> str | None:
        if not self._is_whole():
            html: str | None = super()._repr_html_()
            return html
        shown = self._texts().rename(columns=_SHOWN).replace("-", _MINUS, regex=True)
        warnings = "".join(
            f"<li><b>{escape(str(name))}</b>: {escape(str(text))}</li>"
            for name, text in self["warning"].items()
            if text
        )
        table = shown.to_html(border=0, justify="left")
        return f"{table}<ul>{warnings}</ul>" if warnings else table

    @property
    def style(self) -> "Styler":
        """A pandas ``Styler`` of the main columns, whose cells keep their numbers."""
        if not self._is_whole():
            return super().style
        styler = pd.DataFrame(self).style
        styler.hide([name for name in self.columns if name not in _SHOWN], axis="columns")
        styler.format_index(lambda name: _SHOWN.get(name, name), axis="columns")
        texts = self._texts()
        for column in _SHOWN:
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
        shown = self._texts().rename(columns=_SHOWN)
        for name in ("log evidence", "log Bayes factor", "probability"):
            shown[name] = [_in_latex(text) for text in shown[name]]
        shown["status"] = [_escaped(str(status)) for status in shown["status"]]
        shown.index = pd.Index([_escaped(str(name)) for name in shown.index])
        return shown.to_latex(buf, **{"escape": False, **kwargs})

    def _is_whole(self) -> bool:
        """Whether all columns of a comparison are still there."""
        needed = {*_SHOWN, "mcse", "log_bf_mcse", "prob_mcse", "warning"}
        return needed <= set(self.columns) and len(self) > 0

    def _texts(self) -> pd.DataFrame:
        """Return what is shown as text."""
        errors = {"log_evidence": "mcse", "log_bf": "log_bf_mcse", "prob": "prob_mcse"}
        texts = {
            name: [
                concise(value, error)
                for value, error in zip(self[name], self[errors[name]], strict=True)
            ]
            for name in errors
        }
        best = (self["log_bf"] == 0.0) & (self["log_bf_mcse"] == 0.0)
        texts["log_bf"] = ["0" if b else t for t, b in zip(texts["log_bf"], best, strict=True)]
        return pd.DataFrame({**texts, "status": list(self["status"])}, index=self.index)


def _constant(value: Any, text: str) -> str:
    """Return ``text``, which is shown instead of the value of a cell."""
    return text


def _in_latex(number: str) -> str:
    """Return what `concise` wrote as LaTeX."""
    value, _, remark = number.partition(" ")
    value = re.sub(r"e([+-]\d+)$", lambda found: rf" \times 10^{{{int(found[1])}}}", value)
    value = value.replace("inf", r"\infty").replace("nan", r"\mathrm{nan}")
    return f"${value}$ {remark}".rstrip()


def _escaped(text: str) -> str:
    """Return a text in which the characters that LaTeX reads as commands are escaped."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {character: f"\\{character}" for character in "&%$#_{}"}
    return "".join(special.get(character, character) for character in text)
