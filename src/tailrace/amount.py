"""Amounts: what counts as one, and in writing ``1 topic``, ``1,200 topics``."""

from __future__ import annotations

from typing import TypeGuard


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number. True and False are not, though Python counts with them."""
    return isinstance(value, int) and not isinstance(value, bool)


def format_amount(number: int, noun: str) -> str:
    """A number of things, its thousands apart; the noun gets its plural by an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
