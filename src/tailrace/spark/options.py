"""The options of the data source, named as those of Spark's Kafka source are."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from tailrace.errors import ConfigError, InvalidValue
from tailrace.size import parse_size
from tailrace.spark.offsets import Edge, Named, parse_edge
from tailrace.topic.composite import check_name
from tailrace.topic.edge import Extreme, Moment
from tailrace.topic.moment import parse_moment

# What a reading has, what only a batch or a stream has, and what a writing has.
READ: Final = (
    "hub",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
)
BATCH: Final = ("endingOffsets",)
STREAM: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")
WRITE: Final = ("hub", "topic")
# What Spark hands to a sink though it is its own.
_SPARK: Final = ("checkpointLocation",)


class Reading(Enum):
    """In which way a topic is read; `EITHER` before Spark has said which."""

    BATCH = "a batch"
    STREAM = "a stream"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read. Without a limit, a trigger reads all there is."""

    hub: str
    topics: tuple[str, ...]
    pattern: str | None
    starting: Edge
    ending: Edge
    offsets_max: int | None
    bytes_max: int | None
    partitions_min: int
    fail_on_data_loss: bool
    include_headers: bool

    def subscribed(self, known: Iterable[str]) -> list[str]:
        """The topics to read: those that are named, or those of `known` that match."""
        if self.pattern is None:
            return list(self.topics)
        return [topic for topic in known if self.subscribes(topic)]

    def subscribes(self, topic: str) -> bool:
        """Whether a topic of this name is to be read."""
        if self.pattern is None:
            return topic in self.topics
        return re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where to write. Without a topic, each row names its own."""

    hub: str
    topic: str | None


def read_options(options: Mapping[str, str], reading: Reading) -> ReadOptions:
    """Read and check them; `ConfigError` and `InvalidValue` say what is valid."""
    valid: tuple[str, ...] = READ
    if reading is not Reading.STREAM:
        valid += BATCH
    if reading is not Reading.BATCH:
        valid += STREAM
    given = _known(options, valid, reading)
    topics, pattern = _subscription(given)
    found = ReadOptions(
        hub=_hub(given),
        topics=topics,
        pattern=pattern,
        starting=_starting(given, reading),
        ending=_ending(given),
        offsets_max=_number(given.get("maxOffsetsPerTrigger"), "maxOffsetsPerTrigger"),
        bytes_max=_size(given.get("maxBytesPerTrigger")),
        partitions_min=_number(given.get("minPartitions"), "minPartitions") or 1,
        fail_on_data_loss=_switch(given, "failOnDataLoss", default=True),
        include_headers=_switch(given, "includeHeaders", default=False),
    )
    for name, edge in (("startingOffsets", found.starting), ("endingOffsets", found.ending)):
        for topic in edge.offsets if isinstance(edge, Named) else ():
            if not found.subscribes(topic):
                read = f"one that is read: {pattern or ', '.join(topics)}"
                raise InvalidValue(f"a topic of the option {name!r}", topic, read)
    return found


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Read and check them; `ConfigError` and `InvalidValue` say what is valid."""
    given = _known(options, WRITE + _SPARK, None)
    topic = given.get("topic")
    return WriteOptions(_hub(given), None if topic is None else check_name("topic", topic))


def _known(
    options: Mapping[str, str], valid: tuple[str, ...], reading: Reading | None
) -> dict[str, str]:
    """The options by their proper names, which Spark writes in lower case."""
    proper = {name.lower(): name for name in valid}
    found = {}
    for name, value in options.items():
        if name.lower() not in proper:
            raise _unknown(name, valid, reading)
        found[proper[name.lower()]] = value
    return found


def _unknown(name: str, valid: tuple[str, ...], reading: Reading | None) -> ConfigError:
    elsewhere = {other.lower(): other for other in READ + BATCH + STREAM + WRITE}
    if name.lower() in elsewhere:
        use = "writing" if reading is None else f"reading {reading.value}"
        first = f"the option {elsewhere[name.lower()]!r} has no meaning for {use}"
    else:
        first = f"the data source tailrace has no option {name!r}"
    names = {each.lower(): each for each in valid if each not in _SPARK}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    return ConfigError(
        first,
        f"did you mean {names[near[0]]!r}?" if near else "",
        f"valid: {', '.join(names.values())}",
    )


def _hub(given: Mapping[str, str]) -> str:
    if not given.get("hub"):
        raise ConfigError("the option 'hub' is missing", "valid: the directory of a hub")
    return str(Path(given["hub"]).absolute())


def _subscription(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    if ("subscribe" in given) == ("subscribePattern" in given):
        raise ConfigError(
            "one of the options 'subscribe' and 'subscribePattern' must say what to read",
            "valid: subscribe=orders,payments or subscribePattern=shop[.].*",
        )
    pattern = given.get("subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidValue(
                "the option 'subscribePattern'", pattern, f"a regular expression: {error}"
            ) from error
        return (), pattern
    names = [name.strip() for name in given["subscribe"].split(",")]
    return tuple(dict.fromkeys(check_name("topic", name) for name in names)), None


def _starting(given: Mapping[str, str], reading: Reading) -> Edge:
    if "startingTimestamp" in given:
        if "startingOffsets" in given:
            raise ConfigError(
                "both 'startingOffsets' and 'startingTimestamp' are given", "valid: one of them"
            )
        return Moment(_moment(given["startingTimestamp"]))
    if "startingOffsets" not in given:
        return Extreme.LATEST if reading is Reading.STREAM else Extreme.EARLIEST
    what = "the option 'startingOffsets'"
    edge = parse_edge(given["startingOffsets"], what, Extreme.EARLIEST)
    if edge is Extreme.LATEST and reading is Reading.BATCH:
        raise InvalidValue(what, "latest", "earliest or JSON: a batch would be empty")
    return edge


def _ending(given: Mapping[str, str]) -> Edge:
    what = "the option 'endingOffsets'"
    edge = parse_edge(given.get("endingOffsets", "latest"), what, Extreme.LATEST)
    if edge is Extreme.EARLIEST:
        raise InvalidValue(what, "earliest", "latest or JSON: a batch would be empty")
    return edge


def _moment(text: str) -> int:
    time_ms = int(text) if text.isascii() and text.isdecimal() else parse_moment(text)
    if time_ms is None:
        valid = "milliseconds since 1970 UTC, or ISO 8601 such as 2026-01-01T00:00Z"
        raise InvalidValue("the option 'startingTimestamp'", text, valid)
    return time_ms


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
