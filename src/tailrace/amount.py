"""Numbers of things: checks, and text such as ``1 topic`` and ``1,200 topics``."""

from __future__ import annotations

from typing import TypeGuard


def is_whole(value: object) -> TypeGuard[int]:
    """True for an `int` that is not a `bool`."""
    return isinstance(value, int) and not isinstance(value, bool)


def format_amount(number: int, noun: str) -> str:
    """Return a number with thousands separators and a noun, which gets an s unless it is 1."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
