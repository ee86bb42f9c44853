"""What must hold in a simulated group, looked at when it could break.

Most of it is judged at the instant at which something happens, against what truly is stored; only
units that two sessions believe to own are looked at after every step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Final, NamedTuple, Protocol

from tailrace.amount import format_amount
from tailrace.group.definition import consumer_name, grant_key
from tailrace.group.seeking import SEEKS
from tailrace.message import Partition
from tailrace.testing.auditor import Audit, Auditor
from tailrace.testing.groups.ground import Ground, Moved
from tailrace.testing.simulation import Simulation
from tailrace.testing.trace import Mark
from tailrace.topic.composite import TOPICS, decode_definition
from tailrace.topic.ledger import Progress
from tailrace.topic.view import Stored

FAILURES_SHOWN: Final = 3
"""On how many messages a violation says that handlers failed."""


class Holder(Protocol):
    """A session as the checks see it."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def group(self) -> str:
        """Its group."""

    def may_hand_out(self, unit: str, epoch: int) -> bool:
        """Whether it would hand out of this unit now, by its own clock."""


class Numbered(NamedTuple):
    """A message as checks know it: the `number`-th of its key in its topic, from 1 on."""

    key: Hashable
    number: int


class Failure(NamedTuple):
    """A delivery whose handler raised this error; None where it gave the message back."""

    session: str
    position: str
    error: Exception | None


