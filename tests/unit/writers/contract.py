"""What every writer that is exactly once must hold, written once and inherited for each.

`deliver` does what a driver does: open, leave out what is applied, write, finish, publish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from tailrace.backend.contract import raise_fence
from tailrace.errors import Fenced
from tailrace.hub import Hub
from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.rows import Rows
from tailrace.pipeline.writer import Attempt, Failure, Staged, Writer, log_of
from tailrace.testing import MemoryBackend

WRITER = "lake/out"
FENCE = "writer/lake/out"
STREAM = "0123456789abcdef/0.0"
TIME_MS = 1_767_225_600_000

Seen = Callable[[], list[dict[str, Any]]]
"""The documents that readers of the sink see now."""


def document(offset: int) -> dict[str, Any]:
    return {"id": offset, "customer": f"c{offset % 7}"}


def record(
    offset: int,
    value: dict[str, Any] | bytes | None = None,
    *,
    op: Op = Op.INSERT,
    mode: Mode = Mode.SYNC,
    namespace: str = "orders",
    headers: dict[str, bytes] | None = None,
) -> Record:
    given = document(offset) if value is None else value
    data = given if isinstance(given, bytes) else msgspec.json.encode(given)
    return Record(offset, TIME_MS + offset, mode, op, namespace.encode(), headers, data)


def rows_of(records: Iterable[Record]) -> Rows:
    return Rows(from_records(list(records)))


def rows(start: int, end: int) -> Rows:
    return rows_of(map(record, range(start, end)))


class Driver:
    """The part of a driver that writers see. Each start raises the writer's fence."""

    def __init__(self, hub: Hub, writer: Writer) -> None:
        self.hub = hub
        self.writer = writer
        self.number = 0
        self.epoch = raise_fence(hub.backend.store, FENCE).epoch

    def attempt(self, start: int, end: int, plan: str = "plan-1", stream: str = STREAM) -> Attempt:
        self.number += 1
        return Attempt(
            writer=WRITER,
            stream=stream,
            plan=plan,
            offsets=Offsets(start, end),
            epoch=self.epoch,
            number=self.number,
            fence=FENCE,
            open_hub=lambda: self.hub,
        )

    def stage(self, start: int, end: int, plan: str = "plan-1") -> Sequence[Staged]:
        """All but to publish: what a driver has that is killed then."""
        session = self.writer.open(self.attempt(start, end, plan))
        held = session.applied()
        left = [n for n in range(start, end) if not any(a <= n < b for a, b in held)]
        assert not session.write(rows_of(map(record, left)), Offsets(start, end))
        staged = session.finish()
        session.close()
        return staged

    def deliver(self, start: int, end: int, plan: str = "plan-1") -> None:
        self.writer.publish(WRITER, self.stage(start, end, plan))

    def write(self, given: Rows, start: int, end: int) -> Sequence[Failure]:
        """Deliver rows that may be refused."""
        session = self.writer.open(self.attempt(start, end))
        failures = session.write(given, Offsets(start, end))
        self.writer.publish(WRITER, session.finish())
        session.close()
        return failures

    def applied(self) -> list[int]:
        found = self.writer.applied(WRITER, STREAM, self.hub)
        assert found is not None
        return [offset for first, after in found for offset in range(first, after)]


def ids(seen: Seen) -> list[int]:
    return sorted(each["id"] for each in seen())


