"""Tables in Markdown."""

from collections.abc import Iterable


def header(corner: str, columns: Iterable[str]) -> list[str]:
    """The first two lines of a table."""
    names = list(columns)
    return [row(corner, names), "|---|" + "---|" * len(names)]


def row(label: str, cells: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {label} | {' | '.join(cells)} |" if label else f"| | {' | '.join(cells)} |"
