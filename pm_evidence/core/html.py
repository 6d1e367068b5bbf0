"""Small tables for notebooks."""

from collections.abc import Sequence
from html import escape

__all__ = ["facts"]


def facts(caption: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return an HTML table of names and texts, without rows whose text is empty.

    Parameters
    ----------
    caption : str
        Caption of the table.
    rows : sequence of (name, text)
        One line each, as plain text.
    """
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