class WriterContract:
    """Inherit, and give the fixtures `writer` and `seen`."""

    @pytest.fixture
    def hub(self) -> Hub:
        return Hub.from_backend(MemoryBackend())

    @pytest.fixture
    def driver(self, hub: Hub, writer: Writer) -> Driver:
        return Driver(hub, writer)

    def test_what_is_delivered_is_seen_once(self, driver: Driver, seen: Seen) -> None:
        driver.deliver(0, 10)
        driver.deliver(10, 25, "plan-2")
        assert ids(seen) == list(range(25))

    def test_the_sink_says_what_it_has(self, driver: Driver) -> None:
        assert driver.applied() == []
        driver.deliver(0, 10)
        driver.deliver(20, 25)
        assert driver.applied() == [*range(10), *range(20, 25)]

    def test_another_stream_or_writer_is_not_taken_for_it(self, driver: Driver) -> None:
        driver.deliver(0, 10)
        other = STREAM.replace("0.0", "0.1")
        assert list(driver.writer.applied(WRITER, other, driver.hub) or ()) == []
        assert list(driver.writer.applied(f"{WRITER}-2", STREAM, driver.hub) or ()) == []

    def test_the_sink_names_the_logs_whose_rows_it_has(self, driver: Driver) -> None:
        writer, hub = driver.writer, driver.hub
        assert writer.applied_logs(WRITER, hub) == frozenset()
        driver.stage(0, 10)
        driver.deliver(0, 10, "plan-2")
        other = "fedcba9876543210"
        session = writer.open(driver.attempt(0, 10, "plan-3", f"{other}/0.0"))
        session.write(rows(0, 10), Offsets(0, 10))
        writer.publish(WRITER, session.finish())
        session.close()
        assert writer.applied_logs(WRITER, hub) == {log_of(STREAM), other}
        for name in (f"{WRITER}-2", "lake/ou", "lake/o.t"):
            assert writer.applied_logs(name, hub) == frozenset()

    def test_publishing_again_changes_nothing(self, driver: Driver, seen: Seen) -> None:
        staged = driver.stage(0, 10)
        driver.writer.publish(WRITER, staged)
        driver.writer.publish(WRITER, staged)
        assert ids(seen) == list(range(10))

    def test_a_kill_before_publishing_loses_nothing(self, driver: Driver, seen: Seen) -> None:
        staged = driver.stage(0, 10)
        restarted = Driver(driver.hub, driver.writer)
        restarted.writer.begin(WRITER, "plan-1")
        restarted.writer.publish(WRITER, staged)
        restarted.deliver(10, 20, "plan-2")
        assert ids(seen) == list(range(20))

    def test_a_plan_that_was_given_up_leaves_nothing_twice(
        self, driver: Driver, seen: Seen
    ) -> None:
        driver.stage(0, 10)
        restarted = Driver(driver.hub, driver.writer)
        restarted.writer.begin(WRITER, None)
        restarted.deliver(0, 10, "plan-2")
        assert ids(seen) == list(range(10))

    def test_an_attempt_that_dies_leaves_nothing_twice(self, driver: Driver, seen: Seen) -> None:
        dying = driver.writer.open(driver.attempt(0, 10))
        dying.write(rows(0, 5), Offsets(0, 5))
        driver.deliver(0, 10)
        dying.close()
        assert ids(seen) == list(range(10))

    def test_an_attempt_that_ends_late_takes_nothing_from_a_newer_one(
        self, driver: Driver, seen: Seen
    ) -> None:
        late = driver.writer.open(driver.attempt(0, 10))
        late.write(rows(0, 5), Offsets(0, 5))
        staged = driver.stage(0, 10)
        late.close()
        driver.writer.publish(WRITER, staged)
        assert ids(seen) == list(range(10))

    def test_an_attempt_that_was_overtaken_can_add_nothing(
        self, driver: Driver, seen: Seen
    ) -> None:
        older = driver.writer.open(driver.attempt(0, 10))
        older.write(rows(0, 4), Offsets(0, 4))
        newer = driver.writer.open(driver.attempt(0, 10))
        try:
            older.write(rows(4, 10), Offsets(4, 10))
            older.finish()  # What it staged the driver does not want any more.
        except Fenced:
            pass
        held = [n for first, after in newer.applied() for n in range(first, after)]
        left = [n for n in range(10) if n not in held]
        newer.write(rows_of(map(record, left)), Offsets(0, 10))
        driver.writer.publish(WRITER, newer.finish())
        assert ids(seen) == list(range(10))

    def test_a_writer_that_was_rewound_is_given_it_again(self, driver: Driver) -> None:
        driver.deliver(0, 10)
        driver.deliver(10, 20, "plan-2")
        driver.writer.forget(WRITER, STREAM, 10, driver.hub)
        assert driver.applied() == list(range(10))
        driver.deliver(10, 20, "plan-3")
        assert driver.applied() == list(range(20))

    def test_offsets_of_which_nothing_is_left_are_fine(self, driver: Driver, seen: Seen) -> None:
        assert not driver.write(rows(0, 0), 0, 10)
        assert seen() == []

    def test_its_options_are_carried_anywhere(self, writer: Writer) -> None:
        kind = type(writer)
        assert msgspec.convert(msgspec.to_builtins(writer), kind) == writer

    def test_a_look_beforehand_says_something(self, writer: Writer) -> None:
        assert writer.check()
