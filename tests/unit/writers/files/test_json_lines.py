"""JSON lines: unchanged bytes, layouts, envelopes, and refused rows."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pyarrow import fs

from tailrace import writers
from tailrace.errors import BackendUnavailable, ConfigError, Error, InvalidValue
from tailrace.hub.hub import Hub
from tailrace.message import Mode, Op
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Writer
from tailrace.testing import MemoryBackend
from tailrace.writers.files.json_lines import FileWriter
from tests.unit.writers.contract import (
    STREAM,
    WRITER,
    Driver,
    Seen,
    WriterContract,
    document,
    record,
    rows,
    rows_of,
)


def visible(root: Path) -> list[Path]:
    """Return the files that readers of the directory see."""
    found = [path for path in root.rglob("*") if path.is_file()]
    return sorted(p for p in found if not any(part[0] in "._" for part in p.parts[1:]))


def lines(root: Path) -> list[bytes]:
    return [
        line
        for path in visible(root)
        for line in (
            gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        ).splitlines()
    ]


class TestFile(WriterContract):
    """Plain files in a local directory."""

    @pytest.fixture
    def writer(self, tmp_path: Path) -> Writer:
        return writers.file(str(tmp_path / "out"))

    @pytest.fixture
    def seen(self, tmp_path: Path) -> Seen:
        return lambda: list(map(msgspec.json.decode, lines(tmp_path / "out")))


class TestCompressedFile(TestFile):
    """The same, compressed and by URL."""

    @pytest.fixture
    def writer(self, tmp_path: Path) -> Writer:
        return writers.file((tmp_path / "out").as_uri(), compression="gzip", layout="")


def put_store(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the URL ``s3://bucket`` be a directory, in a file system that is not the local one."""
    system = fs.SubTreeFileSystem(str(directory), fs.LocalFileSystem())
    store = SimpleNamespace(from_uri=lambda uri: (system, uri.partition("bucket/")[2]))
    monkeypatch.setattr("tailrace.writers.files.destination.FileSystem", store)


class TestFileElsewhere(TestFile):
    """The same, in a file system that the writer takes for an object store."""

    @pytest.fixture
    def writer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Writer:
        put_store(tmp_path, monkeypatch)
        return writers.file("s3://bucket/out")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def hub() -> Hub:
    return Hub.from_backend(MemoryBackend())


def driver(hub: Hub, out: Path, **options: Any) -> Driver:
    return Driver(hub, writers.file(str(out), **options))


def test_unchanged_documents_keep_their_bytes(hub: Hub, out: Path) -> None:
    values = [b'{ "b":1.50,"a" : "\\u00e9\\u2028" }', '{"a":"é\u2028\x7f"}'.encode(), b"{}"]
    given = rows_of(record(offset, value) for offset, value in enumerate(values))
    driver(hub, out).write(given, 0, 3)
    [path] = visible(out)
    assert path.read_bytes() == b"\n".join([*values, b""])


def test_a_document_with_line_breaks_becomes_one_line(hub: Hub, out: Path) -> None:
    given = rows_of([record(0, b'{\n  "a": 1,\r\n  "b": "x"\n}\n'), record(1, b' {"a":2}')])
    driver(hub, out).write(given, 0, 2)
    assert lines(out) == [b'{"a":1,"b":"x"}', b'{"a":2}']


def test_a_record_without_a_value_is_an_empty_document(hub: Hub, out: Path) -> None:
    driver(hub, out).write(rows_of([record(0, b"")]), 0, 1)
    assert lines(out) == [b"{}"]


def test_a_file_has_the_documents_that_functions_returned(hub: Hub, out: Path) -> None:
    driver(hub, out).write(rows(0, 2).with_documents([{"x": 1}, {"x": 2}]), 0, 2)
    assert lines(out) == [b'{"x":1}', b'{"x":2}']


