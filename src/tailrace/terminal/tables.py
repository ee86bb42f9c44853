"""Text for people: tables, sizes, times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import click

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows under headings. Numbers are aligned right, with thousands separators."""
    listed = [list(row) for row in rows]
    right = [
        bool(listed) and all(isinstance(row[column], int | float) for row in listed)
        for column in range(len(headings))
    ]
    cells = [[_cell(value) for value in row] for row in listed]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    lines = [_line(headings, widths, right), *(_line(row, widths, right) for row in cells)]
    return "\n".join([click.style(lines[0], bold=True), *lines[1:]])


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Return names and values, one pair per line."""
    listed = [(name, _cell(value)) for name, value in pairs]
    width = max(len(name) for name, _ in listed)
    return "\n".join(
        f"{click.style(name.ljust(width), bold=True)}  {text}" for name, text in listed
    )


def size(size_bytes: int) -> str:
    """Return a size for people: ``1.2 MB``."""
    amount = float(size_bytes)
    for unit in _UNITS[:-1]:
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} {_UNITS[-1]}"


def format_time(time: datetime) -> str:
    """Return a UTC time to the second: ``2026-01-01 00:00:00Z``."""
    return f"{time:%Y-%m-%d %H:%M:%S}Z"


def format_time_ms(time: datetime) -> str:
    """Return a UTC time to the millisecond: ``2026-01-01 00:00:00.000Z``."""
    return f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03}Z"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    )
    return "  ".join(padded).rstrip()
