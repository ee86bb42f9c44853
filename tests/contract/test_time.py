"""Finding records by time, and counting them: sure whatever the clocks of producers were."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tailrace.backend.capabilities import Compacts, HasSegments
from tailrace.backend.contract import Backend, Log, OffsetSpan, TimeBounds, Transaction
from tailrace.backend.embedded import EmbeddedBackend, folding, writer
from tailrace.backend.embedded.read_only import ReadOnlyBackend
from tailrace.errors import UnknownTopic
from tailrace.log.columns import encode
from tailrace.log.record import Record
from tailrace.message import Partition, Range
from tailrace.testing import UnreliableBackend
from tests.support.backends import KINDS, open_backend
from tests.support.records import P0, P1, append, columns, commit, create, read, record

FOLDED = "embedded-folded"
HOUR_MS = 3_600_000
NOW_MS = 1_495_000_000_000
NOTHING = Partition("nothing", 0, 0)


@contextmanager
def opened(kind: str, directory: Path) -> Iterator[Backend]:
    """A backend of a kind; `FOLDED` has several segments, and few entries in its database."""
    if kind != FOLDED:
        with closing(open_backend(kind, directory)) as backend:
            yield backend
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "FOLD_ABOVE", 4)
        patch.setattr(folding, "FOLD_COUNT", 3)
        with closing(EmbeddedBackend.open(directory, sync="none", segment_bytes=400)) as embedded:
            yield embedded


@pytest.fixture(params=[*KINDS, FOLDED])
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind in turn."""
    return str(request.param)


@pytest.fixture
def backend(kind: str, tmp_path: Path) -> Iterator[Backend]:
    """Each backend in turn, empty."""
    with opened(kind, tmp_path / "hub") as found:
        yield found


@contextmanager
def every_log(backend: Backend) -> Iterator[list[Log]]:
    """The log of a backend, of a process that opened it read-only, and of a simulated process."""
    logs: list[Log] = [backend.log, UnreliableBackend(backend, Random(0)).log]
    if not isinstance(backend, EmbeddedBackend):
        yield logs
        return
    with closing(ReadOnlyBackend.open(backend.name)) as reader:
        yield [*logs, reader.log]


def between(backend: Backend, start_ms: int, end_ms: int) -> OffsetSpan:
    """The span that every log of the backend returns."""
    with every_log(backend) as logs:
        spans = {log.offsets_between(P0, start_ms, end_ms) for log in logs}
    (span,) = spans
    return span


def has_folded(backend: Backend) -> bool:
    """True if a part of the entries of P0 is in an index file."""
    log = backend.log
    return isinstance(log, HasSegments) and any(info.index_bytes for info in log.segments(P0))


def append_at(backend: Backend, *times_ms: int, key: bytes | None = None) -> Range:
    """Append one batch of records with these timestamps."""
    rows = tuple(record(b"v", key, timestamp=time_ms) for time_ms in times_ms)
    (landed,) = commit(backend, Transaction(((P0, rows),)))
    return landed


def span_of(*batches: Range) -> OffsetSpan:
    return OffsetSpan(batches[0].start, batches[-1].end)


def matches(rows: Sequence[Record], start_ms: int, end_ms: int) -> list[int]:
    return [row.offset for row in rows if start_ms <= row.timestamp < end_ms]


def check_sure(backend: Backend, partition: Partition = P0) -> None:
    """Check spans of every range between the timestamps that there are, against the records."""
    rows = read(backend, partition)
    end = backend.log.bounds(partition).end
    times = sorted({row.timestamp + step for row in rows for step in (-1, 0, 1)})
    pairs = [(a, b) for a in times for b in times if a <= b]
    for start_ms, end_ms in Random(1).sample(pairs, min(len(pairs), 300)):
        span = backend.log.offsets_between(partition, start_ms, end_ms)
        assert 0 <= span.start <= span.end <= end
        assert all(span.start <= found < span.end for found in matches(rows, start_ms, end_ms))


