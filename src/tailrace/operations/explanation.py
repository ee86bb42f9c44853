"""The parts of an explanation: a headline, facts, and commands to run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """A named fact, described in one sentence."""

    name: str
    what: str


@dataclass(frozen=True, slots=True)
class Remedy:
    """A command that helps, and its outcome."""

    name: str
    command: str
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class ExplainedPart:
    """A group, reader or writer, as a part of what is explained: its state, facts, and commands."""

    name: str
    state: str
    waits: bool
    facts: tuple[Fact, ...]
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of a message for a consumer: a word, the reason, and commands that help."""

    state: str
    why: str
    remedies: tuple[Remedy, ...] = ()
    waits: bool = True


@dataclass(frozen=True, slots=True)
class Explanation:
    """The state of a topic, group, subscription, partition, message, pipeline or writer.

    `waits` is True if records wait for it.
    """

    subject: str
    waits: bool
    headline: str
    facts: tuple[Fact, ...]
    remedies: tuple[Remedy, ...]


def fact_lines(facts: Iterable[Fact], width: int = 0) -> list[str]:
    """Return one indented line for each fact, with the names padded to one width."""
    listed = list(facts)
    padded = max([width, *(len(fact.name) for fact in listed)])
    return [f"  {fact.name:<{padded}}  {fact.what}" for fact in listed]
