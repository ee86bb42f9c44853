"""The identity of a hub: the names of its directory lead to the files that were opened."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.backend.embedded.identity import FILES, HubIdentity
from tailrace.errors import BackendUnavailable, HubReplaced


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    directory = tmp_path / "hub"
    directory.mkdir()
    for name in FILES:
        (directory / name).touch()
    return directory


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_replaced_is_found_at_once(name: str, hub: Path) -> None:
    for _ in range(20):  # Within one tick of the kernel's clock, times do not tell changes apart.
        identity = HubIdentity(hub, "id")
        identity.check()
        (hub / "other").touch()
        (hub / "other").replace(hub / name)
        with pytest.raises(HubReplaced, match=name):
            identity.check()


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_removed_is_found(name: str, hub: Path) -> None:
    identity = HubIdentity(hub, "id")
    identity.check()
    (hub / name).unlink()
    with pytest.raises(HubReplaced, match=f"{name} no longer exists"):
        identity.check()


def test_a_change_long_after_the_last_check_is_found(hub: Path) -> None:
    identity = HubIdentity(hub, "id")
    past = hub.stat().st_ctime
    while hub.stat().st_ctime == past or not identity._settled:
        identity.check()
        (hub / "topics").mkdir(exist_ok=True)
    (hub / "hub.db").unlink()
    with pytest.raises(HubReplaced):
        identity.check()


def test_a_settled_check_is_one_stat_of_the_directory(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = HubIdentity(hub, "id")
    while not identity._settled:
        identity.check()
    inspected: list[object] = []
    with monkeypatch.context() as patched:
        for name in ("stat", "fstat", "lstat"):
            patched.setattr(os, name, partial(_record, inspected, getattr(os, name)))
        identity.check()
    assert inspected == [str(hub)]


def _record(inspected: list[object], inspect: Callable[..., object], what: object) -> object:
    inspected.append(what)
    return inspect(what)


def test_a_change_within_one_tick_of_the_kernels_clock_is_found(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, now_ns = os.stat, time.time_ns()

    def stat_in_one_tick(path: Any, **options: Any) -> Any:
        found = stat(path, **options)
        if path != str(hub):
            return found
        return SimpleNamespace(st_ctime_ns=now_ns, st_ino=found.st_ino, st_dev=found.st_dev)

    identity = HubIdentity(hub, "id")
    (hub / "other").touch()
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat_in_one_tick)
        identity.check()
        (hub / "other").replace(hub / "hub.db")
        with pytest.raises(HubReplaced, match=r"hub\.db"):
            identity.check()


def test_other_names_of_the_directory_may_come_and_go(hub: Path) -> None:
    identity = HubIdentity(hub, "id")
    for _ in range(10):
        (hub / "hub.reserve").touch()
        identity.check()
        (hub / "hub.reserve").unlink()
        identity.check()


def test_a_hub_that_is_moved_back_is_the_same_hub(hub: Path) -> None:
    identity = HubIdentity(hub, "id")
    hub.rename(hub.with_name("away"))
    with pytest.raises(HubReplaced, match="no longer exists"):
        identity.check()
    hub.with_name("away").rename(hub)
    identity.check()


def test_a_link_that_leads_to_another_directory_is_found(hub: Path) -> None:
    link = hub.with_name("current")
    link.symlink_to(hub)
    identity = HubIdentity(link, "id")
    identity.check()
    shutil.copytree(hub, hub.with_name("copy"))
    link.unlink()
    link.symlink_to(hub.with_name("copy"))
    with pytest.raises(HubReplaced, match="is another file now"):
        identity.check()


def test_a_directory_that_cannot_be_inspected_is_unavailable_and_not_replaced(hub: Path) -> None:
    identity = HubIdentity(hub, "id")
    hub.rename(hub.with_name("away"))
    hub.symlink_to(hub)  # a link to itself
    with pytest.raises(BackendUnavailable, match="cannot be inspected") as raised:
        identity.check()
    assert not isinstance(raised.value, HubReplaced)
    assert identity.replaced() is None


def test_another_id_in_the_database_is_another_hub(hub: Path) -> None:
    identity = HubIdentity(hub, "id")
    identity.check_id("id")
    with pytest.raises(HubReplaced, match="another hub is there now"):
        identity.check_id("other")
