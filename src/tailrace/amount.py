"""Amounts in writing: ``1 topic``, ``1,200 topics``."""

from __future__ import annotations


def format_amount(number: int, noun: str) -> str:
    """A number of things, its thousands apart; the noun gets its plural by an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