def check_amounts(backend: Backend) -> None:
    """Check the counts of all logs between any two offsets against the records."""
    offsets = [row.offset for row in read(backend, P0)]
    end = backend.log.bounds(P0).end
    pairs = [(a, b) for a in range(end + 2) for b in range(a, end + 2)]
    with every_log(backend) as logs:
        for log in logs:
            assert log.amount(P0).records == len(offsets)
            for start, stop in Random(2).sample(pairs, min(len(pairs), 200)):
                expected = sum(start <= offset < stop for offset in offsets)
                assert log.amount(P0, start, stop).records == expected, (start, stop)


def test_an_empty_partition_has_no_offsets_of_any_time_and_no_times(backend: Backend) -> None:
    create(backend)
    span = between(backend, 0, 2 * NOW_MS)
    assert span.start == span.end
    with every_log(backend) as logs:
        assert [log.time_bounds(P0) for log in logs] == [None] * len(logs)


def test_a_partition_that_was_never_created_has_no_times(backend: Backend) -> None:
    create(backend)
    with every_log(backend) as logs:
        for log in logs:
            with pytest.raises(UnknownTopic):
                log.offsets_between(NOTHING, 0, 1)
            with pytest.raises(UnknownTopic):
                log.offsets_between(NOTHING, 1, 0)
            with pytest.raises(UnknownTopic):
                log.time_bounds(NOTHING)


def test_ranges_begin_and_end_at_batches(backend: Backend) -> None:
    create(backend)
    first, second, third = (append_at(backend, t, t + 5) for t in (100, 200, 300))
    assert between(backend, 100, 306) == span_of(first, second, third)
    assert between(backend, 0, 100 + 1) == span_of(first)
    assert between(backend, 105, 106) == span_of(first)
    assert between(backend, 105, 200) == span_of(first)
    assert between(backend, 105, 201) == span_of(first, second)
    assert between(backend, 106, 300) == span_of(second)
    assert between(backend, 205, 301) == span_of(second, third)
    assert between(backend, 305, 306) == span_of(third)


@pytest.mark.parametrize(
    ("start_ms", "end_ms"),
    [(0, 100), (106, 200), (306, 10**12), (200, 200), (202, 202), (306, 100), (10**13, 0)],
    ids=["before", "between", "after", "empty", "empty within a batch", "reversed", "far reversed"],
)
def test_a_range_without_a_batch_is_empty(backend: Backend, start_ms: int, end_ms: int) -> None:
    create(backend)
    for time_ms in (100, 200, 300):
        append_at(backend, time_ms, time_ms + 5)
    span = between(backend, start_ms, end_ms)
    assert span.start == span.end


def test_times_of_a_partition_are_the_least_and_the_greatest(backend: Backend) -> None:
    create(backend)
    for times in ((500, 300, 400), (350, 900, 310), (600, 700)):
        append_at(backend, *times)
    with every_log(backend) as logs:
        assert {log.time_bounds(P0) for log in logs} == {TimeBounds(300, 900)}
        assert {log.time_bounds(P1) for log in logs} == {None}


@pytest.mark.parametrize("form", [tuple, columns, lambda rows: encode(tuple(rows))])
@pytest.mark.parametrize("count", [3, 1000])
def test_unsorted_timestamps_within_a_batch_are_found(
    backend: Backend, form: type[tuple[Record, ...]], count: int
) -> None:
    create(backend)
    append_at(backend, 5000)
    times = [1000] * (count - 2)
    rows = [record(b"%d" % n, timestamp=t) for n, t in enumerate([1000, *times, 1000])]
    rows[1] = rows[1]._replace(timestamp=7)
    rows[-2] = rows[-2]._replace(timestamp=9000 if count > 3 else 7)
    (landed,) = commit(backend, Transaction(((P0, form(rows)),)))
    append_at(backend, 5000)
    assert between(backend, 7, 8) == span_of(landed)
    if count > 3:
        assert between(backend, 9000, 9001) == span_of(landed)
    check_sure(backend)


