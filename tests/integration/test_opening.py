"""A path that cannot be opened as a hub is refused with the reason, and left unchanged."""

from __future__ import annotations

import os
import random
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tailrace.backend.embedded import EmbeddedBackend, layout, opening
from tailrace.errors import BackendUnavailable, Error, IncompatibleHub, InvalidValue, ReadOnlyHub
from tests.support.counts import count
from tests.support.processes import Child, Report
from tests.support.records import P0, append, create, values
from tests.support.users import directory_for_all, needs_root

pytestmark = pytest.mark.part("log")

NOBODY = 65534


def _make_hub(directory: Path) -> Path:
    with closing(EmbeddedBackend.open(directory, sync="none")) as backend:
        create(backend)
        append(backend, P0, b"kept")
    return directory


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    return _make_hub(tmp_path / "hub")


def _open_as_nobody(report: Report, directory: Path) -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    try:
        EmbeddedBackend.open(directory)
    except Error as error:
        report(error)


@needs_root
@pytest.mark.parametrize("mode", [0o000, 0o755], ids=["unreadable", "read-only"])
def test_a_directory_without_permission_is_refused_and_works_again_with_it(mode: int) -> None:
    with directory_for_all() as place:
        hub = _make_hub(place / "hub")
        hub.chmod(mode)
        error = Child(_open_as_nobody, hub).next_report()
        assert isinstance(error, ReadOnlyHub)
        assert f"may not write {hub}" in str(error)
        assert "it belongs to root (uid 0), group " in str(error)
        assert "run as root (uid 0), or share the hub with a group" in str(error)
        assert f"tailrace.open('{hub}', mode='ro')" in str(error)
        hub.chmod(0o700)
        with closing(EmbeddedBackend.open(hub)) as backend:
            append(backend, P0, b"again")
            assert values(backend, P0) == [b"kept", b"again"]


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    for path in (file, file / "below"):
        with pytest.raises(IncompatibleHub, match="is a file"):
            EmbeddedBackend.open(path)
    assert file.read_text() == "precious"


def test_a_hub_of_a_newer_format_is_refused_and_named(hub: Path) -> None:
    connection = apsw.Connection(str(hub / "hub.db"))
    connection.execute("UPDATE meta SET value = 99 WHERE name = 'format'")
    connection.close()
    with pytest.raises(
        IncompatibleHub, match=rf"format 99.* supports formats up to {opening.FORMAT}"
    ):
        EmbeddedBackend.open(hub)
    connection = apsw.Connection(str(hub / "hub.db"))
    connection.execute("UPDATE meta SET value = ? WHERE name = 'format'", (opening.FORMAT,))
    connection.close()
    with closing(EmbeddedBackend.open(hub)) as backend:
        assert values(backend, P0) == [b"kept"]


def _make_format_1(hub: Path) -> None:
    connection = apsw.Connection(str(hub / "hub.db"))
    connection.execute("ALTER TABLE segments DROP COLUMN generation")
    connection.execute("UPDATE meta SET value = 1 WHERE name = 'format'")
    connection.close()


def test_a_hub_of_format_1_becomes_one_of_this_format_when_it_is_opened(hub: Path) -> None:
    _make_format_1(hub)
    with closing(EmbeddedBackend.open(hub, segment_bytes=64)) as backend:
        assert backend.info.format == opening.FORMAT
        assert values(backend, P0) == [b"kept"]
        append(backend, P0, b"dropped")
        append(backend, P0, b"last")
        append(backend, P0, b"active")
        backend.compact(P0, lambda: backend.log.bounds(P0).end)
        before = values(backend, P0)
    with closing(EmbeddedBackend.open(hub)) as backend:
        assert values(backend, P0) == before


def _open_and_report(report: Report, directory: Path) -> None:
    with closing(EmbeddedBackend.open(directory)) as backend:
        report(backend.info.format)


def test_processes_that_open_a_hub_of_format_1_at_once_all_open_it(hub: Path) -> None:
    _make_format_1(hub)
    children = [Child(_open_and_report, hub) for _ in range(3)]
    assert [list(child.rest()) for child in children] == [[opening.FORMAT]] * 3


def test_a_directory_that_is_not_a_hub_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(IncompatibleHub, match="not a hub and not empty"):
        EmbeddedBackend.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_segments_without_their_database_are_refused_and_left_alone(hub: Path) -> None:
    for file in hub.glob("hub.db*"):
        file.unlink()
    before = sorted(hub.glob("topics/**/*"))
    with pytest.raises(IncompatibleHub, match=r"no hub\.db"):
        EmbeddedBackend.open(hub)
    assert sorted(hub.glob("topics/**/*")) == before
    assert not (hub / "hub.db").exists()


def test_a_file_that_is_not_a_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "hub.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(BackendUnavailable, match="file is not a database"):
        EmbeddedBackend.open(tmp_path)
    assert (tmp_path / "hub.db").read_bytes() == b"this is no database" * 100


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_network_file_system_is_refused_and_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "_file_system", lambda _: kind)
    with pytest.raises(IncompatibleHub, match=rf"network file system \({kind}\)"):
        EmbeddedBackend.open(tmp_path / "hub")


def test_the_file_system_of_this_directory_is_known(tmp_path: Path) -> None:
    assert layout._file_system(Path("/proc")) == "proc"
    assert layout._file_system(tmp_path) != ""


def test_another_sync_policy_than_the_stored_one_is_refused(hub: Path) -> None:
    with pytest.raises(InvalidValue, match="fixed when the hub is created"):
        EmbeddedBackend.open(hub, sync="batch")
    with pytest.raises(InvalidValue, match="batch or none"):
        EmbeddedBackend.open(hub, sync="sometimes")
    EmbeddedBackend.open(hub, sync="none").close()


def _open_again_and_again(report: Report, directory: Path) -> None:
    report("started")
    while True:
        EmbeddedBackend.open(directory, sync="none").close()


def test_a_process_killed_while_it_creates_or_opens_a_hub_leaves_one_that_opens(
    tmp_path: Path,
) -> None:
    for number in range(count("open_kills", test=10, soak=100)):
        directory = tmp_path / str(number)
        child = Child(_open_again_and_again, directory)
        assert child.next_report() == "started"
        list(child.reports_for(random.uniform(0.0, 0.02)))
        list(child.kill())
        with closing(EmbeddedBackend.open(directory, sync="none")) as backend:
            create(backend)
            append(backend, P0, b"a")
            assert values(backend, P0) == [b"a"]