@pytest.mark.parametrize("bad", [b"no json", b"[1]", b'{"a":"\xff"}', b" ", b'{"a":1}{"a":2}'])
def test_a_record_that_is_not_a_document_is_named_and_the_others_are_written(
    hub: Hub, out: Path, bad: bytes
) -> None:
    given = [record(n, bad if n in (3, 4, 9) else None) for n in range(10)]
    d = driver(hub, out)
    failures = d.write(rows_of(given), 0, 10)
    assert [failure.offset for failure in failures] == [3, 4, 9]
    assert "JSON" in failures[0].error
    assert [msgspec.json.decode(line)["id"] for line in lines(out)] == [0, 1, 2, 5, 6, 7, 8]
    assert d.applied() == [0, 1, 2, 5, 6, 7, 8]


def test_a_record_of_several_rows_fails_as_a_whole(hub: Hub, out: Path) -> None:
    given = [record(0), record(1), record(1, b"bad"), record(2)]
    failures = driver(hub, out).write(rows_of(given), 0, 3)
    assert [failure.offset for failure in failures] == [1]
    assert [msgspec.json.decode(line)["id"] for line in lines(out)] == [0, 2]


def test_a_delete_is_refused_without_an_envelope(hub: Hub, out: Path) -> None:
    [failure] = driver(hub, out).write(rows_of([record(0), record(1, op=Op.DELETE)]), 0, 2)
    assert failure.offset == 1
    assert "envelope" in failure.error
    assert "opfilter" in failure.error


def test_an_envelope_has_the_operation_and_position_of_a_record(hub: Hub, out: Path) -> None:
    given = [
        record(7, b'{"a": 1.0}', mode=Mode.COPY, headers={"source": b"web"}),
        record(8, op=Op.DELETE),
    ]
    driver(hub, out, envelope="record").write(rows_of(given), 7, 9)
    first, second = lines(out)
    assert first == (
        b'{"offset":7,"timestamp":"2026-01-01T00:00:00.007Z","mode":"copy","op":"insert",'
        b'"key":"orders","value":{"a": 1.0},"headers":{"source":"web"}}'
    )
    assert msgspec.json.decode(second)["op"] == "delete"
    assert msgspec.json.decode(second)["value"] == document(8)


def test_each_namespace_has_its_own_directory(hub: Hub, out: Path) -> None:
    names = ["orders", "public.users", "_hidden", "a/b", "ö x", ""]
    given = [record(n, namespace=name) for n, name in enumerate(names)]
    d = driver(hub, out)
    d.write(rows_of(given), 0, 6)
    assert {path.parent.relative_to(out).as_posix() for path in visible(out)} == {
        "orders", "public.users", "%5Fhidden", "a%2Fb", "ö x", "%",
    }  # fmt: skip
    assert d.applied() == list(range(6))


def test_a_run_with_a_missing_file_is_not_reported_as_applied(hub: Hub, out: Path) -> None:
    d = driver(hub, out, layout="")
    d.write(rows_of([record(0, namespace="a"), record(1, namespace="b")]), 0, 2)
    visible(out)[0].unlink()
    assert d.applied() == []


def test_files_are_written_to_the_path_of_the_layout(hub: Hub, out: Path) -> None:
    driver(hub, out, layout="raw/namespace={namespace}").write(rows(0, 1), 0, 1)
    [path] = visible(out)
    assert path.relative_to(out).as_posix() == (
        "raw/namespace=orders/lake~out-0123456789abcdef~0.0-000000000000-000000000001.jsonl"
    )


@pytest.mark.parametrize("layout", ["_a", "../a", "/a", "a/", "{name}", "a/.b", "{"])
def test_a_layout_that_hides_files_or_leads_elsewhere_is_refused(layout: str) -> None:
    with pytest.raises(InvalidValue, match="layout"):
        writers.file("out", layout=layout)


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(InvalidValue, match="none, gzip"):
        writers.file("out", compression="zip")  # type: ignore[arg-type]


