"""The options of the data source, named as those of Spark's Kafka source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from tailrace.duration import parse_duration
from tailrace.errors import ConfigError, InvalidValue
from tailrace.size import parse_size
from tailrace.spark.offsets import (
    OffsetOption,
    named_streams,
    parse_assignment,
    parse_offset_option,
    parse_times_option,
)
from tailrace.suggestion import did_you_mean
from tailrace.topic.composite import check_name
from tailrace.topic.lineage import Stream
from tailrace.topic.offset_spec import AtTime, Extreme, parse_time

# The options of every read, of batches only, of streams only, and of writes.
READ: Final = (
    "hub",
    "path",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "includeControl",
)
BATCH: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
STREAM: Final = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
WRITE: Final = ("hub", "topic", "staging", "anyType", "txnAppId", "txnVersion")
# Options of Spark itself that it passes to a sink.
_SPARK: Final = ("checkpointLocation", "queryName")
# Properties of a table that Spark passes as options to the source while it creates the table.
_TABLE: Final = ("collation", "comment", "external", "is_managed_location", "location", "owner",
                 "provider", "table_type")  # fmt: skip


TRIGGER_DELAY_MAX: Final = timedelta(minutes=15)
"""How long a trigger waits for `minOffsetsPerTrigger`, unless `maxTriggerDelay` says otherwise."""

_SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")


class ReadMode(Enum):
    """How a topic is read; `EITHER` while that is not known."""

    BATCH = "a batch"
    STREAM = "a stream"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read. Without a limit, a trigger reads all records.

    `assigned` has the streams to read of each topic, if a user chose them.
    """

    hub: str
    topics: tuple[str, ...]
    pattern: str | None
    assigned: Mapping[str, frozenset[Stream]]
    starting: OffsetOption
    ending: OffsetOption
    offsets_max: int | None
    bytes_max: int | None
    offsets_min: int | None
    trigger_delay_max: timedelta
    partitions_min: int
    records_max: int | None
    fail_on_data_loss: bool
    include_headers: bool
    include_control: bool

    def subscribed(self, known: Iterable[str]) -> list[str]:
        """Return the topics to read: the named ones, or those of `known` that match the pattern."""
        if self.pattern is None:
            return list(self.topics)
        return [topic for topic in known if self.subscribes(topic)]

    def subscribes(self, topic: str) -> bool:
        """True if a topic of this name is to be read."""
        if self.pattern is None:
            return topic in self.topics
        return re.fullmatch(self.pattern, topic) is not None


class NumberedWrite(NamedTuple):
    """An application that numbers its batch writes itself, and the number of this one."""

    application: str
    version: int


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where to write. Without a topic, each row names its topic.

    With `any_type`, values for a topic of JSON need not be JSON.
    `numbered` is the number of a batch write, if its application numbers its writes.
    `checkpoint` and `query_name` are what Spark says about a stream.
    """

    hub: str
    topic: str | None
    staging: Path | None
    any_type: bool
    numbered: NumberedWrite | None
    checkpoint: str | None
    query_name: str | None


def read_options(options: Mapping[str, str], mode: ReadMode) -> ReadOptions:
    """Parse and check the options of a read; `ConfigError` and `InvalidValue` say what is valid."""
    valid: tuple[str, ...] = READ
    if mode is not ReadMode.STREAM:
        valid += BATCH
    if mode is not ReadMode.BATCH:
        valid += STREAM
    if not options:
        raise _no_options()
    given = _without_path(_known(_without_table(options), valid, mode))
    topics, pattern, assigned = _subscription(given)
    found = ReadOptions(
        hub=_hub(given),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=_starting(given, mode),
        ending=_ending(given),
        offsets_max=_number(given.get("maxOffsetsPerTrigger"), "maxOffsetsPerTrigger"),
        bytes_max=_size(given.get("maxBytesPerTrigger")),
        offsets_min=_number(given.get("minOffsetsPerTrigger"), "minOffsetsPerTrigger"),
        trigger_delay_max=_trigger_delay(given),
        records_max=_number(given.get("maxRecordsPerPartition"), "maxRecordsPerPartition"),
        partitions_min=_number(given.get("minPartitions"), "minPartitions") or 1,
        fail_on_data_loss=_switch(given, "failOnDataLoss", default=True),
        include_headers=_switch(given, "includeHeaders", default=False),
        include_control=_switch(given, "includeControl", default=False),
    )
    for name, spec in (("starting", found.starting), ("ending", found.ending)):
        for topic in named_streams(spec):
            if not found.subscribes(topic):
                read = f"one that is read: {pattern or ', '.join(topics)}"
                raise InvalidValue(f"a topic of the {name} offsets", topic, read)
    if found.offsets_min and found.offsets_max and found.offsets_min > found.offsets_max:
        at_most = f"at most maxOffsetsPerTrigger, {found.offsets_max}"
        raise InvalidValue("the option 'minOffsetsPerTrigger'", found.offsets_min, at_most)
    return found


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse and check the options of a write.

    `ConfigError` and `InvalidValue` say what is valid.
    """
    given = _known(options, WRITE + _SPARK, None)
    topic, staging = given.get("topic"), given.get("staging")
    return WriteOptions(
        hub=_hub(given),
        topic=None if topic is None else check_name("topic", topic),
        staging=None if staging is None else Path(staging).absolute(),
        any_type=_switch(given, "anyType", default=False),
        numbered=_numbered(given),
        checkpoint=given.get("checkpointLocation"),
        query_name=given.get("queryName"),
    )