def test_producers_whose_clocks_are_an_hour_apart_lose_nothing(backend: Backend, kind: str) -> None:
    create(backend)
    late, right = [], []
    for minute in range(12):
        time_ms = NOW_MS + minute * 60_000
        right.append(append_at(backend, time_ms, time_ms + 1))
        late.append(append_at(backend, time_ms - HOUR_MS, time_ms - HOUR_MS + 1))
    assert between(backend, NOW_MS - HOUR_MS, NOW_MS - HOUR_MS + 60_000) == span_of(late[0])
    assert between(backend, NOW_MS - HOUR_MS, NOW_MS) == span_of(*late)
    assert between(backend, NOW_MS, NOW_MS + HOUR_MS) == span_of(*right)
    eleventh = NOW_MS + 11 * 60_000
    assert between(backend, eleventh, eleventh + 1) == span_of(right[11])
    assert between(backend, eleventh - HOUR_MS, eleventh) == span_of(right[0], late[11])
    assert has_folded(backend) == (kind == FOLDED)
    check_sure(backend)


def test_compacted_segments_are_searched(backend: Backend, kind: str) -> None:
    create(backend)
    chance = Random(3)
    for _ in range(60):
        times = [chance.randrange(1000) for _ in range(chance.choice((1, 1, 2, 5)))]
        append_at(backend, *times, key=b"%d" % chance.randrange(4))
    end = backend.log.bounds(P0).end
    before = len(read(backend, P0))
    if isinstance(backend, Compacts):
        rewritten = backend.compact(P0, lambda: end).rewritten
        assert (rewritten > 0) == (len(read(backend, P0)) < before)
    assert has_folded(backend) == (kind in (FOLDED, "embedded-tiny"))
    check_sure(backend)
    check_amounts(backend)
    times = [row.timestamp for row in read(backend, P0)]
    assert backend.log.time_bounds(P0) == (min(times), max(times))
    for time_ms in (min(times), max(times)):
        span = between(backend, time_ms, time_ms + 1)
        assert set(matches(read(backend, P0, *span), time_ms, time_ms + 1))


def test_offsets_outside_the_bounds_count_nothing(backend: Backend) -> None:
    create(backend)
    append(backend, P0, b"a", b"b", b"c")
    end = backend.log.bounds(P0).end
    with every_log(backend) as logs:
        for log in logs:
            assert log.amount(P0, end) == (0, 0)
            assert log.amount(P0, end + 5) == (0, 0)
            assert log.amount(P0, end + 5, end + 9) == (0, 0)
            assert log.amount(P0, 0, end + 9).records == 3
            assert log.amount(P0, 2, 1) == (0, 0)


times_ms = st.integers(0, 40)
batch_times = st.lists(
    st.lists(times_ms, min_size=1, max_size=1) | st.lists(times_ms, min_size=1, max_size=6),
    max_size=25,
)


@pytest.mark.parametrize("kind", ["memory-gaps", "embedded-none", FOLDED])
@settings(max_examples=25)
@given(batches=batch_times, ranges=st.lists(st.tuples(times_ms, times_ms), min_size=1, max_size=8))
def test_spans_and_counts_agree_with_a_list_of_records(
    kind: str, batches: list[list[int]], ranges: list[tuple[int, int]]
) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="tailrace-contract-") as scratch,
        opened(kind, Path(scratch) / "hub") as backend,
    ):
        create(backend)
        landed = [(append_at(backend, *times), times) for times in batches]
        for start_ms, end_ms in ranges:
            span = backend.log.offsets_between(P0, start_ms, end_ms)
            found = [
                each
                for each, times in landed
                if start_ms < end_ms and min(times) < end_ms and max(times) >= start_ms
            ]
            held = [
                each.start + index
                for each, times in landed
                for index, time_ms in enumerate(times)
                if start_ms <= time_ms < end_ms
            ]
            assert all(span.start <= offset < span.end for offset in held)
            assert span == span_of(*found) if found else span.start == span.end
        if batches:
            flat = [time_ms for times in batches for time_ms in times]
            assert backend.log.time_bounds(P0) == (min(flat), max(flat))
        check_amounts(backend)
