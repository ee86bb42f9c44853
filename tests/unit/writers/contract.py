"""The contract of every writer that writes exactly once: tests to inherit for each writer.

`Driver` does what a pipeline's driver does with a writer: open, skip the applied offsets, write,
finish, publish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from tailrace.backend.contract import raise_fence
from tailrace.errors import Fenced
from tailrace.hub.hub import Hub
from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.transform.rows import Rows
from tailrace.pipeline.writer import Attempt, RefusedRecord, Staged, Writer, log_identity
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
    """A minimal driver of a writer. Creating one raises the writer's fence, as a start does."""

    def __init__(self, hub: Hub, writer: Writer) -> None:
        self.hub = hub
        self.writer = writer
        self.number = 0
        self.epoch = raise_fence(hub.backend.store, FENCE).epoch
        writer.create_sink()

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
        """Write and finish without publishing, like a driver that is killed before it publishes."""
        session = self.writer.open(self.attempt(start, end, plan))
        held = session.applied()
        left = [n for n in range(start, end) if not any(a <= n < b for a, b in held)]
        assert not session.write(rows_of(map(record, left)), Offsets(start, end))
        staged = self.unified(session.finish())
        session.close()
        return staged

    def deliver(self, start: int, end: int, plan: str = "plan-1") -> None:
        self.publish(self.stage(start, end, plan))

    def unified(self, staged: Sequence[Staged]) -> Sequence[Staged]:
        """Return what is staged in the form in which it is published."""
        kept = self.writer.unify(WRITER, staged)
        assert len(kept) == len(staged)
        return [each for each in kept if each is not None]

    def publish(self, staged: Sequence[Staged]) -> None:
        self.writer.publish(WRITER, self.unified(staged))

    def write(self, given: Rows, start: int, end: int) -> Sequence[RefusedRecord]:
        """Deliver rows that may be refused."""
        session = self.writer.open(self.attempt(start, end))
        failures = session.write(given, Offsets(start, end))
        self.publish(session.finish())
        session.close()
        return failures

    def applied(self) -> list[int]:
        found = self.writer.applied(WRITER, STREAM, self.hub)
        assert found is not None
        return [offset for first, after in found for offset in range(first, after)]


def ids(seen: Seen) -> list[int]:
    return sorted(each["id"] for each in seen())


class WriterContract:
    """Tests for a writer. A subclass provides the fixtures `writer` and `seen`."""

    @pytest.fixture
    def hub(self) -> Hub:
        return Hub.from_backend(MemoryBackend())

    @pytest.fixture
    def driver(self, hub: Hub, writer: Writer) -> Driver:
        return Driver(hub, writer)

    def test_delivered_rows_are_seen_once(self, driver: Driver, seen: Seen) -> None:
        driver.deliver(0, 10)
        driver.deliver(10, 25, "plan-2")
        assert ids(seen) == list(range(25))

    def test_the_sink_reports_its_applied_offsets(self, driver: Driver) -> None:
        assert driver.applied() == []
        driver.deliver(0, 10)
        driver.deliver(20, 25)
        assert driver.applied() == [*range(10), *range(20, 25)]

    def test_another_stream_or_writer_has_its_own_applied_offsets(self, driver: Driver) -> None:
        driver.deliver(0, 10)
        other = STREAM.replace("0.0", "0.1")
        assert list(driver.writer.applied(WRITER, other, driver.hub) or ()) == []
        assert list(driver.writer.applied(f"{WRITER}-2", STREAM, driver.hub) or ()) == []

    def test_the_sink_names_the_logs_of_its_rows(self, driver: Driver) -> None:
        writer, hub = driver.writer, driver.hub
        assert writer.applied_logs(WRITER, hub) == frozenset()
        driver.stage(0, 10)
        driver.deliver(0, 10, "plan-2")
        other = "fedcba9876543210"
        session = writer.open(driver.attempt(0, 10, "plan-3", f"{other}/0.0"))
        session.write(rows(0, 10), Offsets(0, 10))
        driver.publish(session.finish())
        session.close()
        assert writer.applied_logs(WRITER, hub) == {log_identity(STREAM), other}
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

    def test_an_abandoned_plan_leaves_no_duplicates(self, driver: Driver, seen: Seen) -> None:
        driver.stage(0, 10)
        restarted = Driver(driver.hub, driver.writer)
        restarted.writer.begin(WRITER, None)
        restarted.deliver(0, 10, "plan-2")
        assert ids(seen) == list(range(10))

    def test_an_attempt_that_dies_leaves_no_duplicates(self, driver: Driver, seen: Seen) -> None:
        dying = driver.writer.open(driver.attempt(0, 10))
        dying.write(rows(0, 5), Offsets(0, 5))
        driver.deliver(0, 10)
        dying.close()
        assert ids(seen) == list(range(10))

    def test_an_attempt_that_ends_late_removes_nothing_of_a_newer_one(
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
            older.finish()  # The driver ignores what a fenced attempt staged.
        except Fenced:
            pass
        held = [n for first, after in newer.applied() for n in range(first, after)]
        left = [n for n in range(10) if n not in held]
        newer.write(rows_of(map(record, left)), Offsets(0, 10))
        driver.publish(newer.finish())
        assert ids(seen) == list(range(10))

    def test_a_rewound_writer_gets_its_rows_again(self, driver: Driver) -> None:
        driver.deliver(0, 10)
        driver.deliver(10, 20, "plan-2")
        driver.writer.forget(WRITER, STREAM, 10, driver.hub)
        assert driver.applied() == list(range(10))
        driver.deliver(10, 20, "plan-3")
        assert driver.applied() == list(range(20))

    def test_offsets_without_rows_are_accepted(self, driver: Driver, seen: Seen) -> None:
        assert not driver.write(rows(0, 0), 0, 10)
        assert seen() == []

    def test_its_options_can_be_sent_to_another_process(self, writer: Writer) -> None:
        kind = type(writer)
        assert msgspec.convert(msgspec.to_builtins(writer), kind) == writer

    def test_the_check_describes_the_sink(self, writer: Writer) -> None:
        assert writer.check()