def _numbered(given: Mapping[str, str]) -> NumberedWrite | None:
    name, version = given.get("txnAppId"), given.get("txnVersion")
    if name is None and version is None:
        return None
    if not name or version is None:
        raise ConfigError(
            "only one of the options 'txnAppId' and 'txnVersion' is given", "valid: both or none"
        )
    if not (version.isascii() and version.isdecimal()):
        raise InvalidValue("the option 'txnVersion'", version, "a whole number, 0 or more")
    return NumberedWrite(name, int(version))


def _known(
    options: Mapping[str, str], valid: tuple[str, ...], mode: ReadMode | None
) -> dict[str, str]:
    """Return the options by their proper names; Spark passes them in lower case."""
    proper = {name.lower(): name for name in valid}
    found = {}
    for name, value in options.items():
        if name.lower() not in proper:
            raise _unknown(name, valid, mode)
        found[proper[name.lower()]] = value
    return found


def _unknown(name: str, valid: tuple[str, ...], mode: ReadMode | None) -> ConfigError:
    elsewhere = {other.lower(): other for other in READ + BATCH + STREAM + WRITE}
    if name.lower() in elsewhere:
        use = "writing" if mode is None else f"reading {mode.value}"
        first = f"the option {elsewhere[name.lower()]!r} is not valid for {use}"
    else:
        first = f"the data source tailrace has no option {name!r}"
    names = [each for each in valid if each not in _SPARK]
    return ConfigError(
        first,
        did_you_mean(name, names),
        f"valid: {', '.join(names)}",
    )


def _hub(given: Mapping[str, str]) -> str:
    if not given.get("hub"):
        raise ConfigError("the option 'hub' is missing", "valid: the directory of a hub")
    return str(Path(given["hub"]).absolute())


def _no_options() -> ConfigError:
    return ConfigError(
        "the options are missing",
        "valid: at least hub and subscribe",
        "Spark passes the options of CREATE TABLE only after tailrace.spark.register(spark)",
    )


