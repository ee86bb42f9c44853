"""A backend whose store lets another process act between two reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.backend.contract import Backend, Entry, Store


class _InterleavedStore:
    def __init__(self, store: Store, key: str, action: Callable[[], object], read: int) -> None:
        self._store = store
        self._key = key
        self._action = action
        self._reads_left = read

    def get(self, key: str) -> Entry | None:
        found = self._store.get(key)
        if key == self._key:
            self._reads_left -= 1
            if not self._reads_left:
                self._action()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class InterleavedBackend:
    """A backend. After a read of `key` from its store, by default the first, `action` is called,
    once."""

    def __init__(
        self, backend: Backend, key: str, action: Callable[[], object], *, read: int = 1
    ) -> None:
        self._backend = backend
        self.store = _InterleavedStore(backend.store, key, action, read)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)
