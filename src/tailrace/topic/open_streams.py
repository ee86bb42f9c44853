"""Open streams: which streams of a topic a consumer may read, and which it has finished.

All code that reads a topic in order uses these functions. Callers differ only in how they know that
a stream is drained: no readable record between its low-water mark and the end is unacknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tailrace.backend.contract import Bounds, Log, StorageTopic
from tailrace.errors import UnknownTopic
from tailrace.topic.composite import Definition
from tailrace.topic.lineage import Stream, StreamState, walk


class OpenStreams(NamedTuple):
    """The open streams, oldest storage topic first, and the finished streams.

    All other streams wait for a stream that they follow. All streams of storage topics before
    `oldest` are finished, so a consumer that only moves forward need not check them again.
    """

    open: list[Stream]
    finished: set[Stream]
    oldest: int


def held_storage_topics(
    log: Log, topic: str, definition: Definition, oldest: int = 0
) -> Iterator[tuple[StorageTopic, list[Bounds]]]:
    """Yield the storage topics of a topic, from `oldest` on, with the bounds of their partitions.

    The newest comes first. Deleted ones are left out, also those that were deleted after the
    definition was read. `UnknownTopic` if the topic itself was deleted.
    """
    for storage in reversed(list(definition.storage_topics(topic))):
        if storage.storage < oldest:
            return
        try:
            bounds = log.bounds_of(storage)
        except UnknownTopic:
            if storage.storage >= definition.pointer:
                raise
            continue
        yield storage, bounds


def held_streams(
    log: Log, topic: str, definition: Definition, oldest: int = 0
) -> dict[Stream, Bounds]:
    """Return the bounds of each stream, from storage topic `oldest` up to the one of the pointer.

    Reads the newest storage topic first, so that messages pushed meanwhile are above these ends,
    and after all messages of their key below them. Streams of deleted storage topics are left out.
    `UnknownTopic` if the topic itself was deleted.
    """
    held: dict[Stream, Bounds] = {}
    for storage, bounds in held_storage_topics(log, topic, definition, oldest):
        if storage.storage <= definition.pointer:
            held |= {(storage.storage, number): each for number, each in enumerate(bounds)}
    return held


def find_open_streams(
    definition: Definition,
    held: Mapping[Stream, Bounds],
    drained: Callable[[Stream, Bounds], bool],
    oldest: int = 0,
) -> OpenStreams:
    """Return the open and finished streams, if all streams before `oldest` are finished.

    Streams that are not in `held` were deleted; they block no other stream.
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
    return OpenStreams(opened, finished, unfinished)
