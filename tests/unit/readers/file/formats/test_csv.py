"""CSV: columns, quotes, types, bad rows, and incomplete rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.formats.csv import ColumnType, CsvFormat
from tailrace.readers.file.formats.format import FileEnd
from tailrace.readers.file.formats.lines import ParsedLines
from tailrace.source.reader import Until
from tests.unit.readers.file.followed_files import FollowedFiles, append

START = FilePosition("x.csv", 1, 2)
AFTER_HEADER = msgspec.structs.replace(START, offset=5, line=1, columns=("a", "b"))


def csv(
    *,
    delimiter: str = ",",
    types: dict[str, ColumnType] | None = None,
    identity: tuple[str, ...] = (),
    encoding: str = "utf-8",
) -> CsvFormat:
    return CsvFormat(
        delimiter=delimiter,
        types=types or {},
        identity=identity,
        encoding=encoding,
        line_bytes_max=1000,
    )


def documents(parsed: ParsedLines) -> list[Any]:
    found: list[Any] = parsed.values.to_pylist()
    return [msgspec.json.decode(value) for value in found]


def test_the_header_names_the_values_of_each_row() -> None:
    parsed = csv().parse(b"a,b\n1,x\n2,\n", START, FileEnd.GROWING)
    assert documents(parsed) == [{"a": "1", "b": "x"}, {"a": "2", "b": ""}]
    assert (parsed.lines, parsed.columns) == (3, ("a", "b"))


def test_the_header_is_remembered() -> None:
    parsed = csv().parse(b"1,x\n", AFTER_HEADER, FileEnd.GROWING)
    assert documents(parsed) == [{"a": "1", "b": "x"}]


def test_quoted_values_may_hold_delimiters_quotes_and_newlines() -> None:
    parsed = csv().parse(b'"a ""b"", c","x\r\ny"\n3,4\n', AFTER_HEADER, FileEnd.GROWING)
    assert documents(parsed) == [{"a": 'a "b", c', "b": "x\r\ny"}, {"a": "3", "b": "4"}]
    assert parsed.lines == 3


def test_columns_have_types_and_an_empty_one_is_null() -> None:
    format = csv(types={"i": "int", "f": "float", "t": "bool", "other": "int"})
    data = b"i,f,t,s\n1,1.5,TRUE,x\n,,,\n2,nan,0,y\n3,-inf,1,\n"
    assert documents(format.parse(data, START, FileEnd.GROWING)) == [
        {"i": 1, "f": 1.5, "t": True, "s": "x"},
        {"i": None, "f": None, "t": None, "s": ""},
        {"i": 2, "f": "NaN", "t": False, "s": "y"},
        {"i": 3, "f": "-Infinity", "t": True, "s": ""},
    ]


BAD = {
    "too few columns": b"1",
    "too many columns": b"1,2,3",
    "no number": b"x,2",
    "not UTF-8": b"1,\xff",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_reported_with_its_line_and_its_neighbours_are_read(name: str) -> None:
    data = b'1,"x\ny"\n' + BAD[name] + b"\n2,z\n"
    parsed = csv(types={"a": "int"}).parse(data, AFTER_HEADER, FileEnd.GROWING)
    assert documents(parsed) == [{"a": 1, "b": "x\ny"}, {"a": 2, "b": "z"}]
    [bad] = parsed.bad
    assert (bad.line, bad.value) == (4, BAD[name])


def test_columns_of_one_name_or_none_get_names_of_their_own() -> None:
    parsed = csv().parse(b"a,a,,b\n1,2,3,4\n", START, FileEnd.GROWING)
    assert documents(parsed) == [{"a": "1", "a_2": "2", "column_3": "3", "b": "4"}]


def test_blank_lines_a_byte_order_mark_and_windows_line_ends_are_no_part_of_the_rows() -> None:
    parsed = csv(delimiter=";").parse(b"\xef\xbb\xbfa;b\r\n\r\n1;2\r\n\r\n", START, FileEnd.GROWING)
    assert documents(parsed) == [{"a": "1", "b": "2"}]
    assert (parsed.lines, parsed.consumed) == (4, 17)


def test_other_encodings_become_utf_8() -> None:
    parsed = csv(encoding="latin-1").parse(b"1,\xe9\n", AFTER_HEADER, FileEnd.GROWING)
    assert documents(parsed) == [{"a": "1", "b": "é"}]


def test_identities_are_those_of_the_columns() -> None:
    parsed = csv(identity=("b",)).parse(b"1,x\n2,y\n", AFTER_HEADER, FileEnd.GROWING)
    assert parsed.identities == [b'["x"]', b'["y"]']
    parsed = csv(identity=("c",)).parse(b"1,x\n", AFTER_HEADER, FileEnd.GROWING)
    assert (parsed.identities, len(parsed.bad)) == ([], 1)


@pytest.mark.parametrize("end", [FileEnd.NOT_REACHED, FileEnd.GROWING])
def test_a_row_is_not_read_before_its_end(end: FileEnd) -> None:
    parsed = csv().parse(b'1,x\n2,"y\n3,z\n', AFTER_HEADER, end)
    assert (documents(parsed), parsed.consumed) == ([{"a": "1", "b": "x"}], 4)
    parsed = csv().parse(b"1,x\n2,y", AFTER_HEADER, end)
    assert (documents(parsed), parsed.consumed) == ([{"a": "1", "b": "x"}], 4)


@pytest.mark.parametrize("end", [FileEnd.BOUNDED, FileEnd.FINAL])
def test_the_last_row_of_a_complete_file_needs_no_newline(end: FileEnd) -> None:
    parsed = csv().parse(b"1,x\n2,y", AFTER_HEADER, end)
    assert documents(parsed) == [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]
    assert parsed.in_line


def test_an_unclosed_quote_costs_one_line() -> None:
    parsed = csv().parse(b'1,"x\n2,y\n3,z\n', AFTER_HEADER, FileEnd.BOUNDED)
    assert documents(parsed) == [{"a": "2", "b": "y"}, {"a": "3", "b": "z"}]
    assert [(bad.line, bad.value) for bad in parsed.bad] == [(2, b'1,"x')]


def test_a_csv_file_is_followed_after_its_header(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("n,s\n1,a\n")
    with FollowedFiles(str(path), types={"n": "int"}) as source:
        source.drain()
        append(path, "2,b")
        assert source.rows() == [1]
        append(path, "c\n3,d\n")
        assert source.rows() == [1, 2, 3]
        source.end()
        append(path, "4,e\n")
        source.begin(Until.NOW)
        assert source.rows() == [1, 2, 3, 4]
        path.write_text("n,other\n5,f\n")
        source.begin()
        assert source.rows() == [1, 2, 3, 4, 5]


def test_until_now_does_not_read_an_incomplete_row(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("n,s\n1,a\n2,b")
    with FollowedFiles(str(path), Until.NOW, types={"n": "int"}) as source:
        append(path, "c\n")
        assert source.rows() == [1]
        source.begin(Until.NOW)
        assert source.rows() == [1, 2]
        assert source.messages()[-1].data == b'{"n":2,"s":"bc"}'


def test_a_header_outside_the_encoding_is_a_dead_letter_with_its_rows_and_other_files_continue(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.csv").write_bytes(b"n,na\xefve\n1,x\n")
    (tmp_path / "b.csv").write_bytes(b"n\n2\n")
    with FollowedFiles(str(tmp_path / "*.csv")) as source:
        assert source.rows() == ["2"]
        source.begin()
        append(tmp_path / "a.csv", "3,y\n")
        (header, first, second) = source.bad()
        assert header[0] == f"{tmp_path}/a.csv:1"
        assert header[2] == b"n,na\xefve"
        assert "the header is not utf-8" in first[1]
        assert [where for where, _, _ in (first, second)] == [
            f"{tmp_path}/a.csv:2", f"{tmp_path}/a.csv:3",
        ]  # fmt: skip
        (tmp_path / "a.csv").write_bytes("n,naïve\n4,x\n".encode())
        assert source.rows() == ["2", "4"]
