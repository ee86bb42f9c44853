"""Several users share one hub, by a group or by the umask."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.errors import Error, ReadOnlyHub
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations.status import status
from tests.support.processes import Child, Report
from tests.support.users import (
    API,
    SHARED_GROUP,
    STRANGER,
    WORKER,
    become,
    directory_for_all,
    owned,
)

pytestmark = pytest.mark.part("log")

SETTINGS = tailrace.HubSettings.of(segment_bytes=256)
"""Segments of a few messages, so that each user creates some."""


@pytest.fixture
def directory() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with directory_for_all() as made:
        yield made


@pytest.fixture
def path(directory: Path) -> Path:
    """A hub in a directory with the setgid bit that the group may write."""
    return owned(directory / "shared", 0o2770) / "hub"


@pytest.fixture
def private(directory: Path) -> Path:
    """A hub in a directory of one user."""
    return owned(directory / "private") / "hub"


def _as_user(
    report: Report, user: int, umask: int, work: Callable[[Hub], object], path: Path
) -> None:
    become(user, SHARED_GROUP, umask=umask)
    try:
        with tailrace.open(path, sync="none", settings=SETTINGS) as hub:
            report(work(hub))
    except Error as error:
        report(error)


def _run(user: int, work: Callable[[Hub], Any], path: Path, umask: int = 0o022) -> Any:
    child = Child(_as_user, user, umask, work, path)
    answer = child.next_report()
    list(child.rest())
    if isinstance(answer, Error):
        raise answer
    return answer


def _create(hub: Hub) -> None:
    hub.create_topic("orders", bytes, partitions=1)


def _push(hub: Hub) -> None:
    topic = hub.topic("orders", bytes)
    for number in range(10):
        topic.push(b"%d" % number * 20, key=f"c{number % 2}")
    with topic.producer(name=f"user-{os.getuid()}") as producer:
        producer.push(b"produced")


def _read(hub: Hub) -> int:
    reader, found = hub.topic("orders", bytes).reader(), 0
    while reads := reader.poll():
        found += sum(read.records.num_rows for read in reads)
    return found


def _consume(hub: Hub) -> int:
    return sum(1 for _ in hub.tail("orders", group="billing", until="end"))


def _compact(hub: Hub) -> int:
    backend: Any = hub.backend
    done = backend.compact(Partition("orders", 0, 0), lambda: 2**62)
    return int(done.rewritten)


def _take_turn(hub: Hub) -> tuple[int, int, int]:
    """Push, read, consume, compact and inspect; return how much was read, consumed, compacted."""
    _push(hub)
    turn = _read(hub), _consume(hub), _compact(hub)
    assert status(hub).hub is not None
    return turn


@pytest.mark.parametrize("umask", [0o022, 0o077], ids=oct)
def test_two_users_push_read_consume_and_compact_in_turns(umask: int, path: Path) -> None:
    _run(API, _create, path, umask)
    for user in (WORKER, API, WORKER):
        read, consumed, compacted = _run(user, _take_turn, path, umask)
        assert read >= consumed == 11
        assert compacted > 0
    for file in path.rglob("*"):
        wanted = 0o070 if file.is_dir() else 0o060
        assert file.stat().st_gid == SHARED_GROUP, file
        assert file.stat().st_mode & wanted == wanted, file


def _with_umask(report: Report, work: Callable[[Hub], object], path: Path) -> None:
    os.umask(0o077)
    with tailrace.open(path, sync="none", settings=SETTINGS) as hub:
        report(work(hub))


def test_a_directory_of_a_group_makes_every_file_writable_by_the_group(tmp_path: Path) -> None:
    """Needs no other user: the files show that one could write them."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    path = shared / "hub"
    Child(_with_umask, _create, path).next_report()
    for _ in range(2):
        read, consumed, compacted = Child(_with_umask, _take_turn, path).next_report()
        assert read >= consumed == 11
        assert compacted > 0
    assert _modes(path, is_directory=False) == {0o660}
    assert _modes(path, is_directory=True) == {0o2770}


def _modes(path: Path, *, is_directory: bool) -> set[int]:
    found = (each for each in (path, *path.rglob("*")) if each.is_dir() is is_directory)
    return {stat.S_IMODE(each.stat().st_mode) for each in found}


def _consume_for_ever(report: Report, user: int, path: Path) -> None:
    become(user, SHARED_GROUP)
    with tailrace.open(path, settings=SETTINGS) as hub:
        consumer = hub.tail("orders", bytes, group="billing")
        with consumer:
            report("joined")
            for delivery in consumer:
                report((delivery.partition, delivery.value))


