"""Control records stay out of what users read, unless they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

import tailrace
from tailrace import readers, writers
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Mode, Op
from tailrace.spark.batch import BatchReader
from tailrace.spark.columns import spark_schema
from tailrace.spark.stream import StreamReader
from tests.support.command_line import CommandLine
from tests.support.topics import push_for

MESSAGES = [b"1", b"2", b"3"]
ALL = [b"1", b'{"rows":1}', b"2", b"3", b"stop", b"{}"]


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "hub")


@pytest.fixture
def hub(cli: CommandLine) -> Iterator[Hub]:
    with tailrace.open(cli.hub, sync="none") as hub:
        yield hub


@pytest.fixture
def topic(hub: Hub) -> Topic[Any]:
    """A topic with three messages; between and after them, three control records."""
    topic = hub.create_topic("orders", partitions=1)
    topic.append(
        pa.RecordBatch.from_pydict(
            {
                "value": ALL,
                "key": [b"k"] * 6,
                "mode": [Mode.COPY, Mode.COMPLETE, Mode.SYNC, Mode.SYNC, Mode.SYNC, Mode.SYNC],
                "op": [Op.INSERT, Op.NOOP, Op.UPDATE, Op.DELETE, Op.COMMAND, Op.NOOP],
            }
        )
    )
    return topic


@pytest.mark.parametrize(("control", "expected"), [(False, [b"1"]), (True, [b"1", b"again"])])
def test_a_message_that_was_redelivered_to_one_consumer_is_not_read_again(
    hub: Hub, cli: CommandLine, control: bool, expected: list[bytes]
) -> None:
    topic = hub.create_topic("orders", bytes, partitions=1)
    topic.push(b"1", headers={"source": "web"})
    push_for(topic, "billing", b"again")
    batches = topic.batches(0, 0, control=control)
    assert [value for each in batches for value in each["value"].to_pylist()] == expected
    [(_, records)] = topic.reader(control=control).poll()
    assert records["value"].to_pylist() == expected
    flag = ["--control"] if control else []
    assert cli.tail("orders", *flag) == [value.decode() for value in expected]
    billing = topic.tail(group="billing", until="end", control=control)
    assert [each.data for each in billing] == [b"1", b"again"]
    mail = topic.tail(group="mail", until="end", control=control)
    assert [each.data for each in mail] == [b"1"]


@pytest.mark.parametrize(("options", "expected"), [({}, MESSAGES), ({"control": True}, ALL)])
def test_a_group_gets_control_records_only_if_it_asks(
    topic: Topic[Any], options: dict[str, bool], expected: list[bytes]
) -> None:
    found = list(topic.tail(group="g", until="end", **options))  # type: ignore[arg-type]
    assert [each.data for each in found] == expected
    assert [each.data for each in found if not each.is_control] == MESSAGES


def test_a_group_that_leaves_out_control_records_has_no_lag(hub: Hub, topic: Topic[Any]) -> None:
    list(topic.tail(group="g", until="end"))
    topic.append(pa.RecordBatch.from_pydict({"value": [b"{}"], "op": [Op.NOOP]}))
    list(hub.tail("orders", group="g", until="end"))
    assert [each.lag for each in hub.group("g").lag()] == [0]


def test_batches_of_a_group_have_no_control_records(topic: Topic[Any]) -> None:
    batches = list(topic.tail(group="g", until="end").batches())
    assert [value for each in batches for value in each["value"].to_pylist()] == MESSAGES


@pytest.mark.parametrize(("control", "expected"), [(False, MESSAGES), (True, ALL)])
def test_readers_of_a_topic_get_control_records_only_if_they_ask(
    topic: Topic[Any], control: bool, expected: list[bytes]
) -> None:
    batches = topic.batches(0, 0, control=control)
    assert [value for each in batches for value in each["value"].to_pylist()] == expected
    [(_, records)] = topic.reader(control=control).poll()
    assert records["value"].to_pylist() == expected


def test_a_record_is_read_at_its_offset_also_if_it_is_a_control_record(topic: Topic[Any]) -> None:
    assert topic.read(0, 0, 1).is_control
    assert not topic.read(0, 0, 0).is_control


@pytest.mark.parametrize(("given", "expected"), [({}, MESSAGES), ({"includeControl": "true"}, ALL)])
def test_spark_reads_control_records_only_if_it_is_asked_to(
    topic: Topic[Any], hub: Hub, given: dict[str, str], expected: list[bytes]
) -> None:
    options = {"hub": hub.backend.name, "subscribe": "orders", "startingOffsets": "earliest"}
    schema = spark_schema(include_headers=False)
    batch = BatchReader(options | given, schema)
    stream = StreamReader(options | given, schema)
    start = stream.initialOffset()
    tasks: Sequence[InputPartition] = stream.partitions(
        start, stream.latestOffset(start, ReadAllAvailable())
    )
    for reads in (
        [each for task in batch.partitions() for each in batch.read(task)],
        [each for task in tasks for each in stream.read(task)],
    ):
        assert [value for each in reads for value in each["value"].to_pylist()] == expected


@pytest.mark.parametrize(
    "arguments", [("orders",), ("orders/0.0",), ("orders", "--group", "g")], ids=" ".join
)
@pytest.mark.parametrize(("flag", "expected"), [((), MESSAGES), (("--control",), ALL)])
def test_tail_prints_control_records_only_if_it_is_asked_to(
    cli: CommandLine,
    topic: Topic[Any],
    arguments: tuple[str, ...],
    flag: tuple[str, ...],
    expected: list[bytes],
) -> None:
    assert cli.tail(*arguments, *flag) == [value.decode() for value in expected]


def test_tail_as_json_shows_op_and_mode(cli: CommandLine, topic: Topic[Any]) -> None:
    shown = [msgspec.json.decode(line) for line in cli.tail("orders", "-o", "json", "--control")]
    assert [(each["op"], each["mode"]) for each in shown] == [
        ("insert", "copy"), ("noop", "complete"), ("update", "sync"), ("delete", "sync"),
        ("command", "sync"), ("noop", "sync"),
    ]  # fmt: skip


@pytest.mark.parametrize(("control", "count"), [(False, 2), (True, 3)])
def test_a_pipeline_appends_control_records_to_a_topic_only_if_it_is_told_to(
    tmp_path: Path, hub: Hub, control: bool, count: int
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "sales.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    pipeline = tailrace.Pipeline("shop", readers.file(f"{tmp_path}/in/*.jsonl"), engine="direct")
    sink = writers.topic("sales", create_partitions=1, control=control)
    pipeline.write("copies", sink).run(hub, once=True)
    records = list(hub.topic("sales").batches(0, 0, control=True))
    assert sum(each.num_rows for each in records) == count
