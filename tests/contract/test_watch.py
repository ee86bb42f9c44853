"""The changes of store entries since a version."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Backend, Change, Entry
from tailrace.errors import WatchExpired


def put(backend: Backend, **writes: bytes | None) -> int:
    return backend.store.commit(Change(writes=writes))


def test_a_watch_returns_entries_written_after_a_version_oldest_first(backend: Backend) -> None:
    first = put(backend, z=b"1")
    second = put(backend, b=b"2", a=b"2")
    third = put(backend, c=b"3")
    everything = [
        Entry("z", b"1", first),
        Entry("a", b"2", second),
        Entry("b", b"2", second),
        Entry("c", b"3", third),
    ]
    watched = backend.store.watch("", 0)
    assert [entry.version for entry in watched] == [first, second, second, third]
    assert sorted(watched) == sorted(everything)
    assert backend.store.watch("", second) == everything[-1:]
    assert backend.store.watch("", third) == []


def test_an_entry_written_twice_is_shown_once_as_it_is_now(backend: Backend) -> None:
    put(backend, a=b"1")
    other = put(backend, b=b"1")
    newest = put(backend, a=b"2")
    assert backend.store.watch("", 0) == [Entry("b", b"1", other), Entry("a", b"2", newest)]


def test_a_watch_shows_removals(backend: Backend) -> None:
    written = put(backend, a=b"1", b=b"1")
    removed = put(backend, a=None)
    assert backend.store.watch("", written) == [Entry("a", None, removed)]
    assert backend.store.watch("", removed) == []


def test_removing_a_missing_entry_is_no_removal(backend: Backend) -> None:
    put(backend, a=b"1")
    removed = put(backend, a=None, never=None)
    again = put(backend, a=None, never=None)
    assert again > removed
    assert backend.store.watch("", removed) == []
    assert backend.store.watch("never", 0) == []


def test_an_entry_written_again_after_its_removal_is_no_removal(backend: Backend) -> None:
    put(backend, a=b"1")
    put(backend, a=None)
    newest = put(backend, a=b"2")
    assert backend.store.watch("", 0) == [Entry("a", b"2", newest)]


def test_a_watch_gives_only_its_prefix(backend: Backend) -> None:
    put(backend, **{"topic/a": b"1", "topical": b"1", "topic/b": b"1", "group/a": b"1"})
    put(backend, **{"topic/b": None, "group/a": None})
    assert {entry.key for entry in backend.store.watch("topic/", 0)} == {"topic/a", "topic/b"}


def test_refused_changes_are_not_watched(backend: Backend) -> None:
    version = put(backend, a=b"1")
    with pytest.raises(Exception, match="a has version"):
        backend.store.commit(Change(expect={"a": 0}, writes={"a": b"2"}))
    assert backend.store.watch("", version) == []


def test_a_watch_from_before_forgotten_removals_is_refused(backend: Backend) -> None:
    keys = [f"k{i}" for i in range(10_000)]
    written = put(backend, **dict.fromkeys(keys, b"v"))
    put(backend, **dict.fromkeys(keys, None))
    last = put(backend, after=b"v")
    with pytest.raises(WatchExpired) as caught:
        backend.store.watch("", written)
    assert caught.value.after == written
    assert backend.store.scan("") == [Entry("after", b"v", last)]
    assert backend.store.watch("", last) == []
    newest = put(backend, after=None)
    assert backend.store.watch("", last) == [Entry("after", None, newest)]
