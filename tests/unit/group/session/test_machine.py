"""The machine of a session, driven by hand: no thread, no clock, no backend."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from tailrace.backend.contract import TableKey
from tailrace.delivery.fetched import FetchedBatch, Resolution
from tailrace.group.protocol.events import Drained, Event, Lost, Progressed
from tailrace.group.session.machine import BACKOFF_S, TURN_S, SessionMachine, SessionOptions
from tailrace.group.session.owned_unit import OwnedUnit, UnitStep
from tailrace.group.store.definition import consumer_name
from tailrace.topic.ledger import Progress

SESSION, GROUP = "s", "billing"
ONE, OTHER = "orders/0.0", "orders/0.1"
EPOCH = 5
PREFETCH_BYTES = 100
"""A record has 1 byte here."""


class Driver:
    """Does the I/O of a machine at once, on units of a few records each."""

    def __init__(self, *units: str, records: int = 4, attempts: int = 2) -> None:
        self.notified = 0
        self.records = records
        self.machine: SessionMachine[OwnedUnit] = SessionMachine(
            SESSION,
            GROUP,
            SessionOptions(attempts, 100, PREFETCH_BYTES, 35.0),
            make_unit=OwnedUnit,
            notify=self._notify,
        )
        for unit in units:
            self.machine.install(unit, EPOCH)

    def _notify(self) -> None:
        self.notified += 1

    def unit(self, name: str) -> OwnedUnit:
        return self.machine.scheduler.units[name]

    def visit(self, owned: OwnedUnit, now: float = 0.0) -> list[UnitStep]:
        """Follow the steps of a unit until it delivers or waits."""
        steps = []
        while True:
            steps.append(self.machine.step(owned, now))
            match steps[-1]:
                case UnitStep.LOAD:
                    progress = Progress(consumer_name(GROUP), owned.partition)
                    self.machine.loaded(owned, progress, 0, 0, {})
                case UnitStep.COMMIT:
                    self.commit(owned)
                case UnitStep.READ:
                    self.machine.fetched(owned, self._read(owned))
                case _:
                    return steps

    def begin(self, now: float = 0.0) -> OwnedUnit:
        """Let the unit deliver whose turn it is."""
        self.machine.end_turn()
        owned = self.machine.scheduler.pick()
        assert owned is not None
        assert self.visit(owned, now)[-1] is UnitStep.DELIVER
        assert self.machine.begin_turn(owned, inf, now)
        return owned

    def take(self, owned: OwnedUnit, now: float = 0.0) -> int:
        row = self.machine.take(owned, now)
        assert row is not None
        return row.offset

    def commit(self, owned: OwnedUnit) -> list[Event]:
        commit = self.machine.start_commit(owned)
        assert commit is not None
        return self.machine.committed(owned, commit)

    def _read(self, owned: OwnedUnit) -> FetchedBatch | None:
        assert owned.cursor is not None
        start = owned.cursor.read_from
        offsets = list(range(start, self.records))
        keys: list[bytes | None] = [b"k%d" % (offset % 2) for offset in offsets]
        if not offsets:
            return None
        return FetchedBatch.listed(owned.partition, start, self.records, offsets, keys)


class ObservedProgress(Progress):
    """Progress that calls `after_writes` when the entries of a commit were made."""

    after_writes: Callable[[], None] = staticmethod(lambda: None)

    def writes(self) -> dict[TableKey, bytes | None]:
        entries = super().writes()
        self.after_writes()
        return entries


def test_a_granted_unit_is_loaded_read_and_allowed_for_before_it_delivers() -> None:
    driver = Driver(ONE)
    steps = driver.visit(driver.unit(ONE))
    assert steps == [UnitStep.LOAD, UnitStep.READ, UnitStep.COMMIT, UnitStep.DELIVER]


def test_units_take_turns_and_a_turn_ends_with_its_time() -> None:
    driver = Driver(ONE, OTHER)
    turns = []
    for turn in range(4):
        now = turn * 2 * TURN_S
        owned = driver.begin(now)
        turns.append(owned.name)
        driver.machine.ack(owned, driver.take(owned, now))
        assert driver.machine.take(owned, now + TURN_S) is None
    assert turns == [ONE, OTHER, ONE, OTHER]


def test_a_turn_ends_with_the_lease_even_if_that_ends_first() -> None:
    driver = Driver(ONE)
    owned = driver.begin()
    assert driver.machine.begin_turn(owned, TURN_S / 2, 0.0)
    assert driver.machine.take(owned, TURN_S / 2) is None
    assert driver.take(owned, TURN_S / 4) == 0


def test_a_unit_is_drained_when_its_last_delivery_is_acknowledged_and_durable() -> None:
    driver = Driver(ONE)
    owned = driver.begin()
    offset = driver.take(owned)
    assert driver.machine.drain(ONE, EPOCH) is None
    assert driver.machine.take(owned, 0.0) is None
    assert driver.machine.scheduler.pop_ending(0.0) == []
    assert driver.commit(owned) == []
    driver.machine.ack(owned, offset)
    assert driver.machine.scheduler.pop_ending(0.0) == [owned]
    drained = [Progressed(SESSION, ONE, EPOCH, 1), Drained(SESSION, ONE, EPOCH, 1)]
    assert driver.commit(owned) == drained
    assert driver.commit(owned) == []


def test_a_released_unit_is_drained_although_a_delivery_is_in_flight() -> None:
    driver = Driver(ONE)
    owned = driver.begin()
    driver.take(owned)
    driver.machine.drain(ONE, EPOCH)
    assert driver.machine.scheduler.pop_ending(0.0) == []
    driver.machine.release()
    assert driver.machine.scheduler.pop_ending(0.0) == [owned]
    assert driver.commit(owned) == [Drained(SESSION, ONE, EPOCH, 0)]


def test_an_ack_by_the_delivering_thread_during_a_commit_is_reported_by_the_next_commit() -> None:
    driver = Driver(ONE, records=2)
    owned = driver.unit(ONE)
    progress = ObservedProgress(consumer_name(GROUP), owned.partition)
    driver.machine.loaded(owned, progress, 0, 0, {})
    driver.begin()
    driver.machine.ack(owned, driver.take(owned))
    driver.take(owned)
    driver.machine.inspected(owned, 2, True)
    driver.machine.drain(ONE, EPOCH)
    cursor = owned.cursor
    assert cursor is not None

    def ack_without_the_lock() -> None:
        cursor.acked = cursor.delivered

    progress.after_writes = ack_without_the_lock
    assert driver.commit(owned) == [Progressed(SESSION, ONE, EPOCH, 1)]
    last = [Progressed(SESSION, ONE, EPOCH, 2, True), Drained(SESSION, ONE, EPOCH, 2)]
    assert driver.commit(owned) == last


def test_a_drain_of_a_unit_that_it_does_not_own_is_answered_at_once() -> None:
    driver = Driver(ONE)
    assert driver.machine.drain(ONE, EPOCH + 1) == Drained(SESSION, ONE, EPOCH + 1, 0)
    assert driver.machine.drain(OTHER, EPOCH) == Drained(SESSION, OTHER, EPOCH, 0)


def test_an_ack_counts_for_its_own_unit() -> None:
    driver = Driver(ONE, OTHER)
    one = driver.begin()
    offset = driver.take(one)
    other = driver.begin()
    driver.machine.ack(one, offset)
    assert one.cursor is not None
    assert other.cursor is not None
    assert (one.cursor.mark, other.cursor.mark) == (1, 0)
    offset = driver.take(other)
    driver.machine.ack(other, offset)
    assert driver.machine.pop_unsaved() == [one, other]
    assert (one.cursor.mark, other.cursor.mark) == (1, 1)


def test_a_unit_that_is_read_to_its_end_waits_is_watched_once_and_wakes() -> None:
    driver = Driver(ONE, records=0)
    owned = driver.unit(ONE)
    assert driver.visit(owned)[-1] is UnitStep.WAIT
    assert driver.machine.scheduler.pick() is None
    assert [owned.watch(), owned.watch()] == [0, None]
    driver.records, notified = 3, driver.notified
    driver.machine.wake([owned.partition])
    assert driver.notified > notified
    assert driver.begin() is owned
    assert driver.take(owned) == 0


def test_a_sealed_unit_is_finished_once_all_of_it_is_acknowledged() -> None:
    driver = Driver(ONE, records=1)
    owned = driver.begin()
    driver.machine.inspected(owned, 1, True)
    assert driver.machine.scheduler.pop_ending(0.0) == []
    driver.machine.ack(owned, driver.take(owned))
    assert driver.machine.scheduler.pop_ending(0.0) == [owned]
    assert driver.commit(owned) == [Progressed(SESSION, ONE, EPOCH, 1, True)]
    assert driver.visit(owned)[-1] is UnitStep.WAIT
    assert driver.machine.scheduler.pop_ending(0.0) == []


def test_records_pushed_before_a_unit_was_sealed_are_read_although_it_was_caught_up() -> None:
    driver = Driver(ONE, records=0)
    owned = driver.unit(ONE)
    assert driver.visit(owned)[-1] is UnitStep.WAIT
    driver.records = 1
    driver.machine.inspected(owned, 1, True)
    assert driver.begin() is owned
    assert driver.take(owned) == 0


def test_a_record_that_used_up_its_attempts_is_reported_once_and_other_keys_continue() -> None:
    driver = Driver(ONE, attempts=1)
    owned = driver.begin()
    assert driver.machine.nack(owned, driver.take(owned), 0.0, 0.0) is Resolution.FAILED
    failed = driver.machine.pop_failure()
    assert failed is not None
    assert failed.offset == 0
    assert driver.machine.pop_failure() is None
    assert driver.take(driver.begin()) == 1


def test_after_a_failure_of_the_backend_a_unit_rests_and_is_saved_later() -> None:
    driver = Driver(ONE)
    owned = driver.begin()
    driver.machine.failed(owned, 1.0)
    assert driver.machine.step(owned, 1.0) is UnitStep.WAIT
    assert driver.machine.pop_unsaved() == [owned]
    assert driver.machine.scheduler.due_at == 1.0 + BACKOFF_S
    driver.machine.scheduler.requeue_due(1.0 + BACKOFF_S)
    assert driver.machine.scheduler.pick() is owned
    assert driver.machine.scheduler.due_at == inf
    assert not owned.timers


def test_a_unit_that_is_lost_is_reported_once_and_delivers_no_more() -> None:
    driver = Driver(ONE)
    owned = driver.begin()
    offset = driver.take(owned)
    assert driver.machine.lost(owned) == [Lost(SESSION, ONE, EPOCH)]
    assert driver.machine.lost(owned) == []
    driver.machine.ack(owned, offset)
    assert driver.machine.pop_unsaved() == []
    assert driver.machine.take(owned, 0.0) is None
    assert driver.machine.nack(owned, offset, 0.0, 0.0) is Resolution.NACKED


def test_a_dropped_unit_does_not_come_back_with_a_result_that_arrives_late() -> None:
    driver = Driver(ONE, records=1)
    owned = driver.begin()
    offset = driver.take(owned)
    driver.machine.drain(ONE, EPOCH)
    driver.machine.ack(owned, offset)
    driver.machine.drop(ONE, EPOCH)
    assert not driver.machine.end_turn()
    scheduler = driver.machine.scheduler
    driver.machine.inspected(owned, 5, False)
    assert scheduler.pick() is None
    driver.machine.failed(owned, 1.0)
    assert scheduler.due_at == inf
    assert scheduler.pop_ending(2.0) == []
    assert driver.machine.pop_unsaved() == []


def test_while_memory_is_full_only_a_unit_that_holds_records_has_its_turn() -> None:
    driver = Driver(ONE, OTHER, records=PREFETCH_BYTES)
    one, other = driver.begin(), driver.unit(OTHER)
    driver.machine.end_turn()
    assert driver.machine.scheduler.pick() is one
    assert driver.visit(other)[-1] is UnitStep.WAIT_FOR_MEMORY
    assert driver.begin() is one
    driver.machine.ack(one, driver.take(one))
    assert driver.begin() is other
