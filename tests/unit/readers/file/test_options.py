"""The `file` reader's options, its check before a start, and the names of sources."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from tailrace import readers
from tailrace.errors import Error, InvalidValue
from tailrace.readers.file.file_name import format_of, namespace_of
from tailrace.readers.file.files import GzipFile, UnreadableFile
from tailrace.source.reader import Until


def test_a_preview_shows_the_first_five_documents_with_their_namespaces(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x":1}\nbad\n{"x":2}\n')
    (tmp_path / "b.csv").write_text("y\n1\n2\n3\n4\n")
    preview = readers.file(str(tmp_path / "*")).check()
    assert preview.sentence == "2 files, 30 bytes, namespaces a, b; 1 bad line in the preview"
    assert preview.documents == [
        ("a", {"x": 1}),
        ("a", {"x": 2}),
        ("b", {"y": "1"}),
        ("b", {"y": "2"}),
        ("b", {"y": "3"}),
    ]


@pytest.mark.parametrize("pattern", ["*.jsonl", "missing/*/x.jsonl", "x.jsonl"])
def test_a_glob_that_matches_nothing_is_named_with_its_directory(
    pattern: str, tmp_path: Path
) -> None:
    with pytest.raises(Error) as raised:
        readers.file(str(tmp_path / pattern)).check()
    assert pattern in str(raised.value)
    assert f"searched {tmp_path}" in str(raised.value)


def test_a_directory_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"\*\.jsonl"):
        readers.file(str(tmp_path)).check()
    with pytest.raises(InvalidValue, match=r"\*\.jsonl"):
        readers.file(str(tmp_path)).open(Until.NOW)


def test_a_file_of_unknown_format_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for begin in (
        lambda: readers.file(str(tmp_path / "*")).check(),
        lambda: readers.file(str(tmp_path / "*")).open(Until.NOW),
    ):
        with pytest.raises(InvalidValue, match=r"notes\.txt.*format ="):
            begin()
    assert readers.file(str(tmp_path / "*"), format="csv").check().documents == []


def test_a_damaged_file_is_named_by_the_check(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b"this is not gzip")
    with pytest.raises(Error, match=r"a\.jsonl\.gz cannot be read: it is not gzip"):
        readers.file(str(tmp_path / "*")).check()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("path", ""),
        ("delimiter", ";;"),
        ("delimiter", '"'),
        ("poll", "0s"),
        ("poll", "soon"),
        ("encoding", "utf-16"),
        ("encoding", "klingon"),
        ("range_bytes", 0),
    ],
)
def test_an_invalid_option_is_refused_by_name(option: str, value: str) -> None:
    options: dict[str, Any] = {"path": "x.jsonl", option: value}
    with pytest.raises(InvalidValue, match=option):
        readers.file(**options)


def test_options_come_from_a_file_as_from_python() -> None:
    found = msgspec.convert(
        {"path": "x.csv", "types": {"a": "int"}, "identity": ["a"]}, readers.FileReader
    )
    assert found == readers.file("x.csv", types={"a": "int"}, identity=("a",))
    with pytest.raises(msgspec.ValidationError, match="unknown field `pathh`"):
        msgspec.convert({"path": "x", "pathh": "y"}, readers.FileReader)
    with pytest.raises(msgspec.ValidationError, match="poll"):
        msgspec.convert({"path": "x", "poll": "soon"}, readers.FileReader)


def test_every_option_has_a_meaning_and_an_example() -> None:
    hints = get_type_hints(readers.FileReader, include_extras=True)
    for field in msgspec.structs.fields(readers.FileReader):
        [meta] = hints[field.name].__metadata__
        assert meta.description
        assert meta.examples


def test_every_option_is_documented() -> None:
    page = (Path(__file__).parents[4] / "docs" / "readers.md").read_text()
    section = page.partition("\n## Files\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", section, re.MULTILINE)
    hints = get_type_hints(readers.FileReader, include_extras=True)
    fields = msgspec.structs.fields(readers.FileReader)
    assert [(name, meaning) for name, _, meaning in shown] == [
        (field.name, hints[field.name].__metadata__[0].description) for field in fields
    ]


@pytest.mark.parametrize(
    ("path", "namespace", "format"),
    [
        ("in/orders.jsonl", "orders", "jsonl"),
        ("orders.NDJSON.gz", "orders", "jsonl"),
        ("a.b.json", "a.b", "jsonl"),
        ("x.csv.gz", "x", "csv"),
        ("x.tsv", "x", "csv"),
        ("x.parquet", "x", "parquet"),
    ],
)
def test_a_file_name_gives_namespace_and_format(path: str, namespace: str, format: str) -> None:
    assert namespace_of(path) == namespace
    assert format_of(path) == format


def test_a_compressed_file_is_read_from_any_position(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    whole = bytes(range(256)) * 5000
    path.write_bytes(gzip.compress(whole[:700_000]) + gzip.compress(whole[700_000:]) + b"\0" * 99)
    file = GzipFile(str(path))
    for start in (0, 699_999, 5, 1_000_000, 999_999, len(whole)):
        assert file.read(start, 300_000) == whole[start : start + 300_000]
    file.close()


def test_a_compressed_file_returns_at_most_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    first, second = gzip.compress(b"a" * 1000), gzip.compress(b"b" * 1000)
    path.write_bytes(first + second)
    file = GzipFile(str(path))
    assert file.read(0, 5000, len(first)) == b"a" * 1000
    assert file.read(0, 5000) == b"a" * 1000 + b"b" * 1000
    file.close()


def test_a_compressed_file_that_expands_a_thousandfold_is_not_kept_in_memory(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(50_000_000)))
    file = GzipFile(str(path))
    assert file.read(40_000_000, 10) == bytes(10)
    assert len(file._held) < 2_000_000
    file.close()


def test_a_damaged_compressed_file_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    data = bytearray(gzip.compress(bytes(1000)))
    data[-8] ^= 1
    path.write_bytes(data)
    file = GzipFile(str(path))
    with pytest.raises(UnreadableFile, match="gzip"):
        file.read(0, 5000)
    file.close()
