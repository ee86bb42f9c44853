"""The watch split: finds files with new names, and registers which split reads which file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from tailrace.errors import InvalidValue
from tailrace.readers.file.copied_file import CopiedFile
from tailrace.readers.file.copy import copy_id
from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import FileInfo, Listing
from tailrace.readers.file.follow import FileFollower, FollowData
from tailrace.readers.file.registry import FileRegistry, RegistryUpdater
from tailrace.readers.file.rotation import StartFinder
from tailrace.readers.file.session_state import FileSessionState
from tailrace.source.reader import BadRecord, Batch, Split, Until

WATCH = "watch"


class WatchData(msgspec.Struct, frozen=True):
    """The registry at the discovery, and the namespaces that are copied since then."""

    registry: FileRegistry
    copied: tuple[str, ...]


class FileWatch:
    """The watch split. Its position is the registry, stored only when it changes."""

    def __init__(
        self, state: FileSessionState, split: Split, position: FileRegistry | None
    ) -> None:
        self._state = state
        self._split = split
        data = msgspec.convert(split.data, WatchData)
        self._copied = frozenset(data.copied)
        self._updater = RegistryUpdater(position or data.registry, state.read_start)
        self._start_finder = StartFinder(patient=state.until is Until.STOPPED)
        self._starts: dict[str, FilePosition] = {}

    def batches(self) -> Iterator[Batch | None]:
        """Yield new files, poll by poll, each as a split that follows its name."""
        state = self._state
        # Known files come first: only a removed or truncated one can be the original of a copy.
        listing = state.poll()
        yield from self._register(listing, lambda _: False)
        yield from self._register(listing, partial(self._is_due, listing))
        while state.until is Until.STOPPED:
            if listing is not (listing := state.poll()):
                yield from self._register(listing, partial(self._is_due, listing))
                self._start_finder.forget(listing)
            yield None

    def _register(self, listing: Listing, is_due: Callable[[FileInfo], bool]) -> Iterator[Batch]:
        """Store the registry of a listing, if it changed, and publish the listing."""
        state = self._state
        rewritten = frozenset(state.rewritten)
        self._starts = {}
        waiting = self._still_waiting()
        registry, new = self._updater.update(
            listing,
            is_due,
            state.held_files.identities(),
            rewritten,
            state.held_files.reserved_identities(),
        )
        registry = msgspec.structs.replace(registry, waiting=waiting)
        self._reserve_new(listing, registry)
        if registry != self._updater.registry:
            yield self._batch(registry, new)
            self._updater.registry = registry
        state.rewritten -= rewritten
        state.publish(listing, self._updater.registry)

    def _still_waiting(self) -> dict[str, FilePosition]:
        """Return the waiting files whose splits have not begun, and let new files wait for them."""
        followed = self._state.followed
        waiting = {
            split: position
            for split, position in self._updater.registry.waiting.items()
            if not isinstance(followed.get(split), FileFollower)
        }
        for split, position in waiting.items():
            if split not in followed:
                followed[split] = CopiedFile(self._state, position, split)
        return waiting

    def _reserve_new(self, listing: Listing, registry: FileRegistry) -> None:
        """Hold newly registered files open: they may be deleted before their split reads them."""
        for file in listing:
            known, before = registry.known(file), self._updater.registry.known(file)
            if known is None or (
                before is not None and known.is_at(before.split, before.generation)
            ):
                continue
            with contextlib.suppress(InvalidValue):
                self._state.format_of(file.path)
                self._state.reserve(file)

    def _is_due(self, listing: Listing, file: FileInfo) -> bool:
        """True if the reading of a new file can start; records its start position."""
        opened = self._state.open(file.path)
        if opened is None:
            return False
        followed, held = self._state.followed.values(), self._state.held_files.identities()
        try:
            start = self._start_finder.find(file, opened, listing, followed, held)
        finally:
            opened.close()
        if start is not None:
            self._starts[file.path] = start
        return start is not None

    def _batch(self, registry: FileRegistry, new: list[tuple[str, FileInfo]]) -> Batch:
        children: list[Split] = []
        bad: list[BadRecord] = []
        for split, file in new:
            namespace = self._state.namespace_of(file.path)
            try:
                self._state.format_of(file.path)
            except InvalidValue as error:
                bad.append(BadRecord(namespace, file.path, str(error), b""))
                continue
            data = FollowData(file.path, namespace, self._starts[file.path], split)
            # The rows of a namespace that is being copied must come after the copy.
            follows = (copy_id(namespace),) if namespace in self._copied else ()
            children.append(
                Split(
                    split,
                    msgspec.to_builtins(data),
                    follows,
                    bound=self._split.bound,
                    namespace=namespace,
                )
            )
        return Batch(None, msgspec.to_builtins(registry), bad, children=tuple(children))
