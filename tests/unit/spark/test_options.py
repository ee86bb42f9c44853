"""Options of the Spark data source: meanings and refusals."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from tailrace.errors import ConfigError, Error, InvalidName, InvalidValue
from tailrace.spark.offsets import (
    NamedOffsets,
    NamedTimes,
    TopicOffsets,
    from_json,
    parse_offset_option,
    to_json,
)
from tailrace.spark.options import (
    BATCH,
    READ,
    STREAM,
    WRITE,
    ReadMode,
    read_options,
    write_options,
)
from tailrace.topic.offset_spec import AtTime, Extreme

ORDERS = {"hub": "/hub", "subscribe": "orders"}


def test_a_batch_reads_all_records_by_default() -> None:
    options = read_options(ORDERS, ReadMode.BATCH)
    assert options.topics == ("orders",)
    assert (options.starting, options.ending) == (Extreme.EARLIEST, Extreme.LATEST)
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_a_stream_starts_at_the_latest_offset_by_default() -> None:
    assert read_options(ORDERS, ReadMode.STREAM).starting is Extreme.LATEST


def test_option_names_ignore_case() -> None:
    given = {"HUB": "/hub", "subscribepattern": "shop[.].*", "MaxOffsetsPerTrigger": "7"}
    options = read_options(given, ReadMode.STREAM)
    assert options.offsets_max == 7
    assert options.subscribed(["shop.orders", "shop", "myshop.orders"]) == ["shop.orders"]


def test_every_option_of_a_stream_is_read() -> None:
    options = read_options(
        {
            "hub": "/hub",
            "subscribe": "orders, payments,orders",
            "startingOffsets": '{"orders": {"0.3": 42, "1.7": -2}}',
            "maxOffsetsPerTrigger": "10",
            "maxBytesPerTrigger": "2MiB",
            "minPartitions": "8",
            "failOnDataLoss": "false",
            "includeHeaders": "TRUE",
        },
        ReadMode.STREAM,
    )
    assert options.topics == ("orders", "payments")
    assert options.starting == NamedOffsets({"orders": {(0, 3): 42, (1, 7): -2}}, Extreme.EARLIEST)
    assert (options.offsets_max, options.bytes_max, options.partitions_min) == (10, 2 << 20, 8)
    assert not options.fail_on_data_loss
    assert options.include_headers


@pytest.mark.parametrize("text", ["1767225600000", "2026-01-01T00:00Z", "2026-01-01T01:00+01:00"])
def test_a_timestamp_is_milliseconds_or_a_time(text: str) -> None:
    options = read_options(ORDERS | {"startingTimestamp": text}, ReadMode.BATCH)
    assert options.starting == AtTime(1767225600000)


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        ({"subscribes": "x"}, ConfigError, "no option 'subscribes' · did you mean 'subscribe'?"),
        ({"startingoffset": "x"}, ConfigError, "did you mean 'startingOffsets'?"),
        ({"pathname": "x"}, ConfigError, "valid: hub, path, subscribe,"),
        ({"topic": "x"}, ConfigError, "'topic' is not valid for reading a batch"),
        ({"maxOffsetsPerTrigger": "1"}, ConfigError, "is not valid for reading a batch"),
        ({"hub": ""}, ConfigError, "the option 'hub' is missing"),
        ({"subscribe": "a b"}, InvalidName, "'a b' is not a valid topic name"),
        ({"subscribePattern": "x"}, ConfigError, "one of the options"),
        ({"startingOffsets": "latest"}, InvalidValue, "a batch would be empty"),
        ({"endingOffsets": "earliest"}, InvalidValue, "a batch would be empty"),
        ({"startingOffsets": "7"}, InvalidValue, "valid: earliest, latest, or JSON"),
        ({"startingOffsets": '{"orders": {"3": 1}}'}, InvalidValue, "or JSON such as"),
        ({"startingOffsets": '{"orders": {"0.3": -3}}'}, InvalidValue, "-2 for the oldest"),
        ({"startingOffsets": '{"orders": {"0.3": "x"}}'}, InvalidValue, "or JSON such as"),
        ({"endingOffsets": '{"order": {"0.3": 1}}'}, InvalidValue, "one that is read: orders"),
        ({"startingTimestamp": "noon"}, InvalidValue, "milliseconds since 1970 UTC"),
        (
            {"startingTimestamp": "0", "startingOffsets": "earliest"},
            ConfigError,
            "valid: one of them",
        ),
        (
            {"startingTimestamp": "0", "startingOffsetsByTimestamp": "{}"},
            ConfigError,
            "'startingTimestamp' and 'startingOffsetsByTimestamp' exclude each other",
        ),
        (
            {"endingTimestamp": "0", "endingOffsets": "latest"},
            ConfigError,
            "'endingTimestamp' and 'endingOffsets' exclude each other",
        ),
        ({"endingTimestamp": "noon"}, InvalidValue, "the option 'endingTimestamp' is 'noon'"),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"0.3": "noon"}}'},
            InvalidValue,
            'valid: JSON such as {"orders": {"0.3": 1767225600000}}',
        ),
        ({"endingOffsetsByTimestamp": '{"pay": {"0.3": 1}}'}, InvalidValue, "one that is read"),
        ({"assign": '{"orders": ["0.3"]}'}, ConfigError, "'subscribePattern' and 'assign'"),
        ({"minOffsetsPerTrigger": "1"}, ConfigError, "is not valid for reading a batch"),
        ({"minPartitions": "0"}, InvalidValue, "a whole number, 1 or more"),
        ({"maxRecordsPerPartition": "0"}, InvalidValue, "a whole number, 1 or more"),
        ({"failOnDataLoss": "no"}, InvalidValue, "valid: true or false"),
    ],
)
def test_an_invalid_option_is_named_with_the_valid_values(
    changes: dict[str, str], kind: type[Error], says: str
) -> None:
    with pytest.raises(kind) as caught:
        read_options(ORDERS | changes, ReadMode.BATCH)
    assert says in str(caught.value)


def test_partitions_are_assigned_by_name() -> None:
    given = {"hub": "/hub", "assign": '{"orders": ["0.3", "1.7"], "payments": ["0.0"]}'}
    options = read_options(given, ReadMode.BATCH)
    assert options.topics == ("orders", "payments")
    assert options.assigned["orders"] == {(0, 3), (1, 7)}


@pytest.mark.parametrize("text", ["{}", '{"orders": []}', '{"orders": ["3"]}', '{"orders": [3]}'])
def test_an_assignment_that_names_no_partition_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="JSON such as"):
        read_options({"hub": "/hub", "assign": text}, ReadMode.BATCH)


def test_times_are_given_by_partition() -> None:
    times = '{"orders": {"0.3": 1767225600000, "1.7": "2026-01-01T00:00Z"}}'
    given = {"startingOffsetsByTimestamp": times, "endingOffsetsByTimestamp": times}
    options = read_options(ORDERS | given, ReadMode.BATCH)
    named = {"orders": {(0, 3): 1767225600000, (1, 7): 1767225600000}}
    assert options.starting == NamedTimes(named, Extreme.EARLIEST)
    assert options.ending == NamedTimes(named, Extreme.LATEST)


@pytest.mark.parametrize(
    ("given", "hub", "topic"),
    [
        ({"path": "/data/shop/orders"}, "/data/shop", "orders"),
        ({"path": "file:/data/shop/orders"}, "/data/shop", "orders"),
        ({"path": "/data/shop", "subscribe": "payments"}, "/data/shop", "payments"),
        ({"path": "/warehouse/t", "hub": "/data/shop", "subscribe": "orders"}, "/data/shop",
         "orders"),
    ],
)  # fmt: skip
def test_a_path_is_the_hub_and_the_topic(given: dict[str, str], hub: str, topic: str) -> None:
    options = read_options(given, ReadMode.BATCH)
    assert (options.hub, options.topics) == (hub, (topic,))


def test_a_trigger_waits_fifteen_minutes_unless_told_otherwise() -> None:
    waiting = ORDERS | {"minOffsetsPerTrigger": "10"}
    assert read_options(waiting, ReadMode.STREAM).trigger_delay_max == timedelta(minutes=15)
    soon = read_options(waiting | {"maxTriggerDelay": "30s"}, ReadMode.STREAM)
    assert soon.trigger_delay_max == timedelta(seconds=30)
    with pytest.raises(ConfigError, match="valid: with minOffsetsPerTrigger"):
        read_options(ORDERS | {"maxTriggerDelay": "30s"}, ReadMode.STREAM)
    with pytest.raises(InvalidValue, match="at most maxOffsetsPerTrigger, 9"):
        read_options(waiting | {"maxOffsetsPerTrigger": "9"}, ReadMode.STREAM)


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(InvalidValue, match="a regular expression"):
        read_options({"hub": "/hub", "subscribePattern": "("}, ReadMode.STREAM)


@pytest.mark.parametrize("size", ["0", "much"])
def test_an_invalid_size_is_refused(size: str) -> None:
    with pytest.raises(InvalidValue, match="maxBytesPerTrigger"):
        read_options(ORDERS | {"maxBytesPerTrigger": size}, ReadMode.STREAM)


def test_ending_offsets_have_no_meaning_for_a_stream() -> None:
    with pytest.raises(ConfigError, match="'endingOffsets' is not valid for reading a stream"):
        read_options(ORDERS | {"endingOffsets": "latest"}, ReadMode.STREAM)


def test_a_write_has_a_hub_and_optionally_a_topic() -> None:
    assert write_options({"hub": "/hub", "checkpointlocation": "x"}).topic is None
    assert write_options({"hub": "/hub", "topic": "orders"}).topic == "orders"
    with pytest.raises(ConfigError, match="'subscribe' is not valid for writing"):
        write_options(ORDERS)
    with pytest.raises(InvalidName):
        write_options({"hub": "/hub", "topic": "../x"})


def test_progress_is_written_in_order_and_read_again() -> None:
    progress = {
        "b": TopicOffsets("id-b", {(1, 0): 5, (0, 10): 7, (0, 9): 3}),
        "a": TopicOffsets("i", {}),
    }
    written = to_json(progress)
    assert list(written) == ["a", "b"]
    assert list(written["b"].items()) == [
        ("identity", "id-b"), ("0.9", 3), ("0.10", 7), ("1.0", 5),
    ]  # fmt: skip
    assert from_json(written) == progress


def test_the_offsets_that_spark_reports_of_a_query_can_start_another() -> None:
    reported = '{"orders": {"identity": "9f", "0.0": 10}}'
    spec = parse_offset_option(reported, "startingOffsets", Extreme.EARLIEST)
    assert spec == NamedOffsets({"orders": {(0, 0): 10}}, Extreme.EARLIEST)


def test_every_option_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    _, _, options = page.partition("\n## Options\n")
    reading, _, writing = options.partition("\n## ")[0].partition("| option for writing |")
    name = re.compile(r"^\| `(\w+)`", re.MULTILINE)
    assert set(name.findall(reading)) == {*READ, *BATCH, *STREAM}
    assert set(name.findall(writing)) == {*WRITE}
