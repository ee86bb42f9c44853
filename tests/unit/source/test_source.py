"""`Source`: names, topics, runs and their ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tailrace import Hub, Source, SourceOutcome
from tailrace.errors import Busy, ConfigError, InvalidName, InvalidValue, NothingToRead, TopicExists
from tailrace.source.catalog import find_source
from tailrace.source.reader import Preview
from tailrace.source.report import SourceProgress
from tailrace.testing import MemoryBackend
from tests.support.sources.split_reader import SplitReader
from tests.support.topics import all_messages
from tests.support.waiting import DEADLINE_S, in_thread, until

READER = SplitReader(("a", "b"), rows=10)


class EmptyReader(SplitReader, frozen=True):
    """A system without rows."""

    def check(self) -> Preview:
        raise NothingToRead("there are no files", "wait for some")


class BrokenReader(SplitReader, frozen=True):
    """A system that cannot be read."""

    def check(self) -> Preview:
        raise InvalidValue("rows", self.rows, "more")


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub.from_backend(MemoryBackend()) as hub:
        yield hub


def rows(hub: Hub, source: str = "shop") -> int:
    return len(all_messages(hub.topic(f"{source}.commits")))


# Definition.


@pytest.mark.parametrize("name", ["", "a b", "x/y", "x" * 300])
def test_a_source_has_a_valid_name(name: str) -> None:
    with pytest.raises(InvalidName):
        Source(name, READER)


@pytest.mark.parametrize("partitions", [0, -1, 10**9, 1.5, "2"])
def test_a_source_has_a_valid_number_of_partitions(partitions: object) -> None:
    with pytest.raises(InvalidValue, match="partitions"):
        Source("shop", READER, partitions=partitions)  # type: ignore[arg-type]


def test_a_source_has_a_reader() -> None:
    with pytest.raises(InvalidValue, match="reader"):
        Source("shop", "files")  # type: ignore[arg-type]


def test_a_definition_opens_nothing_and_names_its_topics() -> None:
    source = Source("shop", BrokenReader())
    assert (source.commit_log, source.dead_letters) == ("shop.commits", "shop.dead-letters")


def test_check_returns_what_the_reader_finds_or_raises_it() -> None:
    assert Source("shop", READER).check().sentence == "numbers"
    with pytest.raises(InvalidValue, match="rows"):
        Source("shop", BrokenReader()).check()


# Runs.


def test_a_run_once_reads_everything_and_reports_it(hub: Hub) -> None:
    report = Source("shop", READER, partitions=3).run(hub, once=True)
    assert (report.source, report.outcome) == ("shop", SourceOutcome.DONE)
    assert (report.rows, report.bad) == (rows(hub), 0) == (20, 0)
    assert len(hub.topic("shop.commits").storage_topics[0].ends) == 3
    entry = find_source(hub.backend.store, "shop")
    assert entry is not None
    assert (entry.commit_log, entry.reader, entry.of_pipeline) == (
        "shop.commits",
        "SplitReader",
        False,
    )


def test_the_next_run_reads_what_is_new(hub: Hub) -> None:
    Source("shop", READER).run(hub, once=True)
    again = Source("shop", READER).run(hub, once=True)
    assert (again.outcome, again.rows, rows(hub)) == (SourceOutcome.DONE, 0, 20)


def test_a_log_with_another_number_of_partitions_is_refused(hub: Hub) -> None:
    Source("shop", READER, partitions=1).run(hub, once=True)
    with pytest.raises(TopicExists):
        Source("shop", READER, partitions=2).run(hub, once=True)


def test_a_reader_that_cannot_be_read_is_refused_before_anything_is_written(hub: Hub) -> None:
    with pytest.raises(ConfigError, match="rows is 10"):
        Source("shop", BrokenReader()).run(hub, once=True)
    assert hub.topics() == []
    assert find_source(hub.backend.store, "shop") is None


def test_a_run_once_of_an_empty_system_is_refused_unless_it_may_be_empty(hub: Hub) -> None:
    empty = Source("shop", EmptyReader((), rows=0))
    with pytest.raises(NothingToRead):
        empty.run(hub, once=True)
    assert hub.topics() == []
    assert empty.run(hub, once=True, allow_empty=True).rows == 0


def test_a_run_is_stopped_from_another_thread(hub: Hub) -> None:
    source = Source("shop", READER)
    reports = []
    thread = in_thread(lambda: reports.append(source.run(hub)))
    until(lambda: "shop.commits" in hub.topics() and rows(hub) == 20)
    assert source.stop()
    thread.join(DEADLINE_S)
    assert [report.outcome for report in reports] == [SourceOutcome.STOPPED]
    assert not source.stop()


def test_one_object_has_one_run_and_another_joins_it(hub: Hub) -> None:
    source, other = Source("shop", READER), Source("shop", READER)
    counts: list[int] = []
    threads = [
        threading.Thread(target=source.run, args=(hub,), daemon=True),
        threading.Thread(
            target=lambda: other.run(hub, progress=lambda now: counts.append(now.tasks)),
            daemon=True,
        ),
    ]
    for thread in threads:
        thread.start()
    until(lambda: 2 in counts)
    with pytest.raises(Busy, match="already runs source shop"):
        source.run(hub)
    assert source.stop()
    assert other.stop()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert source.run(hub, once=True).outcome is SourceOutcome.DONE


# Progress.


def test_a_function_gets_the_progress_in_the_thread_of_the_run(hub: Hub) -> None:
    seen: list[tuple[SourceProgress, int]] = []
    report = Source("shop", READER).run(
        hub, once=True, progress=lambda now: seen.append((now, threading.get_ident()))
    )
    last, thread = seen[-1]
    assert thread == threading.get_ident()
    assert (last.source, last.task, last.tasks, last.leads) == ("shop", report.task, 1, True)
    assert (last.rows, last.bad, last.caught_up) == (20, 0, True)
    assert {each.namespace: (each.rows, each.copying) for each in last.namespaces} == {
        "a": (10, False),
        "b": (10, False),
    }


def test_nothing_is_shown_where_there_is_no_terminal(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    Source("shop", READER).run(hub, once=True)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