class Checks:
    """Everything that is promised of groups, for one world.

    `strict_order` is off once a group was sent forward: then messages are missing that were passed
    over.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.ground: Ground
        self.strict_order = True
        self.failures: list[Failure] = []
        self._failing: dict[tuple[str, str], list[Failure]] = {}
        """By group and position: the failures of messages that no handler has done since."""
        self.given_up: list[str] = []
        """Positions of messages that used up their attempts."""
        self._simulation = simulation
        self._messages: dict[tuple[str, int], Numbered] = {}
        self._numbers: defaultdict[Hashable, int] = defaultdict(int)
        self._auditors: defaultdict[str, Auditor] = defaultdict(Auditor)
        self._told: list[tuple[Numbered, str]] = []
        self._newest: defaultdict[tuple[str, Hashable], int] = defaultdict(int)
        self._passed: set[tuple[str, Numbered]] = set()
        self._handed: dict[tuple[str, str, int], int] = {}
        """Under which epoch a message was last handed out."""
        self._definitions: dict[str, Stored] = {}
        self._holders: defaultdict[tuple[str, str], dict[Holder, int]] = defaultdict(dict)
        self._contested: set[tuple[str, str]] = set()
        simulation.always(self.nobody_shares_a_unit)
        simulation.remark(self.what_handlers_could_not_do)

    # What was pushed.

    def pushed(self, topic: str, key: str | None, partition: Partition, offset: int) -> None:
        """A message was stored. One without a key has an order with none."""
        position = f"{partition}@{offset}"
        whose = (topic, position if key is None else key)
        self._numbers[whose] += 1
        message = Numbered(whose, self._numbers[whose])
        self._messages[str(partition), offset] = message
        self._told.append((message, position))

    def audit(self, group: str, topics: set[str]) -> Audit:
        """What a group's sessions handled, against all that was pushed to these topics."""
        auditor = self._auditors[group]
        for message, position in self._told:
            if position.partition("/")[0] in topics and (group, message) not in self._passed:
                auditor.told(*message, position)
        return auditor.audit()

    def passed_over(self, group: str, unit: str, offset: int) -> None:
        """An operator passes over a message: nobody of the group has to do it any more."""
        self._passed.add((group, self._messages[unit, offset]))

    # What sessions do.

    def holds(self, holder: Holder, unit: str, epoch: int) -> None:
        """A session may hand out of a unit from now on, as long as its right lasts."""
        holders = self._holders[holder.group, unit]
        holders[holder] = epoch
        if len(holders) > 1:
            self._contested.add((holder.group, unit))

    def holds_no_more(self, holder: Holder, unit: str, epoch: int) -> None:
        """A session has forgotten a unit."""
        holders = self._holders[holder.group, unit]
        if holders.get(holder) == epoch:
            del holders[holder]
        if len(holders) < 2:
            self._contested.discard((holder.group, unit))

    def holders(self, group: str, unit: str) -> list[Holder]:
        """The sessions that believe to own a unit."""
        return list(self._holders[group, unit])

    def handed_out(
        self, holder: Holder, unit: str, epoch: int, offset: int, redelivered: bool
    ) -> None:
        """A session hands a message to its handler."""
        group = holder.group
        again = " again" if redelivered else ""
        self._note(holder, f"hands out {unit}@{offset} of epoch {epoch}{again}")
        before = self._handed.get((group, unit, offset))
        self._handed[group, unit, offset] = epoch
        if before is not None and not redelivered and not self.ground.sought(group, before):
            raise self._simulation.violation(
                f"{holder.id} hands out {unit}@{offset} again without saying so"
            )
        if self.ground.fenced_at(group, unit) != epoch:
            return  # it has not heard yet, and what it does will not count
        partition = Partition.parse(unit)
        progress = Progress.load(self.ground.table, consumer_name(group), partition)
        if progress.acked(offset):
            raise self._simulation.violation(
                f"{holder.id} hands out {unit}@{offset}, which the ledger holds"
            )
        for parent in self._follows(partition):
            if not (self.ground.log.bounds(parent).sealed and self.ground.consumed(group, parent)):
                raise self._simulation.violation(
                    f"{holder.id} hands out {unit}@{offset} while {parent} is not finished"
                )

    def succeeded(self, holder: Holder, unit: str, offset: int) -> None:
        """A handler is done with a message."""
        self._note(holder, f"has done {unit}@{offset}")
        self._failing.pop((holder.group, f"{unit}@{offset}"), None)
        message = self._messages[unit, offset]
        self._auditors[holder.group].saw(*message, f"{unit}@{offset}")
        key, number = message
        newest = self._newest[holder.group, key]
        while (holder.group, Numbered(key, newest + 1)) in self._passed:
            newest += 1
        if self.strict_order and number > newest + 1:
            raise self._simulation.violation(
                f"{holder.id} has done message {number} of key {key} before {newest + 1}"
            )
        self._newest[holder.group, key] = max(newest, number)

    def failed(self, holder: Holder, unit: str, offset: int, error: Exception | None) -> None:
        """A handler raised an error, or gave the message back."""
        position = f"{unit}@{offset}"
        self._note(holder, f"fails on {position}: {'nack' if error is None else repr(error)}")
        failure = Failure(holder.id, position, error)
        self.failures.append(failure)
        self._failing.setdefault((holder.group, position), []).append(failure)

    def what_handlers_could_not_do(self) -> str:
        """In words, the messages on which handlers failed last; empty where there are none."""
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
        """What a handler raised last of a message that none has done since."""
        errors = [failures[-1].error for failures in self._failing.values()]
        return next((error for error in reversed(errors) if error is not None), None)

    def gave_up(self, holder: Holder, unit: str, offset: int) -> None:
        """A message has used up its attempts."""
        self._note(holder, f"gives up {unit}@{offset}")
        self.given_up.append(f"{unit}@{offset}")

    # What the store says.

    def moved(self, move: Moved) -> None:
        """A mark was written: by the owner of the unit and upwards, or by a seek."""
        consumer, unit, before, after, fence = move
        group = consumer.removeprefix(consumer_name(""))
        if fence is not None and fence.startswith(SEEKS):
            return
        if after < before:
            raise self._simulation.violation(
                f"the progress of {group} in {unit} falls from {before} to {after}"
            )

    def owned(self, holder: Holder, unit: str, epoch: int) -> None:
        """A session's write for a unit was accepted: it must be the one that was granted it."""
        entry = self.ground.store.get(grant_key(holder.group, unit))
        if entry is None or entry.version != epoch:
            raise self._simulation.violation(
                f"{holder.id} wrote for {unit} under epoch {epoch}, which is over"
            )

    def nobody_shares_a_unit(self) -> None:
        """No two sessions may hand out of one unit at one instant, unless a seek came between."""
        for group, unit in self._contested:
            entitled = [
                holder
                for holder, epoch in self._holders[group, unit].items()
                if holder.may_hand_out(unit, epoch) and not self.ground.sought(group, epoch)
            ]
            if len(entitled) > 1:
                names = " and ".join(holder.id for holder in entitled)
                raise self._simulation.violation(f"{names} may both hand out of {unit}")

    def _follows(self, partition: Partition) -> set[Partition]:
        topic = partition.topic
        entry = self.ground.store.get(TOPICS + topic)
        known = self._definitions.get(topic)
        if entry is None or entry.value is None:
            return set()
        if known is None or known.version != entry.version:
            known = Stored(decode_definition(entry.value), entry.version)
            self._definitions[topic] = known
        return known.definition.follows(partition)

    def _note(self, holder: Holder, what: str) -> None:
        self._simulation.note(Mark.NOTE, holder.id, what)
