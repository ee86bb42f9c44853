"""The invariants of a simulated group.

Most are checked when an event happens, against the true storage. Only units that two sessions own,
as far as each knows, are checked after every step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Final, NamedTuple, Protocol

from tailrace.amount import format_amount
from tailrace.group.store.definition import consumer_name, grant_key
from tailrace.group.store.seek_steps import SEEKS
from tailrace.message import Partition
from tailrace.subscription.store.names import SUBSCRIPTIONS
from tailrace.testing.auditor import Audit, Auditor, Numbered
from tailrace.testing.groups.storage import MarkWritten, SimulatedStorage
from tailrace.testing.simulation import Simulation
from tailrace.testing.trace import Mark
from tailrace.topic.composite import TOPICS, decode_definition
from tailrace.topic.ledger import Progress
from tailrace.topic.view import StoredDefinition

FAILURES_SHOWN: Final = 3
"""The number of messages with failed handlers that a violation lists."""


class CheckedSession(Protocol):
    """A session as the checks see it."""

    @property
    def id(self) -> str:
        """The name of the session."""

    @property
    def group(self) -> str:
        """The name of its group."""

    def may_deliver(self, unit: str, epoch: int) -> bool:
        """True if the session would deliver records of this unit now, by its own clock."""


class HandlerFailure(NamedTuple):
    """A delivery whose handler raised this error, or None if the handler nacked it."""

    session: str
    position: str
    error: Exception | None


class Checks:
    """The guarantees of groups, checked for one world.

    `strict_order` is False once a group was moved forward by a seek, which skips messages.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.storage: SimulatedStorage
        self.strict_order = True
        self.failures: list[HandlerFailure] = []
        self._failing: dict[tuple[str, str], list[HandlerFailure]] = {}
        """By group and position: the failures of messages that no handler has handled since."""
        self.given_up: list[str] = []
        """The positions of messages that used up their attempts."""
        self._simulation = simulation
        self._messages: dict[tuple[str, int], Numbered] = {}
        self._numbers: defaultdict[Hashable, int] = defaultdict(int)
        self._auditors: defaultdict[str, Auditor] = defaultdict(Auditor)
        self._receipts: list[tuple[Numbered, str]] = []
        self._newest: defaultdict[tuple[str, Hashable], int] = defaultdict(int)
        self._skipped: set[tuple[str, Numbered]] = set()
        self._delivered: dict[tuple[str, str, int], int] = {}
        """The epoch under which a message was delivered last."""
        self._definitions: dict[str, StoredDefinition] = {}
        self._owners: defaultdict[tuple[str, str], dict[CheckedSession, int]] = defaultdict(dict)
        self._contested: set[tuple[str, str]] = set()
        simulation.always(self.check_owners)
        simulation.remark(self.describe_failures)

    # Pushes.

    def pushed(self, topic: str, key: str | None, partition: Partition, offset: int) -> None:
        """Record a stored message. A message without a key is ordered with no other."""
        position = f"{partition}@{offset}"
        whose = (topic, position if key is None else key)
        self._numbers[whose] += 1
        message = Numbered(whose, self._numbers[whose])
        self._messages[str(partition), offset] = message
        self._receipts.append((message, position))

    def audit(self, group: str, topics: set[str]) -> Audit:
        """Compare the messages that a group handled with all that were pushed to these topics."""
        auditor = self._auditors[group]
        for message, position in self._receipts:
            if position.partition("/")[0] in topics and (group, message) not in self._skipped:
                auditor.pushed(*message, position)
        return auditor.audit()

    def skipped(self, group: str, unit: str, offset: int) -> None:
        """Record that an operator skips a message: the group need not handle it."""
        self._skipped.add((group, self._messages[unit, offset]))

    # Sessions.

    def acquired(self, holder: CheckedSession, unit: str, epoch: int) -> None:
        """Record that a session owns a unit from now on, while its lease lasts."""
        holders = self._owners[holder.group, unit]
        holders[holder] = epoch
        if len(holders) > 1:
            self._contested.add((holder.group, unit))

    def released(self, holder: CheckedSession, unit: str, epoch: int) -> None:
        """Record that a session owns a unit no longer."""
        holders = self._owners[holder.group, unit]
        if holders.get(holder) == epoch:
            del holders[holder]
        if len(holders) < 2:
            self._contested.discard((holder.group, unit))

    def owners(self, group: str, unit: str) -> list[CheckedSession]:
        """Return the sessions that own a unit, as far as each knows."""
        return list(self._owners[group, unit])

    def delivered(
        self, holder: CheckedSession, unit: str, epoch: int, offset: int, redelivered: bool
    ) -> None:
        """Check a message that a session delivers to its handler."""
        group = holder.group
        again = ", redelivered" if redelivered else ""
        self._trace(holder, f"delivers {unit}@{offset} of epoch {epoch}{again}")
        before = self._delivered.get((group, unit, offset))
        self._delivered[group, unit, offset] = epoch
        if before is not None and not redelivered and not self.storage.sought(group, before):
            raise self._simulation.violation(
                f"{holder.id} delivers {unit}@{offset} again and does not mark it"
            )
        if self.storage.fenced_at(group, unit) != epoch:
            return  # the session does not know yet that it lost the unit; its commits are refused
        partition = Partition.parse(unit)
        progress = Progress.load(self.storage.table, consumer_name(group), partition)
        if progress.acked(offset):
            raise self._simulation.violation(
                f"{holder.id} delivers {unit}@{offset}, which the ledger holds"
            )
        for parent in self._follows(partition):
            if not (
                self.storage.log.bounds(parent).sealed and self.storage.consumed(group, parent)
            ):
                raise self._simulation.violation(
                    f"{holder.id} delivers {unit}@{offset} while {parent} is not finished"
                )

    def drained(self, holder: CheckedSession, unit: str, in_flight: int) -> None:
        """Check a unit that a session reports as drained: another may get it now."""
        if in_flight:
            raise self._simulation.violation(
                f"{holder.id} reports {unit} as drained with"
                f" {format_amount(in_flight, 'message')} in flight"
            )

    def succeeded(self, holder: CheckedSession, unit: str, offset: int) -> None:
        """Check a message that a handler has handled."""
        self._trace(holder, f"handled {unit}@{offset}")
        self._failing.pop((holder.group, f"{unit}@{offset}"), None)
        message = self._messages[unit, offset]
        self._auditors[holder.group].saw(*message, f"{unit}@{offset}")
        key, number = message
        newest = self._newest[holder.group, key]
        while (holder.group, Numbered(key, newest + 1)) in self._skipped:
            newest += 1
        if self.strict_order and number > newest + 1:
            raise self._simulation.violation(
                f"{holder.id} handled message {number} of key {key} before {newest + 1}"
            )
        self._newest[holder.group, key] = max(newest, number)

    def failed(
        self, holder: CheckedSession, unit: str, offset: int, error: Exception | None
    ) -> None:
        """Record that a handler raised an error, or nacked the message."""
        position = f"{unit}@{offset}"
        self._trace(holder, f"fails on {position}: {'nack' if error is None else repr(error)}")
        failure = HandlerFailure(holder.id, position, error)
        self.failures.append(failure)
        self._failing.setdefault((holder.group, position), []).append(failure)

    def describe_failures(self) -> str:
        """Describe the messages on which handlers failed last; empty if there are none."""
        found = []
        for failures in list(self._failing.values())[:FAILURES_SHOWN]:
            session, position, error = failures[-1]
            times = format_amount(len(failures), "time")
            last = "nack" if error is None else repr(error)
            found.append(f"the handler of {session} failed on {position} {times}, last: {last}")
        if len(self._failing) > len(found):
            found.append(f"handlers failed on {len(self._failing) - len(found)} more")
        return "; ".join(found)

    @property
    def last_error(self) -> Exception | None:
        """The last error of a handler, for a message that none has handled since."""
        errors = [failures[-1].error for failures in self._failing.values()]
        return next((error for error in reversed(errors) if error is not None), None)

    def gave_up(self, holder: CheckedSession, unit: str, offset: int) -> None:
        """Record a message that used up its attempts."""
        self._trace(holder, f"gives up {unit}@{offset}")
        self.given_up.append(f"{unit}@{offset}")

    # Commits.

    def mark_written(self, write: MarkWritten) -> None:
        """Check a write of a mark: it increases, unless a seek or an offset reset wrote it."""
        consumer, unit, before, after, fence = write
        group = consumer.removeprefix(consumer_name(""))
        if fence is not None and fence.startswith((SEEKS, SUBSCRIPTIONS)):
            return
        if after < before:
            raise self._simulation.violation(
                f"the progress of {group} in {unit} falls from {before} to {after}"
            )

    def committed(self, holder: CheckedSession, unit: str, epoch: int) -> None:
        """Check an accepted commit of a session: the session must have the present grant."""
        entry = self.storage.store.get(grant_key(holder.group, unit))
        if entry is None or entry.version != epoch:
            raise self._simulation.violation(
                f"{holder.id} wrote for {unit} under epoch {epoch}, which has ended"
            )

    def check_owners(self) -> None:
        """Check that no two sessions may deliver one unit now, unless a seek came between."""
        for group, unit in self._contested:
            entitled = [
                holder
                for holder, epoch in self._owners[group, unit].items()
                if holder.may_deliver(unit, epoch) and not self.storage.sought(group, epoch)
            ]
            if len(entitled) > 1:
                names = " and ".join(holder.id for holder in entitled)
                raise self._simulation.violation(f"{names} may both deliver {unit}")

    def _follows(self, partition: Partition) -> set[Partition]:
        topic = partition.topic
        entry = self.storage.store.get(TOPICS + topic)
        known = self._definitions.get(topic)
        if entry is None or entry.value is None:
            return set()
        if known is None or known.version != entry.version:
            known = StoredDefinition(decode_definition(entry.value), entry.version)
            self._definitions[topic] = known
        return known.definition.follows(partition)

    def _trace(self, holder: CheckedSession, what: str) -> None:
        self._simulation.record(Mark.NOTE, holder.id, what)
