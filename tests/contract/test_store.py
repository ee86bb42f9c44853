"""Versioned entries under preconditions."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Backend, Change, Entry
from tailrace.errors import Conflict


def put(backend: Backend, **writes: bytes | None) -> int:
    return backend.store.commit(Change(writes=writes))


def test_an_entry_that_was_never_written_is_none(backend: Backend) -> None:
    assert backend.store.get("k") is None
    assert backend.store.scan("") == []


def test_all_entries_of_a_commit_have_its_version(backend: Backend) -> None:
    version = put(backend, a=b"1", b=b"")
    assert backend.store.get("a") == Entry("a", b"1", version)
    assert backend.store.get("b") == Entry("b", b"", version)


def test_versions_rise_over_all_entries(backend: Backend) -> None:
    versions = [put(backend, **{key: b"v"}) for key in ("a", "b", "a", "c")]
    versions += [put(backend, a=None), put(backend, a=b"again")]
    assert versions == sorted(set(versions))
    assert versions[0] > 0


def test_a_write_without_an_expectation_replaces(backend: Backend) -> None:
    put(backend, a=b"1")
    version = put(backend, a=b"2")
    assert backend.store.get("a") == Entry("a", b"2", version)


def test_a_write_that_expects_the_version_it_saw_is_done(backend: Backend) -> None:
    first = put(backend, a=b"1")
    second = backend.store.commit(Change(expect={"a": first}, writes={"a": b"2"}))
    assert backend.store.get("a") == Entry("a", b"2", second)


def test_a_failed_expectation_writes_nothing_and_names_the_key(backend: Backend) -> None:
    stale = put(backend, a=b"1", b=b"1")
    current = put(backend, b=b"2")
    with pytest.raises(Conflict) as caught:
        backend.store.commit(
            Change(expect={"a": stale, "b": stale}, writes={"a": b"lost", "c": b"lost"})
        )
    conflict = caught.value
    assert (conflict.key, conflict.expected, conflict.version) == ("b", stale, current)
    assert conflict.value == b"2"
    assert backend.store.get("a") == Entry("a", b"1", stale)
    assert backend.store.get("c") is None


def test_version_0_expects_that_the_entry_does_not_exist(backend: Backend) -> None:
    version = backend.store.commit(Change(expect={"a": 0}, writes={"a": b"1"}))
    with pytest.raises(Conflict) as caught:
        backend.store.commit(Change(expect={"a": 0}, writes={"a": b"2"}))
    assert (caught.value.version, caught.value.value) == (version, b"1")
    assert backend.store.get("a") == Entry("a", b"1", version)


def test_a_removed_entry_does_not_exist(backend: Backend) -> None:
    version = put(backend, a=b"1", b=b"1")
    put(backend, a=None)
    assert backend.store.get("a") is None
    assert [entry.key for entry in backend.store.scan("")] == ["b"]
    with pytest.raises(Conflict) as caught:
        backend.store.commit(Change(expect={"a": version}, writes={"a": b"2"}))
    assert (caught.value.version, caught.value.value) == (0, None)
    assert backend.store.commit(Change(expect={"a": 0}, writes={"a": b"2"})) > version


def test_expectations_may_stand_on_entries_that_are_not_written(backend: Backend) -> None:
    term = put(backend, term=b"1")
    backend.store.commit(Change(expect={"term": term}, writes={"grant": b"1"}))
    put(backend, term=b"2")
    with pytest.raises(Conflict):
        backend.store.commit(Change(expect={"term": term}, writes={"grant": b"2"}))
    entry = backend.store.get("grant")
    assert entry is not None
    assert entry.value == b"1"


def test_a_scan_gives_the_entries_of_its_prefix_in_key_order(backend: Backend) -> None:
    keys = [
        "topic/a",
        "topic/b",
        "topic/b/c",
        "topic",
        "topical",
        "topi",
        "t_pic/x",
        "t%",
        "TOPIC/a",
    ]
    put(backend, **dict.fromkeys(keys, b"v"))
    for prefix in ("", "topic/", "topic", "t_", "t%", "TOPIC", "nothing"):
        expected = sorted(key for key in keys if key.startswith(prefix))
        assert [entry.key for entry in backend.store.scan(prefix)] == expected


def test_keys_may_be_any_text(backend: Backend) -> None:
    keys = ["ключ/é", "a b", "'; --", "x" * 300, "\U0001f9ea", "\uffff"]
    version = put(backend, **{key: key.encode() for key in keys})
    assert {entry.key for entry in backend.store.scan("")} == set(keys)
    for key in keys:
        assert backend.store.scan(key) == [Entry(key, key.encode(), version)]
