"""Filters of a query that the source applies itself, so that other records are not read.

Spark passes the conditions of a query on single columns. Those on `topic`, `storage` and
`partition` choose partitions, those on `offset` and `timestamp` narrow the range of each, and the
rest of the last two is checked row by row. Conditions on other columns stay with Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from tailrace.backend.capabilities import HasSegments
from tailrace.message import Partition
from tailrace.spark.admission import Lag

_COLUMNS: Final = ("topic", "storage", "partition", "offset", "timestamp")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_Value: TypeAlias = int | str


@dataclass(frozen=True, slots=True)
class Condition:
    """The values of a column that a filter lets pass: from `low` up to, not including, `high`, and
    one of `chosen`. None does not limit them. Times are in microseconds since 1970."""

    low: int | None = None
    high: int | None = None
    chosen: frozenset[_Value] | None = None

    def allows(self, value: Any) -> bool:
        """True if a value passes."""
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value < self.high)
            and (self.chosen is None or value in self.chosen)
        )

    def both(self, other: Condition) -> Condition:
        """Return the condition that a value passes if it passes both."""
        low = max((each for each in (self.low, other.low) if each is not None), default=None)
        high = min((each for each in (self.high, other.high) if each is not None), default=None)
        if self.chosen is None or other.chosen is None:
            chosen = other.chosen if self.chosen is None else self.chosen
        else:
            chosen = self.chosen & other.chosen
        return Condition(low, high, chosen)

    def span(self) -> tuple[int | None, int | None]:
        """Return the least range that has all values that pass: its start and its end."""
        if self.chosen is None:
            return self.low, self.high
        numbers = [each for each in self.chosen if isinstance(each, int) and self.allows(each)]
        return (min(numbers), max(numbers) + 1) if numbers else (0, 0)


_EVERYTHING: Final = Condition()


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The conditions of a query, by column."""

    conditions: Mapping[str, Condition] = field(default_factory=dict)

    def allows(self, partition: Partition) -> bool:
        """True if records of a partition can pass."""
        topic, storage, number = partition
        values = {"topic": topic, "storage": storage, "partition": number}
        return all(self._of(column).allows(value) for column, value in values.items())

    def narrow(self, log: HasSegments, lags: Iterable[Lag]) -> list[Lag]:
        """Return the parts of lags that can have records that pass; one part of a lag, or none."""
        parts = (self._within(log, lag) for lag in lags if self.allows(lag.partition))
        return [part for part in parts if part.at < part.end]

    def _within(self, log: HasSegments, lag: Lag) -> Lag:
        low, high = self._of("offset").span()
        at = lag.at if low is None else max(lag.at, low)
        end = lag.end if high is None else min(lag.end, high)
        if at < end and "timestamp" in self.conditions:
            at, end = self._within_times(log, Lag(lag.partition, at, end))
        return Lag(lag.partition, at, end)

    def _within_times(self, log: HasSegments, lag: Lag) -> tuple[int, int]:
        """Return the range from the first batch that can have a time that passes to the last."""
        low, high = self._of("timestamp").span()
        at, end = lag.end, lag.end
        for _, entries in log.entries(lag.partition, lag.at):
            for entry in entries:
                if entry.base >= lag.end:
                    return at, end
                is_late = low is not None and entry.last_timestamp * 1000 < low
                is_early = high is not None and entry.first_timestamp * 1000 >= high
                if is_late or is_early:
                    continue
                if at == lag.end:
                    at = max(entry.base, lag.at)
                end = min(entry.base + entry.records, lag.end)
        return at, end

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that pass. The batch has the columns that Spark reads."""
        for column in ("offset", "timestamp"):
            if column in self.conditions:
                batch = batch.filter(_mask(batch[column], self.conditions[column]))
        return batch

    def _of(self, column: str) -> Condition:
        return self.conditions.get(column, _EVERYTHING)


def push_filters(filters: Sequence[Filter]) -> tuple[PushedFilters, list[Filter]]:
    """Return the conditions of the filters that the source applies, and all other filters."""
    conditions: dict[str, Condition] = {}
    rest = []
    for each in filters:
        column = _column(each)
        condition = None if column is None else _condition(column, each)
        if column is None or condition is None:
            rest.append(each)
        elif condition != _EVERYTHING:
            conditions[column] = conditions.get(column, _EVERYTHING).both(condition)
    return PushedFilters(conditions), rest


def needs_rows(given: Filter) -> bool:
    """True if a filter that `push_filters` accepts must be checked row by row: batches that can
    match have other records too."""
    column = _column(given)
    several = isinstance(given, In) and len(given.value) > 1
    return column == "timestamp" or (column == "offset" and several)


def _column(given: Filter) -> str | None:
    path: tuple[str, ...] = getattr(given, "attribute", ())
    return path[0] if len(path) == 1 and path[0] in _COLUMNS else None


def _condition(column: str, given: Filter) -> Condition | None:
    """Return the values that a filter lets pass; None if the source cannot apply it."""
    if isinstance(given, IsNotNull):
        return _EVERYTHING  # No value of these columns is null.
    if isinstance(given, In):
        values = [_value(column, each) for each in given.value if each is not None]
        chosen = frozenset(each for each in values if each is not None)
        return None if None in values else Condition(chosen=chosen)
    value = _value(column, getattr(given, "value", None))
    if value is None:
        return None
    if isinstance(given, EqualTo | EqualNullSafe):
        return Condition(chosen=frozenset([value]))
    if not isinstance(value, int):
        return None
    if isinstance(given, GreaterThanOrEqual | GreaterThan):
        return Condition(low=value + isinstance(given, GreaterThan))
    if isinstance(given, LessThan | LessThanOrEqual):
        return Condition(high=value + isinstance(given, LessThanOrEqual))
    return None


def _value(column: str, given: Any) -> _Value | None:
    """Return a value as conditions have it; None if it is not of the type of its column."""
    if column == "timestamp":
        aware = isinstance(given, datetime) and given.tzinfo is not None
        return (given - _EPOCH) // _MICROSECOND if aware else None
    kind = str if column == "topic" else int
    return given if isinstance(given, kind) and not isinstance(given, bool) else None


def _mask(column: pa.Array[Any], condition: Condition) -> pa.Array[Any]:
    numbers = column.cast(pa.int64()).to_numpy()
    mask = np.ones(len(numbers), np.bool_)
    if condition.low is not None:
        mask &= numbers >= condition.low
    if condition.high is not None:
        mask &= numbers < condition.high
    if condition.chosen is not None:
        mask &= np.isin(numbers, list(condition.chosen))
    return pa.array(mask)
