"""The invariants of requests on dead letters in a simulation.

A dead letter is called only for a request that has not ended, and not again for a request for which
it failed. A request is audited once. A letter leaves DLQ only after a handler has handled it, or if
somebody asked to discard it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.message import Partition
from tailrace.subscription.shard.requests.request import (
    LetterPlace,
    LetterRequest,
    RequestAction,
    RequestTarget,
)
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.store.definition import StoredSubscription, find_definition
from tailrace.subscription.store.names import ShardName
from tailrace.subscription.store.requests.entries import pending_requests
from tailrace.subscription.store.requests.letters import PendingLetter, read_letters
from tailrace.testing.groups.checks import CheckedSession
from tailrace.testing.groups.storage import SimulatedStorage
from tailrace.testing.simulation import Simulation
from tailrace.topic.audit_log import AUDIT, decode_audit


class RequestChecks:
    """The guarantees of requests, checked for one world."""

    def __init__(self, simulation: Simulation, storage: SimulatedStorage) -> None:
        self._simulation = simulation
        self._storage = storage
        self._asked: dict[str, LetterRequest] = {}
        self._audited: set[tuple[str, str]] = set()
        """The parts of requests that have ended: the id, and the unit that carried it out."""
        self._attempts: dict[tuple[str, str], int] = {}
        self._handled: set[tuple[str, str]] = set()
        self._discarded: set[tuple[str, str]] = set()

    def asked(self, stored: StoredSubscription, id: str) -> list[str]:
        """Record a request that was just made. Returns the positions of the messages that other
        ones of their key need not wait for any more."""
        excused = []
        letters = list(read_letters(self._storage, stored))
        for request in pending_requests(self._storage, stored.name):
            if request.id.startswith(f"{id}."):
                self._asked[request.id] = request
                for letter in letters:
                    chosen, behind = _chosen(request, letter)
                    if chosen and request.action is RequestAction.DISCARD:
                        self._discarded.add((stored.name, letter.origin))
                        excused.append(letter.origin)
                    elif behind and request.break_order:
                        excused.append(letter.origin)
        return excused

    def appended(self, partition: Partition) -> None:
        """Check an audit line: a request has one."""
        if partition.topic != AUDIT:
            return
        entry = decode_audit(self._storage.records[partition][-1].value)
        id = entry.before.get("request")
        stored = find_definition(self._storage, entry.target)
        if id is None or stored is None:
            return
        part = id, str(ShardName(stored.definition.generation, entry.before["shard"]))
        if part in self._audited:
            raise self._simulation.violation(f"request {id} is audited twice")
        self._audited.add(part)

    def called(self, holder: CheckedSession, unit: str, turn: Turn) -> None:
        """Check a dead letter that a worker, which owns the shard, calls: its first attempt for a
        request, or that attempt again because its outcome was not stored."""
        what = f"{holder.id} calls {turn.known_origin}"
        if turn.request not in self._asked:
            raise self._simulation.violation(f"{what} from DLQ, and nobody asked for it")
        if (turn.request, unit) in self._audited:
            raise self._simulation.violation(f"{what} for {turn.request}, which has ended")
        letter = turn.request, str(turn.known_origin)
        if self._attempts.setdefault(letter, turn.attempt) != turn.attempt:
            raise self._simulation.violation(f"{what} for {turn.request}, and it failed before")

    def passed(self, subscription: str, position: str) -> None:
        """Record a dead letter that an offset reset passes over."""
        self._discarded.add((subscription, position))

    def handled(self, subscription: str, position: str) -> None:
        """Record a message that a handler has handled."""
        self._handled.add((subscription, position))

    def check_ended(self, stored: StoredSubscription, dead: Iterator[str]) -> None:
        """Check, with no request pending, that each was audited, and that each of the messages that
        ever were in DLQ is there, or was handled, or was to be discarded."""
        for id in self._asked.keys() - {id for id, _ in self._audited}:
            raise self._simulation.violation(f"request {id} was not audited")
        waiting = {letter.origin for letter in read_letters(self._storage, stored)}
        for position in dead:
            known = self._handled | self._discarded
            if position not in waiting and (stored.name, position) not in known:
                raise self._simulation.violation(f"{position} left DLQ and was not handled")


def _chosen(request: LetterRequest, letter: PendingLetter) -> tuple[bool, bool]:
    """Return if a letter was asked for, and if it is of a key of which a letter was asked for."""
    targets = [each for each in request.targets if each.key == letter.key]
    return any(_names(each, letter.place) for each in targets), bool(letter.key and targets)


def _names(target: RequestTarget, place: LetterPlace) -> bool:
    if target.letters:
        return place in target.letters
    return target.until is None or place <= target.until
