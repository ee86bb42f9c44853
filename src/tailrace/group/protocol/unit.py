"""Units, their grants, and the basis of the decisions of a leader."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class UnitState(Enum):
    """The state of a unit: only an open unit is granted."""

    WAITING = "waiting"
    """A unit that it follows is not finished, or a seek or skip of it is in progress."""
    OPEN = "open"
    FINISHED = "finished"


class Unit(NamedTuple):
    """A thing that one borrower consumes at a time. `load` estimates the records left in it."""

    name: str
    state: UnitState
    load: int = 0


class Basis(NamedTuple):
    """The units of a group, and the store entries, with versions, that they were read from.

    A grant is committed only while those entries still have these versions.
    """

    units: tuple[Unit, ...]
    versions: tuple[tuple[str, int], ...]


class StoredGrant(NamedTuple):
    """A grant as stored. `epoch` is the version of the commit that made it.

    `fenced`: a seek or a skip has fenced the unit since. Its borrower can no longer write, and must
    be notified before the unit is granted again.
    """

    unit: str
    borrower: str
    process: str
    epoch: int
    fenced: bool = False


class LeaderEntry(NamedTuple):
    """The leader of a group, as stored. `term` is the version of the entry."""

    process: str
    term: int
