"""Options of the Spark data source: what they mean, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tailrace.errors import ConfigError, Error, InvalidName, InvalidValue
from tailrace.spark.offsets import (
    Named,
    Progress,
    from_json,
    parse_edge,
    to_json,
)
from tailrace.spark.options import (
    BATCH,
    READ,
    STREAM,
    WRITE,
    Reading,
    read_options,
    write_options,
)
from tailrace.topic.edge import Extreme, Moment

ORDERS = {"hub": "/hub", "subscribe": "orders"}


def test_a_batch_reads_all_there_is_unless_told_otherwise() -> None:
    options = read_options(ORDERS, Reading.BATCH)
    assert options.topics == ("orders",)
    assert (options.starting, options.ending) == (Extreme.EARLIEST, Extreme.LATEST)
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_a_stream_begins_with_what_comes_unless_told_otherwise() -> None:
    assert read_options(ORDERS, Reading.STREAM).starting is Extreme.LATEST


def test_names_are_read_whatever_their_case() -> None:
    given = {"HUB": "/hub", "subscribepattern": "shop[.].*", "MaxOffsetsPerTrigger": "7"}
    options = read_options(given, Reading.STREAM)
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
        Reading.STREAM,
    )
    assert options.topics == ("orders", "payments")
    assert options.starting == Named({"orders": {(0, 3): 42, (1, 7): -2}}, Extreme.EARLIEST)
    assert (options.offsets_max, options.bytes_max, options.partitions_min) == (10, 2 << 20, 8)
    assert not options.fail_on_data_loss
    assert options.include_headers


@pytest.mark.parametrize("text", ["1767225600000", "2026-01-01T00:00Z", "2026-01-01T01:00+01:00"])
def test_a_moment_is_milliseconds_or_a_time(text: str) -> None:
    options = read_options(ORDERS | {"startingTimestamp": text}, Reading.BATCH)
    assert options.starting == Moment(1767225600000)


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        ({"subscribes": "x"}, ConfigError, "no option 'subscribes' · did you mean 'subscribe'?"),
        ({"startingoffset": "x"}, ConfigError, "did you mean 'startingOffsets'?"),
        ({"path": "x"}, ConfigError, "valid: hub, subscribe,"),
        ({"topic": "x"}, ConfigError, "'topic' has no meaning for reading a batch"),
        ({"maxOffsetsPerTrigger": "1"}, ConfigError, "has no meaning for reading a batch"),
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
        ({"minPartitions": "0"}, InvalidValue, "a whole number, 1 or more"),
        ({"failOnDataLoss": "no"}, InvalidValue, "valid: true or false"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_valid(
    changes: dict[str, str], kind: type[Error], says: str
) -> None:
    with pytest.raises(kind) as caught:
        read_options(ORDERS | changes, Reading.BATCH)
    assert says in str(caught.value)


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(InvalidValue, match="a regular expression"):
        read_options({"hub": "/hub", "subscribePattern": "("}, Reading.STREAM)


@pytest.mark.parametrize("size", ["0", "much"])
def test_a_size_that_is_none_is_refused(size: str) -> None:
    with pytest.raises(InvalidValue, match="maxBytesPerTrigger"):
        read_options(ORDERS | {"maxBytesPerTrigger": size}, Reading.STREAM)


def test_ending_offsets_have_no_meaning_for_a_stream() -> None:
    with pytest.raises(ConfigError, match="'endingOffsets' has no meaning for reading a stream"):
        read_options(ORDERS | {"endingOffsets": "latest"}, Reading.STREAM)


def test_a_writing_has_a_hub_and_perhaps_a_topic() -> None:
    assert write_options({"hub": "/hub", "checkpointlocation": "x"}).topic is None
    assert write_options({"hub": "/hub", "topic": "orders"}).topic == "orders"
    with pytest.raises(ConfigError, match="'subscribe' has no meaning for writing"):
        write_options(ORDERS)
    with pytest.raises(InvalidName):
        write_options({"hub": "/hub", "topic": "../x"})


def test_progress_is_written_in_order_and_read_again() -> None:
    progress = {"b": Progress("id-b", {(1, 0): 5, (0, 10): 7, (0, 9): 3}), "a": Progress("i", {})}
    written = to_json(progress)
    assert list(written) == ["a", "b"]
    assert list(written["b"].items()) == [
        ("identity", "id-b"), ("0.9", 3), ("0.10", 7), ("1.0", 5),
    ]  # fmt: skip
    assert from_json(written) == progress


def test_what_spark_reports_of_a_query_can_be_where_another_begins() -> None:
    reported = '{"orders": {"identity": "9f", "0.0": 10}}'
    edge = parse_edge(reported, "startingOffsets", Extreme.EARLIEST)
    assert edge == Named({"orders": {(0, 0): 10}}, Extreme.EARLIEST)


def test_every_option_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    _, _, options = page.partition("\n## Options\n")
    reading, _, writing = options.partition("\n## ")[0].partition("| writing |")
    name = re.compile(r"^\| `(\w+)`", re.MULTILINE)
    assert set(name.findall(reading)) == {*READ, *BATCH, *STREAM}
    assert set(name.findall(writing)) == {*WRITE}