def _without_table(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options without the properties of the table that Spark creates, if it does."""
    if "provider" not in options:
        return options
    given = {name: value for name, value in options.items() if name.lower() not in _TABLE}
    return {name: value for name, value in given.items() if not name.startswith("option.")}


def _without_path(given: dict[str, str]) -> dict[str, str]:
    """Return the options with `path` as those that it stands for.

    It is the directory of the hub, followed by the topic unless another option chooses topics.
    Spark adds a path of its own to tables, so `hub` comes first.
    """
    path = given.pop("path", None)
    if path is None or "hub" in given:
        return given
    path = path.removeprefix("file:")
    if any(name in given for name in _SUBSCRIPTIONS):
        return given | {"hub": path}
    hub, topic = str(Path(path).parent), Path(path).name
    return given | {"hub": hub, "subscribe": topic}


def _subscription(
    given: Mapping[str, str],
) -> tuple[tuple[str, ...], str | None, dict[str, frozenset[Stream]]]:
    if sum(name in given for name in _SUBSCRIPTIONS) != 1:
        raise ConfigError(
            "exactly one of the options 'subscribe', 'subscribePattern' and 'assign' is needed",
            "valid: subscribe=orders,payments or subscribePattern=shop[.].*"
            ' or assign={"orders": ["0.3"]}',
        )
    if "assign" in given:
        assigned = parse_assignment(given["assign"], "the option 'assign'")
        return tuple(check_name("topic", name) for name in assigned), None, assigned
    pattern = given.get("subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidValue(
                "the option 'subscribePattern'", pattern, f"a regular expression: {error}"
            ) from error
        return (), pattern, {}
    names = [name.strip() for name in given["subscribe"].split(",")]
    return tuple(dict.fromkeys(check_name("topic", name) for name in names)), None, {}


def _starting(given: Mapping[str, str], mode: ReadMode) -> OffsetOption:
    default = "latest" if mode is ReadMode.STREAM else "earliest"
    spec = _place(given, "starting", default, Extreme.EARLIEST)
    if spec is Extreme.LATEST and mode is ReadMode.BATCH:
        valid = "earliest or JSON: a batch would be empty"
        raise InvalidValue("the option 'startingOffsets'", "latest", valid)
    return spec


def _ending(given: Mapping[str, str]) -> OffsetOption:
    spec = _place(given, "ending", "latest", Extreme.LATEST)
    if spec is Extreme.EARLIEST:
        valid = "latest or JSON: a batch would be empty"
        raise InvalidValue("the option 'endingOffsets'", "earliest", valid)
    return spec


def _place(given: Mapping[str, str], end: str, default: str, rest: Extreme) -> OffsetOption:
    """Return where a read starts or ends. A partition that is not named is read from or to `rest`.

    Kafka's source takes the most general option if several are given; here that is an error.
    """
    names = (f"{end}Timestamp", f"{end}OffsetsByTimestamp", f"{end}Offsets")
    chosen = [name for name in names if name in given]
    if len(chosen) > 1:
        both = " and ".join(map(repr, chosen))
        raise ConfigError(f"the options {both} exclude each other", "valid: one of them")
    name = chosen[0] if chosen else names[-1]
    text, what = given.get(name, default), f"the option {name!r}"
    if name == names[0]:
        return AtTime(_time_ms(text, what))
    parse = parse_times_option if name == names[1] else parse_offset_option
    return parse(text, what, rest)


def _time_ms(text: str, what: str) -> int:
    time_ms = int(text) if text.isascii() and text.isdecimal() else parse_time(text)
    if time_ms is None:
        valid = "milliseconds since 1970 UTC, or ISO 8601 such as 2026-01-01T00:00Z"
        raise InvalidValue(what, text, valid)
    return time_ms


def _trigger_delay(given: Mapping[str, str]) -> timedelta:
    if "maxTriggerDelay" not in given:
        return TRIGGER_DELAY_MAX
    if "minOffsetsPerTrigger" not in given:
        raise ConfigError(
            "the option 'maxTriggerDelay' has no meaning alone",
            "valid: with minOffsetsPerTrigger",
        )
    return parse_duration(given["maxTriggerDelay"], "the option 'maxTriggerDelay'")


def _number(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise InvalidValue(f"the option {name!r}", text, "a whole number, 1 or more")
    return int(text)


def _size(text: str | None) -> int | None:
    what = "the option 'maxBytesPerTrigger'"
    size = None if text is None else parse_size(text, what)
    if size == 0:
        raise InvalidValue(what, text, "1 or more, such as 64MiB")
    return size


def _switch(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidValue(f"the option {name!r}", text, "true or false")
    return text == "true"
