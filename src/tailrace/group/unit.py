"""What a leader shares out: units, who has been granted them, and what that was decided from."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class UnitState(Enum):
    """Whether a unit may be consumed now."""

    WAITING = "waiting"
    """Something that it follows is not finished, or an operator is moving it."""
    OPEN = "open"
    FINISHED = "finished"


class Unit(NamedTuple):
    """Something that one borrower consumes at a time. `load` is about how much is left of it."""

    name: str
    state: UnitState
    load: int = 0


class Basis(NamedTuple):
    """The units of a group, and the store entries, with versions, that they were derived from.

    A grant is committed only while those entries still have these versions.
    """

    units: tuple[Unit, ...]
    versions: tuple[tuple[str, int], ...]


class StoredGrant(NamedTuple):
    """A grant as the store has it. `epoch` is the version of the commit that made it.

    `fenced`: the unit was taken from its borrower since, by a seek or a skip. It can write no more,
    and has to be told before another gets the unit.
    """

    unit: str
    borrower: str
    process: str
    epoch: int
    fenced: bool = False


class LeaderEntry(NamedTuple):
    """Who leads a group, as the store has it. `term` is the version of the entry."""

    process: str
    term: int
