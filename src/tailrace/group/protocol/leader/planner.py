"""The plan of a leader: which borrower should have which unit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Moves(NamedTuple):
    """The moves from the present assignment to the planned one.

    `granted` are free units with their new borrowers. `revoked` are units to revoke from their
    owners; they are granted once they are free.
    """

    granted: tuple[tuple[str, str], ...]
    revoked: tuple[str, ...]


def plan(
    loads: Mapping[str, int],
    borrowers: Iterable[str],
    owners: Mapping[str, str],
    moving: frozenset[str] | set[str] = frozenset(),
) -> Moves:
    """Distribute the units of `loads` so that the counts of borrowers differ by at most one.

    The plan moves as few units as possible. `owners` are the owners of units; units in `moving` are
    being revoked and cannot be granted yet. Borrowers with most units keep most; ties go by name.
    Free units with the highest loads go first, each to the borrower with the least load. The same
    input gives the same plan, and an executed plan leaves nothing to move.
    """
    held: dict[str, list[str]] = {borrower: [] for borrower in sorted(borrowers)}
    free = []
    for unit in sorted(loads):
        owner = owners.get(unit)
        if owner is not None and owner in held and unit not in moving:
            held[owner].append(unit)
        elif unit not in moving:
            free.append(unit)
    if not held:
        return Moves((), ())
    quota = _quota(len(loads), held)
    revoked = [unit for borrower, units in held.items() for unit in units[quota[borrower] :]]
    return Moves(tuple(_distribute(free, loads, held, quota)), tuple(revoked))


def _quota(count: int, held: Mapping[str, list[str]]) -> dict[str, int]:
    """Return the number of units of each borrower: those with most units now get the remainder."""
    low, extra = divmod(count, len(held))
    by_count = sorted(held, key=lambda borrower: -len(held[borrower]))
    return {borrower: low + (rank < extra) for rank, borrower in enumerate(by_count)}


def _distribute(
    free: Iterable[str],
    loads: Mapping[str, int],
    held: Mapping[str, list[str]],
    quota: Mapping[str, int],
) -> Iterable[tuple[str, str]]:
    room = {borrower: quota[borrower] - len(units) for borrower, units in held.items()}
    load: defaultdict[str, int] = defaultdict(int)
    for borrower, units in held.items():
        load[borrower] = sum(loads[unit] for unit in units)
    receivers = [borrower for borrower in held if room[borrower] > 0]
    for unit in sorted(free, key=lambda unit: (-loads[unit], unit)):
        if not receivers:
            return
        receiver = min(receivers, key=lambda borrower: (load[borrower], -room[borrower], borrower))
        yield unit, receiver
        load[receiver] += loads[unit]
        room[receiver] -= 1
        if not room[receiver]:
            receivers.remove(receiver)
