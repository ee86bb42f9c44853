"""What an explanation is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """Something to know: its name and a sentence."""

    name: str
    what: str


@dataclass(frozen=True, slots=True)
class Remedy:
    """A command that helps, and what comes of it."""

    name: str
    command: str
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What something waits for: a headline, what there is to know, and what helps."""

    subject: str
    waits: bool
    headline: str
    facts: tuple[Fact, ...]
    remedies: tuple[Remedy, ...]