def test_writes_with_a_gap_between_them_make_separate_files(hub: Hub, out: Path) -> None:
    d = driver(hub, out)
    session = d.writer.open(d.attempt(0, 20))
    for start, end in ((0, 3), (3, 5), (8, 10)):
        session.write(rows(start, end), Offsets(start, end))
    staged = session.finish()
    assert [(each.offsets, each.rows) for each in staged] == [((0, 5), 5), ((8, 10), 2)]
    d.writer.publish(WRITER, staged)
    assert d.applied() == [0, 1, 2, 3, 4, 8, 9]


def test_staged_files_are_not_seen_and_do_not_stay(hub: Hub, out: Path) -> None:
    d = driver(hub, out)
    staged = d.stage(0, 10)
    loser = d.writer.open(d.attempt(0, 10))
    loser.write(rows(0, 10), Offsets(0, 10))
    assert visible(out) == []
    d.writer.publish(WRITER, staged)
    loser.close()
    assert [path for path in (out / "_tailrace").rglob("*") if path.is_file()] == []


def test_a_start_removes_staged_files_of_other_plans_and_no_others(hub: Hub, out: Path) -> None:
    d = driver(hub, out)
    kept = d.stage(0, 10, "kept")
    d.stage(0, 10, "given-up")
    d.writer.begin(f"{WRITER}-2", None)
    d.writer.begin(WRITER, "kept")
    assert [path.name for path in (out / "_tailrace/staged/lake~out").iterdir()] == ["kept"]
    d.writer.publish(WRITER, kept)
    assert len(lines(out)) == 10


def test_a_file_missing_from_stage_and_destination_is_an_error(hub: Hub, out: Path) -> None:
    d = driver(hub, out)
    staged = d.stage(0, 10)
    d.writer.begin(WRITER, None)
    with pytest.raises(Error, match="is missing"):
        d.writer.publish(WRITER, staged)


def test_a_rewind_removes_whole_files_only(hub: Hub, out: Path) -> None:
    d = driver(hub, out)
    d.deliver(0, 10)
    d.deliver(10, 20, "plan-2")
    with pytest.raises(InvalidValue, match="10 or 20"):
        d.writer.forget(WRITER, STREAM, 15, hub)
    assert len(lines(out)) == 20
    d.writer.forget(WRITER, STREAM, 10, hub)
    assert len(lines(out)) == 10
    [aside] = [path for path in (out / "_tailrace/rewound").rglob("*") if path.is_file()]
    assert len(aside.read_bytes().splitlines()) == 10


def test_a_session_that_could_not_write_raises_again_at_its_end(hub: Hub, out: Path) -> None:
    d = driver(hub, out)
    session = d.writer.open(d.attempt(0, 20))
    session.write(rows(0, 10), Offsets(0, 10))
    out.rename(out.with_name("moved"))
    out.write_text("in the way")
    given = rows_of([record(10, namespace="another")])
    with pytest.raises(OSError, match="out"):
        session.write(given, Offsets(10, 11))
    with pytest.raises(OSError, match="out"):
        session.finish()
    session.close()


def test_the_check_reports_a_path_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(BackendUnavailable, match="is a file"):
        writers.file(str(path)).check()
    with pytest.raises(BackendUnavailable, match="is not writable"):
        writers.file(str(path / "below")).check()


def test_a_url_that_nothing_can_read_is_refused_by_the_check() -> None:
    with pytest.raises(ConfigError, match="gopher"):
        writers.file("gopher://host/out").check()


def test_files_and_their_directories_are_synced_before_they_are_applied(
    hub: Hub, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    d = driver(hub, out)
    staged = d.stage(0, 10)
    name = Path(staged[0].data["files"][0]["source"]).name
    assert {name, "plan-1", "lake~out", "out"} <= set(synced)
    synced.clear()
    d.writer.publish(WRITER, staged)
    assert "orders" in synced


def test_the_class_of_options_is_not_hidden_by_its_module() -> None:
    assert writers.file is FileWriter
