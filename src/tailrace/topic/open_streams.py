"""Whose turn it is: which streams of a topic a consumer may read, and which it has finished.

Everything that reads a topic in order asks here, and differs only in how it knows that a stream
is drained: that no readable record between its low-water mark and the end is unacknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tailrace.backend.contract import Bounds, Log
from tailrace.errors import UnknownTopic
from tailrace.topic.composite import Definition
from tailrace.topic.lineage import Stream, StreamState, walk


class Turns(NamedTuple):
    """The streams that are open, oldest storage topic first, and those that are finished.

    Whatever is in neither waits for one that it follows. From storage topic `oldest` on not all
    are finished, so nobody who goes forward has to look at those before it again.
    """

    open: list[Stream]
    finished: set[Stream]
    oldest: int


def held_streams(
    log: Log, topic: str, definition: Definition, oldest: int = 0
) -> dict[Stream, Bounds]:
    """What each stream holds, from a storage topic on up to the one that takes pushes.

    The newest storage topic is looked at first, so that whatever is pushed meanwhile lies above
    these ends, and behind all that they have of its key. Streams of deleted storage topics are left
    out. `UnknownTopic` when the topic itself is gone.
    """
    held: dict[Stream, Bounds] = {}
    for storage in reversed(range(oldest, definition.pointer + 1)):
        try:
            bounds = log.bounds_of(definition.storage_topic(topic, storage))
        except UnknownTopic:
            if storage == definition.pointer:
                raise
            continue
        held |= {(storage, number): each for number, each in enumerate(bounds)}
    return held


def turns(
    definition: Definition,
    held: Mapping[Stream, Bounds],
    drained: Callable[[Stream, Bounds], bool],
    oldest: int = 0,
) -> Turns:
    """Whose turn it is, where all streams of storage topics before `oldest` are finished.

    Streams that are not in `held` are deleted ones, which hold nothing back.
    """
    states = {
        (stream[0] - oldest, stream[1]): StreamState(bounds.sealed, drained(stream, bounds))
        for stream, bounds in held.items()
    }
    opened: list[Stream] = []
    finished: set[Stream] = set()
    unfinished = definition.pointer
    shapes = definition.storage[oldest : definition.pointer + 1]
    for (storage, number), is_free, is_finished in walk(definition.router, shapes, states):
        stream = oldest + storage, number
        if is_finished:
            finished.add(stream)
            continue
        if stream[0] < unfinished:
            unfinished = stream[0]
        if is_free and stream in held:
            opened.append(stream)
    return Turns(opened, finished, unfinished)
