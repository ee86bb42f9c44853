"""Who should have which unit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Moves(NamedTuple):
    """What leads from what is to what should be.

    `granted` are free units and the borrowers to have them. `revoked` are units that are to be
    taken from their owners, and will be granted once they are free.
    """

    granted: tuple[tuple[str, str], ...]
    revoked: tuple[str, ...]


def plan(
    loads: Mapping[str, int],
    borrowers: Iterable[str],
    owners: Mapping[str, str],
    moving: frozenset[str] | set[str] = frozenset(),
) -> Moves:
    """Share all units of `loads` out, so that the counts of borrowers differ by at most one.

    Nothing moves that need not. `owners` says who has a unit; those in `moving` are on their way
    from an owner and can not be granted yet. Borrowers that have most keep most, ties go by name,
    and free units with the highest loads go first, each to the borrower with the least load: the
    same input gives the same plan, and a plan that is carried out leaves nothing to move.
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
    return Moves(tuple(_share_out(free, loads, held, quota)), tuple(revoked))


def _quota(count: int, held: Mapping[str, list[str]]) -> dict[str, int]:
    """How many each is to have: those with most now get the ones that are left over."""
    low, extra = divmod(count, len(held))
    by_count = sorted(held, key=lambda borrower: -len(held[borrower]))
    return {borrower: low + (place < extra) for place, borrower in enumerate(by_count)}


def _share_out(
    free: Iterable[str],
    loads: Mapping[str, int],
    held: Mapping[str, list[str]],
    quota: Mapping[str, int],
) -> Iterable[tuple[str, str]]:
    room = {borrower: quota[borrower] - len(units) for borrower, units in held.items()}
    load: defaultdict[str, int] = defaultdict(int)
    for borrower, units in held.items():
        load[borrower] = sum(loads[unit] for unit in units)
    takers = [borrower for borrower in held if room[borrower] > 0]
    for unit in sorted(free, key=lambda unit: (-loads[unit], unit)):
        if not takers:
            return
        taker = min(takers, key=lambda borrower: (load[borrower], -room[borrower], borrower))
        yield unit, taker
        load[taker] += loads[unit]
        room[taker] -= 1
        if not room[taker]:
            takers.remove(taker)
