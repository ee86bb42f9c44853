"""Running a source: every row once, whoever dies, and only the newest run writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from tailrace.backend.contract import FENCES, Transaction
from tailrace.errors import BackendUnavailable, Error, Fenced
from tailrace.hub import Hub
from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op, Position
from tailrace.settings import HubSettings
from tailrace.source.reader import BadRecord, Batch, Opened, Reader, Split, Until
from tailrace.source.run import SourceRun
from tailrace.source.split_state import split_states
from tailrace.testing import ManualClock
from tailrace.topic.topic import Topic
from tests.unit.topic.faults import FaultyBackend, once, unknown

Script = dict[str, list[Batch | None]]


def rows(*values: str, namespace: str = "ns") -> Any:
    """Records with these values."""
    return from_records(
        [
            Record(0, 1000, Mode.COPY, Op.INSERT, namespace.encode(), None, value.encode())
            for value in values
        ]
    )


class Shelf(Opened):
    """A reading of scripted batches; the position is the number of the next one."""

    def __init__(self, script: Script, splits: tuple[Split, ...]) -> None:
        self._script = script
        self._splits = splits
        self.lasts: dict[str, Record | None] = {}
        self.started: list[str] = []

    def splits(self) -> tuple[Split, ...]:
        return self._splits

    def read(self, split: Split, position: Any, last: Record | None) -> Iterator[Batch | None]:
        self.lasts[split.id] = last
        self.started.append(split.id)
        return iter(self._script[split.id][position or 0 :])


class ShelfReader(Reader, frozen=True):
    """The reader of a shelf that the test holds."""

    shelf: Any

    def open(self, until: Until) -> Shelf:
        assert isinstance(self.shelf, Shelf)
        return self.shelf


@pytest.fixture(params=[0, 2], ids=["dense", "gaps"])
def backend(request: pytest.FixtureRequest) -> FaultyBackend:
    return FaultyBackend(gap_every=request.param)


@pytest.fixture
def hub(backend: FaultyBackend) -> Hub:
    return Hub.from_backend(backend, clock=ManualClock(), settings=HubSettings())


@pytest.fixture
def log(hub: Hub) -> Topic[Any]:
    return hub.create_topic("log", partitions=1)


@pytest.fixture
def letters(hub: Hub) -> Topic[Any]:
    return hub.create_topic("letters", partitions=1)


Begin = Callable[..., SourceRun]


@pytest.fixture
def begin(hub: Hub, log: Topic[Any], letters: Topic[Any]) -> Begin:
    def run(shelf: Shelf) -> SourceRun:
        return SourceRun(hub, "s", ShelfReader(shelf), log, letters, Until.NOW, ManualClock())

    return run


def shelf_of(script: Script, *splits: Split) -> Shelf:
    return Shelf(script, splits or tuple(map(Split, script)))


def finish(run: SourceRun) -> None:
    while not run.done:
        run.step()
    run.close()


def values(topic: Topic[Any]) -> list[str]:
    """Every value of a topic, in lineage order."""
    reader = topic.reader()
    found: list[str] = []
    while reads := reader.poll():
        for _, records in reads:
            data: list[Any] = records["value"].to_pylist()
            found += (value.decode() for value in data)
    return found


def test_rows_of_all_splits_are_stored_in_turns(begin: Begin, log: Topic[Any]) -> None:
    script: Script = {
        "a": [Batch(rows("a1", "a2"), 1), Batch(rows("a3"), 2)],
        "b": [None, Batch(rows("b1"), 2)],
    }
    run = begin(shelf_of(script))
    finish(run)
    assert values(log) == ["a1", "a2", "a3", "b1"]
    assert run.rows == 4
    assert run.bytes == sum(29 + 2 + 2 for _ in range(4))


def test_a_step_without_anything_to_read_says_so(begin: Begin) -> None:
    run = begin(shelf_of({"a": [None, Batch(rows("a1"), 2)]}))
    assert [run.step(), run.step(), run.done] == [False, True, False]
    assert [run.step(), run.done] == [False, True]


def test_the_next_run_goes_on_behind_what_is_stored(begin: Begin, log: Topic[Any]) -> None:
    script: Script = {"a": [Batch(rows("a1", "a2"), 1), Batch(rows("a3"), 2)]}
    with begin(shelf_of(script)) as run:
        assert run.step()
    log.push("somebody else's")
    shelf = shelf_of(script)
    finish(begin(shelf))
    assert values(log) == ["a1", "a2", "somebody else's", "a3"]
    last = shelf.lasts["a"]
    assert last is not None
    assert (last.key, last.value) == (b"ns", b"a2")


def test_the_last_record_is_found_behind_what_others_appended_meanwhile(
    begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2), Batch(rows("a3"), 3)]}
    run = begin(shelf_of(script))
    run.step()
    log.push("between")
    run.step()
    shelf = shelf_of(script)
    begin(shelf)
    last = shelf.lasts["a"]
    assert last is not None
    assert last.value == b"a2"
    stored = split_states(backend, "s")["a"]
    assert stored.last is not None
    assert Position.parse(stored.last).offset <= last.offset


def test_a_last_record_that_is_gone_is_none(begin: Begin, hub: Hub, backend: FaultyBackend) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2)]}
    begin(shelf_of(script)).step()
    hub.delete_topic("log")
    shelf = shelf_of(script)
    with pytest.raises(Error):
        finish(begin(shelf))
    assert shelf.lasts == {"a": None}


def test_a_child_starts_when_all_it_follows_are_finished(begin: Begin, log: Topic[Any]) -> None:
    child = Split("c", follows=("a", "b"))
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(child,), finished=True)],
        "b": [Batch(rows("b1"), 1), Batch(rows("b2"), 2), Batch(None, 3, finished=True)],
        "c": [Batch(rows("c1"), 1)],
    }
    shelf = shelf_of(script, Split("a"), Split("b"))
    run = begin(shelf)
    run.step()
    run.step()
    assert shelf.started == ["a", "b"]
    finish(run)
    assert shelf.started == ["a", "b", "c"]
    assert values(log) == ["a1", "b1", "b2", "c1"]


def test_lineage_holds_over_runs(begin: Begin, log: Topic[Any]) -> None:
    child = Split("c", follows=("a", "b"))
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(child,), finished=True)],
        "b": [Batch(rows("b1"), 1), Batch(rows("b2"), 2, finished=True)],
        "c": [Batch(rows("c1"), 1)],
    }
    first = begin(shelf_of(script, Split("a"), Split("b")))
    first.step()
    shelf = shelf_of(script)
    finish(begin(shelf))
    assert shelf.started == ["b", "c"]
    assert values(log) == ["a1", "b1", "b2", "c1"]


def test_all_first_splits_are_stored_before_the_first_batch(
    begin: Begin, backend: FaultyBackend, log: Topic[Any]
) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1)], "b": [Batch(rows("b1"), 1)]}
    begin(shelf_of(script)).step()
    finish(begin(shelf_of(script, Split("other"))))
    assert values(log) == ["a1", "b1"]


def test_finished_splits_are_forgotten_with_their_fences_but_for_the_last(
    begin: Begin, backend: FaultyBackend, log: Topic[Any]
) -> None:
    script: Script = {
        "a": [Batch(rows("a1"), 1, finished=True)],
        "b": [Batch(rows("b1"), 1, finished=True)],
    }
    finish(begin(shelf_of(script)))
    assert [state.finished for state in split_states(backend, "s").values()] == [True]
    fences = [entry.key for entry in backend.store.scan(FENCES + "source/s/")]
    assert fences == [f"{FENCES}source/s/b"]
    finish(begin(shelf_of(script)))
    assert values(log) == ["a1", "b1"]


def test_an_older_run_is_fenced_at_its_next_batch(begin: Begin, log: Topic[Any]) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2), Batch(rows("a3"), 3)]}
    older = begin(shelf_of(script))
    older.step()
    newer = begin(shelf_of(script))
    with pytest.raises(Fenced):
        older.step()
    newer.step()
    with pytest.raises(Fenced):
        older.step()
    finish(newer)
    assert values(log) == ["a1", "a2", "a3"]


def test_an_older_run_takes_no_child_from_a_newer_one(
    begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(Split("c"),))],
        "c": [Batch(rows("c1"), 1), Batch(rows("c2"), 2)],
    }
    older = begin(shelf_of(script, Split("a")))
    newer: list[SourceRun] = []
    # The older one has stored the child, and not yet begun it, when the newer one comes.
    backend.after = once(lambda: newer.append(begin(shelf_of(script))))
    with pytest.raises(Fenced):
        older.step()
    finish(newer[0])
    assert values(log) == ["a1", "c1", "c2"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_batch_of_unknown_outcome_is_stored_once(
    moment: str, begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2, finished=True)]}
    run = begin(shelf_of(script))
    setattr(backend, moment, once(unknown))
    finish(run)
    assert values(log) == ["a1", "a2"]
    assert run.rows == 2


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_end_of_unknown_outcome_is_stored_once(
    moment: str, begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(Split("c"),), finished=True)],
        "c": [Batch(rows("c1"), 1)],
    }
    run = begin(shelf_of(script, Split("a")))
    setattr(backend, moment, once(unknown))
    finish(run)
    assert values(log) == ["a1", "c1"]


def test_a_batch_that_could_not_be_stored_is_stored_by_the_next_step(
    begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    def refuse() -> None:
        raise BackendUnavailable("not now")

    run = begin(shelf_of({"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2)]}))
    backend.before = once(refuse)
    with pytest.raises(BackendUnavailable):
        run.step()
    assert not run.done
    finish(run)
    assert values(log) == ["a1", "a2"]


def test_a_reader_that_raises_is_asked_again_from_what_is_stored(
    begin: Begin, log: Topic[Any]
) -> None:
    class Failing(Shelf):
        failures = 1

        def read(self, split: Split, position: Any, last: Record | None) -> Iterator[Batch | None]:
            for number, batch in enumerate(self._script[split.id][position or 0 :]):
                if number == 1 and self.failures:
                    self.failures -= 1
                    raise OSError("the network is down")
                yield batch

    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2), Batch(rows("a3"), 3)]}
    run = begin(Failing(script, (Split("a"),)))
    run.step()
    with pytest.raises(OSError, match="network"):
        run.step()
    assert not run.done
    finish(run)
    assert values(log) == ["a1", "a2", "a3"]


def test_a_commit_log_that_is_switched_is_followed(begin: Begin, log: Topic[Any]) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2)]}
    run = begin(shelf_of(script))
    run.step()
    log.scale(2)
    finish(run)
    assert values(log) == ["a1", "a2"]
    assert [sum(info.ends) > 0 for info in log.storage_topics] == [True, True]


@pytest.mark.parametrize("identities", [None, [b"one", b"two", b"three"]])
def test_rows_go_to_the_partition_of_their_identity_or_else_of_their_namespace(
    identities: list[bytes] | None, hub: Hub, letters: Topic[Any]
) -> None:
    log = hub.create_topic("wide", partitions=4)
    batch = Batch(rows("1", "2", "3"), 1, identities=identities)
    reader = ShelfReader(shelf_of({"a": [batch]}))
    finish(SourceRun(hub, "s", reader, log, letters, Until.NOW, ManualClock()))
    keys = identities or [b"ns"] * 3
    found = {
        value: number
        for number in range(4)
        for records in log.batches(0, number)
        for value in records["value"].to_pylist()
    }
    assert found == {str(n).encode(): log.route(key) for n, key in enumerate(keys, 1)}


def test_bad_records_go_to_the_dead_letters_in_the_same_commit(
    begin: Begin, log: Topic[Any], letters: Topic[Any], backend: FaultyBackend
) -> None:
    bad = BadRecord("ns", "in/a.jsonl:17", "it is not JSON", b"{oops")
    seen: list[Transaction] = []
    backend.after = seen.append
    run = begin(shelf_of({"a": [Batch(rows("a1"), 1, bad=[bad])]}))
    finish(run)
    assert run.bad == 1
    [message] = messages(letters)
    assert (message.key, message.data) == ("ns", b"{oops")
    assert message.headers == {
        "tailrace.error": b"it is not JSON",
        "tailrace.where": b"in/a.jsonl:17",
        "tailrace.reader": b"s",
    }
    assert [len(each.appends) for each in seen] == [0, 2]


def test_a_bad_record_beyond_the_limit_is_cut_and_says_so(
    backend: FaultyBackend, log: Topic[Any]
) -> None:
    hub = Hub.from_backend(backend, settings=HubSettings(message_bytes_max=1000))
    letters = hub.create_topic("small", partitions=1)
    bad = BadRecord("ns", "x:1", "too long", b"y" * 5000)
    reader = ShelfReader(shelf_of({"a": [Batch(None, 1, bad=[bad])]}))
    finish(SourceRun(hub, "s", reader, log, letters, Until.NOW))
    [message] = messages(letters)
    assert message.headers["tailrace.cut"] == b"5000"
    assert 800 < len(message.data) < 1000
    assert set(message.data) == {ord("y")}


def test_a_row_beyond_the_limit_of_the_commit_log_is_a_dead_letter(
    backend: FaultyBackend, letters: Topic[Any]
) -> None:
    hub = Hub.from_backend(backend, settings=HubSettings(message_bytes_max=100))
    log = hub.create_topic("small", partitions=1)
    batch = Batch(rows("a", "b" * 101, "c" * 100), 1)
    run = SourceRun(hub, "s", ShelfReader(shelf_of({"a": [batch]})), log, letters, Until.NOW)
    finish(run)
    assert values(log) == ["a", "c" * 100]
    assert values(letters) == ["b" * 101]
    assert (run.rows, run.bad) == (2, 1)


def test_records_that_only_tell_of_the_source_are_not_counted_as_rows(begin: Begin) -> None:
    complete = from_records([Record(0, 1, Mode.COMPLETE, Op.NOOP, b"ns", None, b'{"rows":1}')])
    run = begin(shelf_of({"a": [Batch(rows("a1"), 1), Batch(complete, 2)]}))
    finish(run)
    assert run.rows == 1


def test_a_split_is_stored_as_documented(
    begin: Begin, backend: FaultyBackend, log: Topic[Any]
) -> None:
    begin(shelf_of({"a": [Batch(rows("a1"), {"at": 7})]}, Split("a", {"x": 1}))).step()
    stored = backend.table.get("source/s", b"a")
    assert stored is not None
    found = msgspec.json.decode(stored)
    assert found["split"] == {"id": "a", "data": {"x": 1}, "follows": []}
    assert (found["position"], found["rows"], found["finished"]) == ({"at": 7}, 1, False)
    assert found["last"].startswith("log/0.0@")


def messages(topic: Topic[Any]) -> list[Any]:
    """Every message of a topic of one partition."""
    return [message for read in topic.reader().poll() for message in topic.messages(*read)]
