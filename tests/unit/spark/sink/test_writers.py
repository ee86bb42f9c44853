"""Writers of Spark as its processes call them, without Spark itself."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

import tailrace
from tailrace.errors import BackendUnavailable, ConfigError, Error, InvalidValue, MessageTooLarge
from tailrace.spark.hubs import close_hub_at
from tailrace.spark.sink import BatchWriter, StreamWriter, commit, task_rows
from tailrace.spark.sink.task_rows import TaskRows
from tests.support.topics import all_messages

SCHEMA = StructType().add("key", "string").add("value", "string").add("partition", "integer")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(tmp_path / "hub", sync="none") as opened:
        opened.create_topic("orders", bytes, partitions=2)
        yield opened
    close_hub_at(str(tmp_path / "hub"))


@pytest.fixture
def orders(hub: tailrace.Hub) -> tailrace.Topic[bytes]:
    return hub.topic("orders", bytes)


def writer_of(hub: tailrace.Hub, **options: str) -> BatchWriter:
    given = {"hub": hub.backend.name, "topic": "orders", **options}
    return cast("BatchWriter", _sent(BatchWriter(given, SCHEMA, False)))


def rows(count: int, size: int = 10, key: str = "c1", partition: int | None = None) -> Any:
    columns: Mapping[str, Any] = {
        "key": [key] * count,
        "value": [f"{number:0{size}}" for number in range(count)],
        "partition": pa.array([partition] * count, pa.int32()),
    }
    return pa.record_batch(columns)


def run(writer: BatchWriter, *tasks: Any) -> list[WriterCommitMessage | None]:
    return [cast("TaskRows", _sent(writer.write(iter(task)))) for task in tasks]


def stored(topic: tailrace.Topic[bytes], number: int) -> list[int]:
    batches = topic.batches(topic.produce_pointer, number)
    return [int(value.as_py()[-4:]) for batch in batches for value in batch["value"]]


def _sent(value: object) -> object:
    return pickle.loads(pickle.dumps(value))


def test_tasks_run_where_the_hub_cannot_be_seen(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes], tmp_path: Path
) -> None:
    writer = writer_of(hub)
    (tmp_path / "hub").rename(tmp_path / "another-host")
    messages = run(writer, [rows(10)], [rows(10)], [])
    (tmp_path / "another-host").rename(tmp_path / "hub")
    writer.commit(messages)
    assert stored(orders, orders.route("c1")) == [*range(10), *range(10)]


def test_a_topic_with_an_order_makes_the_keys_of_rows(hub: tailrace.Hub) -> None:
    hub.create_topic("sorted", order_by="customer", partitions=2)
    writer = writer_of(hub, topic="sorted")
    value = pa.array(['{"customer":"c7"}', '{"customer":"c8"}'])
    without = pa.record_batch({"value": value})
    writer.commit(run(writer, [without]))
    found = [message.key for message in all_messages(hub.topic("sorted"))]
    assert sorted(map(str, found)) == ["c7", "c8"]
    refused: dict[str, tuple[Any, str]] = {
        "key": (pa.array(["c7", "c9"]), "row 1: .* which is 'c8', and the key is 'c9'"),
        "partition": (pa.array([None, 1], pa.int32()), "valid: null in every row"),
    }
    for name, (column, message) in refused.items():
        with pytest.raises(InvalidValue, match=message):
            writer.commit(run(writer, [without.append_column(name, column)]))


def json_rows(*values: str | bytes | None, **columns: Any) -> Any:
    """Rows with the key c7 in a binary column."""
    data = [each.encode() if isinstance(each, str) else each for each in values]
    keys = pa.array(["c7"] * len(data))
    return pa.record_batch({"key": keys, "value": pa.array(data, pa.binary()), **columns})


@pytest.mark.parametrize("value", ["by hand", "", '{"id": 1} {"id": 2}', b'"\xff"', "[1,]", "NaN"])
def test_a_task_names_its_first_row_for_a_topic_of_json_that_is_not_json(
    hub: tailrace.Hub, value: str | bytes
) -> None:
    hub.create_topic("documents")
    writer = writer_of(hub, topic="documents")
    with pytest.raises(InvalidValue, match="row 3 of task 0 with key 'c7' has the value ") as bad:
        run(writer, [json_rows("1", '{"id": 2}'), json_rows('"é"', value, "also bad")])
    assert "JSON, the content type of topic 'documents'" in str(bad.value)
    assert "anyType=true" in str(bad.value)


def test_values_for_a_topic_of_json_need_no_json_if_the_option_or_a_header_says_so(
    hub: tailrace.Hub,
) -> None:
    hub.create_topic("documents")
    header = pa.map_(pa.string(), pa.binary())
    text = pa.array([[("content-type", b"text/plain")]], header)
    labelled = json_rows("by hand", headers=text)
    deleted = json_rows(None)
    writer = writer_of(hub, topic="documents")
    writer.commit(run(writer, [labelled, deleted]))
    any_type = writer_of(hub, topic="documents", anyType="true")
    any_type.commit(run(any_type, [json_rows("unlabelled")]))
    found = [message.data for message in all_messages(hub.topic("documents"))]
    assert sorted(found) == [b"", b"by hand", b"unlabelled"]


@pytest.mark.parametrize(("any_type", "stored_rows"), [("false", 0), ("true", 4)])
def test_rows_that_name_their_topics_are_checked_by_the_topic_of_each(
    hub: tailrace.Hub, any_type: str, stored_rows: int
) -> None:
    """The hub has one topic of bytes and one of JSON."""
    hub.create_topic("documents")
    given = {"hub": hub.backend.name, "anyType": any_type}
    writer = BatchWriter(given, StructType([*SCHEMA.fields]).add("topic", "string"), False)
    topics = pa.array(["orders", "documents", "documents"])
    tasks = [json_rows("1", topic=topics[:1]), json_rows("raw", "{}", "bad", topic=topics)]
    messages = run(writer, tasks[:1], tasks[1:])
    with nullcontext() if any_type == "true" else pytest.raises(InvalidValue) as refused:
        writer.commit(messages)
    assert refused is None or "row 2 of task 1 " in str(refused.value)
    names = ("orders", "documents")
    assert sum(len(all_messages(hub.topic(name, bytes))) for name in names) == stored_rows


def test_a_task_refuses_a_reserved_header_by_name(hub: tailrace.Hub) -> None:
    headers = pa.array([[("tailrace.for", b"billing")]], pa.map_(pa.string(), pa.binary()))
    given = rows(1).append_column("headers", headers)
    with pytest.raises(InvalidValue, match=r"'tailrace\.for' is reserved"):
        run(writer_of(hub), [given])


def test_a_large_task_where_nothing_is_shared_is_refused_in_one_sentence(
    hub: tailrace.Hub, tmp_path: Path
) -> None:
    writer = writer_of(hub)
    (tmp_path / "hub").rename(tmp_path / "another-host")
    try:
        run(writer, [rows(7, 1 << 20)])  # Up to 8 MiB travel with the commit message.
        with pytest.raises(ConfigError) as caught:
            run(writer, [rows(9, 1 << 20)])
    finally:
        (tmp_path / "another-host").rename(tmp_path / "hub")
    assert f"does not share {tmp_path}/hub/hub.spark/staging with the driver" in str(caught.value)
    assert "set the option staging=DIRECTORY" in str(caught.value)


def test_a_large_task_is_staged_and_its_file_removed_by_the_commit(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes], tmp_path: Path
) -> None:
    writer = writer_of(hub, staging=str(tmp_path / "shared"))
    messages = run(writer, [rows(2, 1 << 20), rows(3, 1 << 20)], [rows(1)])
    assert [cast("TaskRows", message).staged is not None for message in messages] == [True, False]
    assert len(pickle.dumps(messages)) < 100_000
    writer.commit(messages)
    assert len(stored(orders, orders.route("c1"))) == 6
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["id"]


def test_an_aborted_write_leaves_neither_rows_nor_files(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes], tmp_path: Path
) -> None:
    writer = writer_of(hub, staging=str(tmp_path / "shared"))
    messages = run(writer, [rows(2, 1 << 20)])
    writer.abort([*messages, None])
    assert orders.storage_topics[0].ends == [0, 0]
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["id"]


def test_a_task_that_refuses_a_late_row_leaves_no_file(hub: tailrace.Hub, tmp_path: Path) -> None:
    writer = writer_of(hub, staging=str(tmp_path / "shared"))
    with pytest.raises(MessageTooLarge):
        run(writer, [rows(2, 1 << 20), rows(1, 2 << 20)])
    assert not list((tmp_path / "shared").glob("*/*"))


@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_a_staged_file_that_is_not_whole_stores_nothing(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes], tmp_path: Path, damage: str
) -> None:
    writer = writer_of(hub, staging=str(tmp_path / "shared"))
    messages = run(writer, [rows(2, 1 << 20)], [rows(1)])
    [path] = (tmp_path / "shared").glob("*/*")
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BackendUnavailable, match=r"the driver cannot read .* nothing was written"):
        writer.commit(messages)
    assert orders.storage_topics[0].ends == [0, 0]


def test_a_write_beyond_the_limit_of_one_commit_stores_nothing(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "COMMIT_BYTES_MAX", 5000)
    writer = writer_of(hub)
    with pytest.raises(MessageTooLarge, match="limit the batches of a stream"):
        writer.commit(run(writer, [rows(50)], [rows(100)]))
    assert orders.storage_topics[0].ends == [0, 0]


def test_a_write_that_does_not_fit_into_memory_keeps_the_order_of_tasks_and_rows(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "MEMORY_BYTES", 1000)
    monkeypatch.setattr(commit, "APPEND_BYTES", 300)
    monkeypatch.setattr(task_rows, "CARRIED_BYTES", 2000)
    writer = writer_of(hub)
    writer.commit(run(writer, [rows(100)], [rows(50), rows(50)]))
    expected = [*range(100), *range(50), *range(50)]
    assert stored(orders, orders.route("c1")) == expected


def test_a_topic_that_is_switched_before_the_commit_gets_the_rows_in_its_new_storage_topic(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    first = writer_of(hub)
    first.commit(run(first, [rows(5)]))
    writer = writer_of(hub)
    messages = run(writer, [rows(10)])
    orders.scale(4)
    writer.commit(messages)
    assert stored(orders, orders.route("c1")) == list(range(10))


@pytest.mark.parametrize("number", [-1, 2])
def test_a_partition_that_does_not_exist_is_refused_with_the_valid_range(
    hub: tailrace.Hub, orders: tailrace.Topic[bytes], number: int
) -> None:
    writer = writer_of(hub)
    messages = run(writer, [rows(5)], [rows(5, partition=number)])
    with pytest.raises(InvalidValue, match="valid: 0 to 1 for orders, storage topic 0"):
        writer.commit(messages)
    assert orders.storage_topics[0].ends == [0, 0]


class _Batches:
    """A streaming query that runs batches as Spark does."""

    def __init__(self, hub: tailrace.Hub, checkpoint: Path, monkeypatch: pytest.MonkeyPatch):
        self._options = {
            "hub": hub.backend.name,
            "topic": "orders",
            "checkpointlocation": str(checkpoint),
            "queryname": "copy",
        }
        self._checkpoint = checkpoint
        self._patch = monkeypatch
        (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": "q"}))

    def stage(self, batch: int, *tasks: Any) -> list[WriterCommitMessage | None]:
        (self._checkpoint / "offsets" / str(batch)).write_text(f"v1\n{batch}")
        context = TaskContext._getOrCreate()
        context._localProperties = {
            "sql.streaming.queryId": "q",
            "streaming.sql.batchId": str(batch),
        }
        self._patch.setattr(TaskContext, "_taskContext", context)
        writer = cast("StreamWriter", _sent(StreamWriter(self._options, SCHEMA, False)))
        return [cast("TaskRows", _sent(writer.write(iter(task)))) for task in tasks]

    def commit(self, batch: int, messages: list[WriterCommitMessage | None]) -> None:
        StreamWriter(self._options, SCHEMA, False).commit(messages, batch)

    def abort(self, batch: int, messages: list[WriterCommitMessage | None]) -> None:
        StreamWriter(self._options, SCHEMA, False).abort(messages, batch)


@pytest.fixture
def query(hub: tailrace.Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Batches:
    return _Batches(hub, tmp_path / "checkpoint", monkeypatch)


def test_a_batch_that_is_computed_again_is_stored_once(
    query: _Batches, orders: tailrace.Topic[bytes]
) -> None:
    query.commit(0, query.stage(0, [rows(5)]))
    query.commit(0, query.stage(0, [rows(5)]))
    query.commit(1, query.stage(1, [rows(3)]))
    assert stored(orders, orders.route("c1")) == [*range(5), *range(3)]


def test_files_that_a_killed_driver_left_are_removed_by_the_next_commit_of_its_query(
    query: _Batches, hub: tailrace.Hub, orders: tailrace.Topic[bytes]
) -> None:
    staging = Path(hub.backend.name, "hub.spark", "staging")
    query.stage(3, [rows(2, 1 << 20)])  # The driver is killed.
    other = staging / "query-other" / "3-x.arrow"
    other.parent.mkdir()
    other.touch()
    query.commit(3, query.stage(3, [rows(2, 1 << 20)]))
    assert list(staging.glob("*/*")) == [other]
    query.abort(4, [*query.stage(4, [rows(2, 1 << 20)]), None])
    assert list(staging.glob("*/*")) == [other]
    assert len(stored(orders, orders.route("c1"))) == 2


def test_a_checkpoint_that_cannot_be_read_stores_rows_at_least_once(
    query: _Batches, orders: tailrace.Topic[bytes], tmp_path: Path
) -> None:
    for _ in range(2):
        messages = query.stage(0, [rows(5)])
        (tmp_path / "checkpoint" / "metadata").unlink(missing_ok=True)
        query.commit(0, messages)
    assert stored(orders, orders.route("c1")) == [*range(5), *range(5)]


def test_a_stream_is_not_numbered_by_options(hub: tailrace.Hub) -> None:
    options = {"hub": hub.backend.name, "topic": "orders", "txnAppId": "a", "txnVersion": "1"}
    with pytest.raises(Error, match="a stream is identified by its checkpoint"):
        StreamWriter(options, SCHEMA, False)