def test_consumers_of_two_users_share_the_partitions_of_a_group(path: Path) -> None:
    _run(API, _create_four, path)
    children = [Child(_consume_for_ever, user, path) for user in (API, WORKER)]
    owners: dict[int, set[str]] = {}
    for child in children:
        assert child.next_report() == "joined"
    _wait_for_both(path, children, owners)
    for child in children:
        list(child.kill())
    assert all(owners.values())


def _create_four(hub: Hub) -> None:
    hub.create_topic("orders", bytes, partitions=4)


def _push_to_all(hub: Hub) -> None:
    topic = hub.topic("orders", bytes)
    for number in range(40):
        topic.push(b"x", key=f"c{number}")


def _wait_for_both(path: Path, children: list[Child], owners: dict[int, set[str]]) -> None:
    for _ in range(30):
        _run(WORKER, _push_to_all, path)
        for child in children:
            for partition, _ in child.reports_for(0.3):
                owners.setdefault(child.pid, set()).add(str(partition))
        if len(owners) == len(children):
            return
    raise AssertionError("one consumer got no partition")


def test_a_killed_users_hold_is_taken_over_by_another_user(path: Path) -> None:
    _run(API, _create, path)
    child = Child(_hold_and_wait, path)
    assert child.next_report() == "held"
    list(child.kill())
    assert _run(WORKER, _hold_and_beat, path)


def _hold_and_wait(report: Report, path: Path) -> None:
    become(API, SHARED_GROUP)
    with tailrace.open(path) as hub:
        hub.backend.hold("compaction/1", "api").beat()
        report("held")
        signal.pause()


def _hold_and_beat(hub: Hub) -> bool:
    with hub.backend.hold("compaction/1", "worker") as hold:
        return hold.beat() and hub.backend.holder("compaction/1") == "worker"


@pytest.mark.parametrize(
    ("umask", "file", "folder"),
    [(0o022, 0o644, 0o755), (0o002, 0o664, 0o775), (0o027, 0o640, 0o750), (0o077, 0o600, 0o700)],
    ids=oct,
)
def test_without_a_shared_directory_the_umask_decides(
    umask: int, file: int, folder: int, private: Path
) -> None:
    for work in (_create, _push, _consume, _push, _compact):
        _run(API, work, private, umask)
    for path in (private, *private.rglob("*")):
        wanted = folder if path.is_dir() else file
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_a_command_of_root_leaves_no_file_that_the_owner_cannot_write(private: Path) -> None:
    _run(API, _create, private)
    _run(0, _push, private)
    assert _run(0, _consume, private) == 11
    _run(0, _compact, private)
    assert {file.stat().st_uid for file in private.rglob("*")} == {API}
    _run(API, _push, private)
    assert _run(API, _consume, private) == 11


def test_a_link_that_another_user_puts_in_place_of_a_file_changes_no_other_file(
    directory: Path, private: Path
) -> None:
    secret = directory / "secret"
    secret.write_bytes(b"root's")
    secret.chmod(0o600)
    (owned(private) / "hub.wake").symlink_to(secret)
    with tailrace.open(private) as hub:
        hub.create_topic("orders")
    assert secret.stat().st_uid == 0
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_user_without_the_right_to_write_is_told_who_owns_the_hub(private: Path) -> None:
    _run(API, _create, private)
    error = Child(_as_stranger, private).next_report()
    assert isinstance(error, ReadOnlyHub)
    text = str(error)
    assert f"user uid {STRANGER} may not write" in text
    assert f"it belongs to uid {API}, group gid {SHARED_GROUP}, mode " in text
    assert f"run as uid {API}, or share the hub with a group" in text
    assert f"chgrp -R GROUP {private}" in text
    assert f"tailrace.open('{private}', mode='ro'), or --read-only" in text


def test_a_user_who_may_not_enter_a_directory_above_the_hub_is_told_which(private: Path) -> None:
    _run(API, _create, private)
    private.parent.chmod(0o700)
    error = Child(_as_stranger, private).next_report()
    assert isinstance(error, ReadOnlyHub)
    assert f"user uid {STRANGER} may not enter {private.parent}: it belongs to uid {API}" in str(
        error
    )


def _as_stranger(report: Report, path: Path) -> None:
    become(STRANGER)
    try:
        tailrace.open(path)
    except Error as error:
        report(error)
