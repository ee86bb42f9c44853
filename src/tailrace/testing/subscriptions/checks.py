"""The invariants of a simulated subscription, beside those of the group of its workers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from tailrace.backend.table_scan import scan_all
from tailrace.delivery.dead_letters.letter import ERROR
from tailrace.message import Partition
from tailrace.reserved_names import DEAD_LETTER_QUEUE_PREFIX, RETRY_QUEUE_PREFIX
from tailrace.subscription.layout.generation import ChangePhase
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.shard.commit.commit import FOLLOWS, ShardCommit
from tailrace.subscription.shard.commit.counts import counts_key, counts_table, decode_counts
from tailrace.subscription.shard.moved_record import origin_in
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.store.definition import StoredSubscription, find_definition
from tailrace.subscription.store.names import ShardName, subscription_of, worker_group
from tailrace.subscription.store.pause import pause_version
from tailrace.testing.groups.checks import CheckedSession, Checks
from tailrace.testing.groups.storage import SimulatedStorage
from tailrace.testing.simulation import Simulation
from tailrace.testing.subscriptions.request_checks import RequestChecks
from tailrace.testing.subscriptions.reset_checks import ResetChecks
from tailrace.testing.trace import Mark
from tailrace.topic.ledger import Progress, load_units

_QUEUES: Final = (RETRY_QUEUE_PREFIX, DEAD_LETTER_QUEUE_PREFIX)


class SubscriptionChecks:
    """The guarantees of subscriptions, checked for one world.

    `group` are the checks that groups have too: owners, and the order in which the messages of a
    key first succeed.
    """

    def __init__(self, simulation: Simulation, storage: SimulatedStorage, group: Checks) -> None:
        self.group = group
        self.calls: Counter[tuple[str, str]] = Counter()
        """The number of calls of each message, by subscription and position."""
        self.dead: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """The reason why each message of a subscription is in DLQ, by position."""
        self.deaths: Counter[str] = Counter()
        """How often a message was alone in its worker when that ended, by position."""
        self.policies: dict[str, OnDeadLetter] = {}
        self.calls_max: dict[str, int | None] = {}
        """The most calls at a time of each subscription; None if there is no such limit."""
        self.requests = RequestChecks(simulation, storage)
        self.resets = ResetChecks(simulation, storage)
        self._simulation = simulation
        self._storage = storage
        self._queued: set[tuple[str, str]] = set()
        self._marked: defaultdict[str, set[str]] = defaultdict(set)
        self._in_flight: defaultdict[CheckedSession, dict[Turn, str]] = defaultdict(dict)
        self._shards: dict[Turn, tuple[str, int]] = {}

    def appended(self, partition: Partition) -> None:
        """Check a record of RQ or DLQ: a message is in each at most once. Check an audit line."""
        self.requests.appended(partition)
        prefix = next((each for each in _QUEUES if partition.topic.startswith(each)), None)
        if prefix is None:
            return
        headers = self._storage.records[partition][-1].headers or {}
        position = str(origin_in(headers))
        self._trace(partition.topic, f"gets {position}")
        if (partition.topic, position) in self._queued:
            raise self._simulation.violation(f"{position} is in {partition.topic} twice")
        self._queued.add((partition.topic, position))
        if prefix == DEAD_LETTER_QUEUE_PREFIX:
            subscription = partition.topic.removeprefix(prefix)
            self.dead[subscription][position] = headers[ERROR].decode()
            if self.policies[subscription] is OnDeadLetter.CONTINUE:
                self.excuse(subscription, position)

    def excuse(self, subscription: str, position: str) -> None:
        """Record that a message need not be handled: it is a dead letter."""
        origin = Origin.parse(position)
        self.resets.excuse(subscription, origin)
        self.group.skipped(worker_group(subscription), str(origin.partition), origin.offset)

    def beside(self, holder: CheckedSession, turn: Turn, alone: Iterable[Turn]) -> None:
        """Check a message that a worker is about to call: a suspect has its process for itself.
        `alone` are those that have it, by what is stored or about to be."""
        process = _process(holder)
        others = [
            other
            for each, turns in self._in_flight.items()
            if _process(each) == process
            for other in turns
        ]
        if (others and (turn.alone or any(other.alone for other in others))) or any(
            other is not turn for other in alone
        ):
            what = f"{holder.id} calls {turn.known_origin} beside a suspect"
            raise self._simulation.violation(what)

    def called(
        self,
        holder: CheckedSession,
        subscription: str,
        shard: tuple[str, int],
        places: Sequence[tuple[Partition, int]],
        turns: Sequence[Turn],
    ) -> None:
        """Check the messages of a call of a worker: from this shard and epoch, read at these
        places."""
        mine = {each.lane for each in self._in_flight[holder] if isinstance(each.lane, bytes)}
        for turn in turns:
            if turn.lane in mine:
                what = f"{holder.id} calls two messages of {turn.lane!r} at once"
                raise self._simulation.violation(what)
        for place, turn in zip(places, turns, strict=True):
            self._called(holder, subscription, shard, place, turn)

    def _called(
        self,
        holder: CheckedSession,
        subscription: str,
        shard: tuple[str, int],
        place: tuple[Partition, int],
        turn: Turn,
    ) -> None:
        position, (unit, epoch), (partition, offset) = str(turn.known_origin), shard, place
        self.calls[subscription, position] += 1
        alone = ", alone" if turn.alone else ""
        where = f"{partition}@{offset} of epoch {epoch}"
        self._trace(holder.id, f"calls {position}, attempt {turn.attempt}{alone}, from {where}")
        self._in_flight[holder][turn] = position
        if self._storage.fenced_at(holder.group, unit) != epoch:
            return  # the worker does not know yet that it lost the shard; its commits are refused
        units = load_units(self._storage.table, holder.group, f"{unit}/").get(unit, {})
        progress = units.get(partition) or Progress.load(
            self._storage.table, holder.group, partition
        )
        if progress.acked(offset):
            raise self._simulation.violation(
                f"{holder.id} calls {position} from {where}, which the ledger holds"
            )
        if turn.queue is Queue.DLQ:
            self.requests.called(holder, unit, turn)
        counts = decode_counts(self._storage.table.get(*counts_key(subscription, unit)))
        pause = pause_version(self._storage, subscription)
        if pause and counts.quiet >= pause:
            what = f"{holder.id} calls {position} in a pause in which {unit} is quiet"
            raise self._simulation.violation(what)
        self._shards[turn] = shard
        self._check_calls(holder, subscription)

    def _check_calls(self, holder: CheckedSession, subscription: str) -> None:
        """Check the number of calls under way, without those of workers that lost the shard."""
        most = self.calls_max[subscription]
        owned = [
            turn
            for each, turns in self._in_flight.items()
            if each.group == holder.group
            for turn in turns
            if (shard := self._shards.get(turn)) is not None
            and self._storage.fenced_at(holder.group, shard[0]) == shard[1]
        ]
        if most is not None and len(owned) > most:
            what = f"{holder.id} makes {len(owned)} calls under way, and {most} are allowed"
            raise self._simulation.violation(what)

    def ended(self, holder: CheckedSession, turn: Turn) -> None:
        """Record that a call has ended, or that its worker has lost the shard."""
        self._in_flight[holder].pop(turn, None)
        self._shards.pop(turn, None)

    def committed(
        self, holder: CheckedSession, shard: tuple[str, int], commit: ShardCommit
    ) -> None:
        """Check a commit of a shard and epoch: its generation has not ended, and if it says that
        nothing is in flight, that is so."""
        subscription = subscription_of(holder.group)
        assert subscription is not None
        stored = find_definition(self._storage, subscription)
        if stored is not None:
            definition = stored.definition
            ended = ShardName.parse(shard[0]).generation != definition.generation
            if ended or definition.phase is ChangePhase.MOVING:
                what = f"{holder.id} wrote for {shard[0]}, whose generation has ended"
                raise self._simulation.violation(what)
        mine = self._in_flight[holder].items()
        calls = [position for turn, position in mine if self._shards.get(turn) == shard]
        if commit.quiet and calls:
            raise self._simulation.violation(f"{shard[0]} is quiet, and {holder.id} calls {calls}")

    def check_counts(self, stored: StoredSubscription, letters: int) -> None:
        """Check, once everything is consumed, that each message was counted once."""
        streams = [stored.streams(shard) for shard in range(stored.definition.shards)]
        partitions = [partition for each in streams for partition in each.mq]
        inserted = sum(len(self._storage.records.get(each, ())) for each in partitions)
        ended = 0
        for _, value in scan_all(self._storage.table, counts_table(stored.name)):
            counts = decode_counts(value)
            ended += counts.acked + counts.filtered + counts.discarded + counts.passed
        if inserted != ended + letters:
            raise self._simulation.violation(
                f"{stored.name} has {inserted} messages, {ended} are counted, {letters} are dead"
            )

    def died(self, holder: CheckedSession, alone: Iterable[Turn | None]) -> None:
        """Record that a worker has ended, while these messages were called alone, or about to
        be."""
        self.left(holder, (*alone, *self._in_flight.pop(holder, {})))
        self.deaths.update(self._marked.pop(_process(holder), set()))

    def left(self, holder: CheckedSession, alone: Iterable[Turn | None]) -> None:
        """Record that a worker has lost a shard, and what is stored may still say that it calls
        these messages alone."""
        turns = [turn for turn in alone if turn is not None and turn.alone]
        self._marked[_process(holder)].update(str(turn.known_origin) for turn in turns)

    def succeeded(self, holder: CheckedSession, origin: Origin) -> None:
        """Check a message that a handler has handled: all before it succeeded, or are excused."""
        self.group.succeeded(holder, str(origin.partition), origin.offset)
        subscription = subscription_of(holder.group)
        assert subscription is not None
        self.requests.handled(subscription, str(origin))
        self.resets.handled(subscription, origin)

    def failed(self, holder: CheckedSession, origin: Origin, error: Exception) -> None:
        """Record that a handler raised an error."""
        self.group.failed(holder, str(origin.partition), origin.offset, error)

    def attempted_dead(self, subscription: str) -> dict[str, str]:
        """Return the messages that were attempted and are in DLQ, with the last error."""
        dead = self.dead[subscription]
        return {position: error for position, error in dead.items() if error != FOLLOWS}

    def _trace(self, who: str, what: str) -> None:
        self._simulation.record(Mark.NOTE, who, what)


def _process(holder: CheckedSession) -> str:
    return holder.id.partition("/")[0]
