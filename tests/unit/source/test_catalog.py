"""The sources of a hub."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tailrace.errors import InvalidName, UnknownSource
from tailrace.hub.hub import Hub
from tailrace.source.catalog import (
    SourceEntry,
    absolute,
    check_pipeline_name,
    find_source,
    read_source,
    register_source,
    run_command,
    source_names,
)
from tests.support.faulty_backend import FaultyBackend

ENTRY = SourceEntry("shop.commits", "shop.dead-letters", "FileReader", 7, "/etc/shop.toml")


def test_a_source_is_found_by_its_name(backend: FaultyBackend) -> None:
    store = backend.store
    assert find_source(store, "shop") is None
    register_source(store, "shop", ENTRY)
    register_source(store, "crm", ENTRY)
    assert find_source(store, "shop") == ENTRY
    assert read_source(backend, "shop") == ENTRY
    assert source_names(store) == ["crm", "shop"]


def test_a_source_that_does_not_exist_is_named_with_a_similar_one(backend: FaultyBackend) -> None:
    register_source(backend.store, "shop", ENTRY)
    with pytest.raises(UnknownSource, match=r"'shp'.*shop"):
        read_source(backend, "shp")


def test_a_source_that_runs_again_keeps_the_time_of_its_creation(backend: FaultyBackend) -> None:
    register_source(backend.store, "shop", ENTRY)
    moved = msgspec.structs.replace(ENTRY, created_ms=9, file="/srv/shop.toml")
    register_source(backend.store, "shop", moved)
    assert find_source(backend.store, "shop") == msgspec.structs.replace(moved, created_ms=7)


def test_a_source_that_runs_again_unchanged_writes_nothing(backend: FaultyBackend) -> None:
    register_source(backend.store, "shop", ENTRY)
    [before] = backend.store.scan("source/")
    register_source(backend.store, "shop", msgspec.structs.replace(ENTRY, created_ms=9))
    assert backend.store.scan("source/") == [before]


def test_the_name_of_a_subscription_is_not_that_of_a_source(hub: Hub) -> None:
    hub.create_topic("orders", partitions=1)
    hub.create_subscription("shop", topic="orders")
    with pytest.raises(InvalidName, match="there is a subscription 'shop'"):
        register_source(hub.backend.store, "shop", ENTRY)
    assert source_names(hub.backend.store) == []


@pytest.mark.parametrize("of_pipeline", [False, True])
def test_a_source_does_not_become_that_of_a_pipeline_nor_back(
    backend: FaultyBackend, of_pipeline: bool
) -> None:
    kind = "pipeline" if of_pipeline else "source"
    register_source(backend.store, "shop", msgspec.structs.replace(ENTRY, of_pipeline=of_pipeline))
    other = msgspec.structs.replace(ENTRY, of_pipeline=not of_pipeline)
    with pytest.raises(InvalidName, match=f"there is a {kind} 'shop'"):
        register_source(backend.store, "shop", other)


def test_a_pipeline_may_have_the_name_of_its_own_source_alone(backend: FaultyBackend) -> None:
    register_source(backend.store, "shop", ENTRY)
    with pytest.raises(InvalidName, match="there is a source 'shop'"):
        check_pipeline_name(backend.store, "shop")
    register_source(backend.store, "lake", msgspec.structs.replace(ENTRY, of_pipeline=True))
    [entry] = [each for each in backend.store.scan("source/") if each.key == "source/lake"]
    assert check_pipeline_name(backend.store, "lake")["source/lake"] == entry.version
    assert check_pipeline_name(backend.store, "new")["source/new"] == 0


def test_the_command_that_runs_a_task_names_the_file_of_the_source(tmp_path: Path) -> None:
    assert ENTRY.run_command == "tailrace source run /etc/shop.toml"
    assert run_command("my shop.toml") == "tailrace source run 'my shop.toml'"
    assert run_command("") == "tailrace source run FILE"
    assert absolute("") == ""
    assert absolute(str(tmp_path / "x" / ".." / "shop.toml")) == str(tmp_path / "shop.toml")
