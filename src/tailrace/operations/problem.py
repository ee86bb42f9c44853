"""A problem that `tailrace status` shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem: its subject, a description, and a command or action that helps."""

    subject: str
    what: str
    remedy: str
