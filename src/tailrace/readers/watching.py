"""Watching: finds files with new names, and says which split reads which file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from tailrace.errors import InvalidValue
from tailrace.readers.copies import Newcomers
from tailrace.readers.file_source import FileSource
from tailrace.readers.files import FileInfo, Listing
from tailrace.readers.following import FollowData
from tailrace.readers.place import Place
from tailrace.readers.registry import Census, Registry
from tailrace.source.reader import BadRecord, Batch, Split, Until

WATCH = "watch"


class WatchData(msgspec.Struct, frozen=True):
    """What there was at the discovery, and the namespaces that are copied since then."""

    registry: Registry
    copied: tuple[str, ...]


class Watch:
    """The watch split. Its position, the registry, is written only when something new appears."""

    def __init__(self, source: FileSource, split: Split, position: Registry | None) -> None:
        self._source = source
        data = msgspec.convert(split.data, WatchData)
        self._copied = frozenset(data.copied)
        self._census = Census(position or data.registry, source.beginning_of)
        self._newcomers = Newcomers(patient=source.until is Until.STOPPED)
        self._places: dict[str, Place] = {}

    def batches(self) -> Iterator[Batch | None]:
        """New files, look by look, each as a split that follows its name."""
        source = self._source
        # First what became of the known files: only then can be told what a new one is.
        listing = source.look()
        yield from self._take(listing, lambda _: False)
        yield from self._take(listing, partial(self._is_due, listing))
        while source.until is Until.STOPPED:
            if listing is not (listing := source.look()):
                yield from self._take(listing, partial(self._is_due, listing))
                self._newcomers.forget(listing)
            yield None

    def _take(self, listing: Listing, is_due: Callable[[FileInfo], bool]) -> Iterator[Batch]:
        """Store what a look has found, if it is new, and let others act on it."""
        source = self._source
        rewritten = frozenset(source.rewritten)
        self._places = {}
        registry, new = self._census.take(
            listing, is_due, source.held(), rewritten, source.waiting()
        )
        self._keep_new(listing, registry)
        if registry != self._census.registry:
            yield self._batch(registry, new)
            self._census.registry = registry
        source.rewritten -= rewritten
        source.publish(listing, self._census.registry)

    def _keep_new(self, listing: Listing, registry: Registry) -> None:
        """Hold the files open that are known only now: they may be gone when their turn comes."""
        for file in listing:
            known, before = registry.known(file), self._census.registry.known(file)
            if known is None or (before is not None and known.is_at(before.split, before.turn)):
                continue
            with contextlib.suppress(InvalidValue):
                self._source.format_of(file.path)
                self._source.keep(file)

    def _is_due(self, listing: Listing, file: FileInfo) -> bool:
        """Whether the reading of a new file can begin; its place is noted then."""
        opened = self._source.open(file.path)
        if opened is None:
            return False
        followed, held = self._source.followed.values(), self._source.held()
        try:
            place = self._newcomers.place_of(file, opened, listing, followed, held)
        finally:
            opened.close()
        if place is not None:
            self._places[file.path] = place
        return place is not None

    def _batch(self, registry: Registry, new: list[tuple[str, FileInfo]]) -> Batch:
        children: list[Split] = []
        bad: list[BadRecord] = []
        for split, file in new:
            namespace = self._source.namespace_of(file.path)
            try:
                self._source.format_of(file.path)
            except InvalidValue as error:
                bad.append(BadRecord(namespace, file.path, str(error), b""))
                continue
            data = FollowData(file.path, namespace, self._places[file.path], split)
            # Rows of a namespace that is being copied come behind the copy.
            follows = (f"copy:{namespace}",) if namespace in self._copied else ()
            children.append(Split(split, msgspec.to_builtins(data), follows))
        return Batch(None, msgspec.to_builtins(registry), bad, children=tuple(children))
