"""The closing table: each guarantee with the expected and seen numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

_HEADINGS: Final = ("guarantee", "expected", "seen", "without Tailrace", "")


class Row(NamedTuple):
    """A guarantee in numbers. `without` is None where any durable log does as well."""

    guarantee: str
    expected: int
    seen: int
    without: int | None

    @property
    def held(self) -> bool:
        """True if the guarantee held."""
        return self.expected == self.seen


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text."""
    cells = [_HEADINGS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(_line(row, widths) for row in cells)


def _cells(row: Row) -> tuple[str, ...]:
    without = "the same" if row.without is None else f"{row.without:,}"
    verdict = "held" if row.held else "BROKEN"
    return row.guarantee, f"{row.expected:,}", f"{row.seen:,}", without, verdict


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *numbers, verdict = (
        cell.ljust(width) if column in (0, len(widths) - 1) else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join((first, *numbers, verdict)).rstrip()
