"""A message to push together with others: an alternative to a pair of key and value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tailrace.topic.record_builder import Headers, Key, Time

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Envelope(Generic[T]):
    """A message with its key, headers and time, for `push_many`.

    `timestamp` is the time of its insertion; without one it is the time of the push.
    """

    value: T
    key: Key = None
    headers: Headers = None
    timestamp: Time = None
