"""The store of a backend in memory."""

from __future__ import annotations

from tailrace.backend.contract import FENCES, Change, Entry, Fence
from tailrace.errors import Conflict, Fenced, WatchExpired
from tailrace.testing.memory.gate import Gate
from tailrace.testing.memory.log import MemoryLog

REMOVALS_KEPT = 4096
"""The number of removals that the store keeps for `watch`."""


class MemoryStore:
    """The store: the existing entries, and the newest removed ones."""

    def __init__(self, gate: Gate, log: MemoryLog) -> None:
        self._gate = gate
        self._log = log
        self._version = 0
        self._entries: dict[str, Entry] = {}
        self._removed: dict[str, Entry] = {}
        self._forgotten = 0

    def get(self, key: str) -> Entry | None:
        """Return the entry, or None if it does not exist."""
        with self._gate.entered():
            return self._entries.get(key)

    def scan(self, prefix: str) -> list[Entry]:
        """Return all entries whose key begins with `prefix`, in key order."""
        with self._gate.entered():
            return [entry for key, entry in sorted(self._entries.items()) if key.startswith(prefix)]

    def commit(self, change: Change) -> int:
        """Commit the whole change and return the new version, or raise and change nothing."""
        with self._gate.entered():
            for key, expected in change.expect.items():
                entry = self._entries.get(key) or Entry(key, None, 0)
                if entry.version != expected:
                    raise Conflict(key, expected, entry.version, entry.value)
            self._log.check(change)
            self._version += 1
            self._log.apply(change, self._version)
            for key, value in change.writes.items():
                self._write(Entry(key, value, self._version))
            self._gate.committed()
            return self._version

    def watch(self, prefix: str, after: int) -> list[Entry]:
        """Return the entries written or removed after version `after`, oldest first."""
        with self._gate.entered():
            if after < self._forgotten:
                raise WatchExpired(after, self._forgotten)
            changed = [
                entry
                for entries in (self._entries, self._removed)
                for key, entry in entries.items()
                if entry.version > after and key.startswith(prefix)
            ]
            return sorted(changed, key=lambda entry: (entry.version, entry.key))

    def check_fence(self, fence: Fence) -> None:
        """Raise `Fenced` unless the fence has exactly this epoch. The caller holds the lock."""
        entry = self._entries.get(FENCES + fence.name)
        if entry is None or entry.version != fence.epoch:
            raise Fenced(fence.name, fence.epoch, 0 if entry is None else entry.version)

    def _write(self, entry: Entry) -> None:
        if entry.value is not None:
            self._entries[entry.key] = entry
            self._removed.pop(entry.key, None)
        elif self._entries.pop(entry.key, None) is not None:
            self._removed[entry.key] = entry
            if len(self._removed) > REMOVALS_KEPT:
                oldest = self._removed.pop(next(iter(self._removed)))
                self._forgotten = oldest.version
