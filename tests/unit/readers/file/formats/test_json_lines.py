"""JSON lines: accepted and bad lines, and chunks against single lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import OpenFile
from tailrace.readers.file.formats import lines as lines_module
from tailrace.readers.file.formats.format import FileEnd
from tailrace.readers.file.formats.json_lines import JsonLinesFormat
from tailrace.readers.file.formats.lines import ParsedLines

START = FilePosition("x.jsonl", 1, 2)


def parse(
    data: bytes,
    position: FilePosition = START,
    end: FileEnd = FileEnd.GROWING,
    *,
    identity: tuple[str, ...] = (),
    encoding: str = "utf-8",
    line_bytes_max: int = 1000,
) -> ParsedLines:
    return JsonLinesFormat(identity, encoding, line_bytes_max).parse(data, position, end)


def values(parsed: ParsedLines) -> list[Any]:
    return parsed.values.to_pylist()


def test_lines_are_stored_unchanged() -> None:
    parsed = parse(b'{"a": 1}\n {"b":\t"\xc3\xa9"} \n{"c":1.0}\n')
    assert values(parsed) == [b'{"a": 1}', b' {"b":\t"\xc3\xa9"} ', b'{"c":1.0}']
    assert (parsed.lines, parsed.consumed, list(parsed.bad)) == (3, 33, [])


def test_only_complete_lines_are_read() -> None:
    parsed = parse(b'{"a":1}\n{"b":', end=FileEnd.NOT_REACHED)
    assert (values(parsed), parsed.consumed) == ([b'{"a":1}'], 8)
    assert parse(b'{"b":').consumed == 0


@pytest.mark.parametrize("end", [FileEnd.GROWING, FileEnd.BOUNDED, FileEnd.FINAL])
def test_a_last_line_that_is_a_complete_object_needs_no_newline(end: FileEnd) -> None:
    parsed = parse(b'{"a":1}\n{"b":2}', end=end)
    assert values(parsed) == [b'{"a":1}', b'{"b":2}']
    assert (parsed.lines, parsed.consumed, parsed.in_line) == (2, 15, True)


def test_in_the_middle_of_a_file_a_line_needs_its_newline() -> None:
    assert values(parse(b'{"a":1}\n{"b":2}', end=FileEnd.NOT_REACHED)) == [b'{"a":1}']


def test_a_newline_that_is_added_later_is_not_a_line() -> None:
    parsed = parse(b'\r\n{"b":2}\n', msgspec.structs.replace(START, offset=7, in_line=True))
    assert (values(parsed), parsed.lines) == ([b'{"b":2}'], 1)


def test_the_incomplete_rest_of_a_deleted_file_is_a_bad_record() -> None:
    parsed = parse(b'{"a":', end=FileEnd.FINAL)
    assert [bad.value for bad in parsed.bad] == [b'{"a":']
    assert parsed.consumed == 5


def test_blank_lines_are_counted_and_skipped() -> None:
    parsed = parse(b'\n{"a":1}\n\r\n  \t\n{"b":2}\nbad\n')
    assert values(parsed) == [b'{"a":1}', b'{"b":2}']
    assert [(bad.line, bad.value) for bad in parsed.bad] == [(6, b"bad")]
    assert values(parse(b'\n\n{"a":1}\n\n')) == [b'{"a":1}']


def test_windows_line_ends_and_a_byte_order_mark_are_no_part_of_the_values() -> None:
    parsed = parse(b'\xef\xbb\xbf{"a":1}\r\n{"b":2}\r\n')
    assert (values(parsed), parsed.consumed) == ([b'{"a":1}', b'{"b":2}'], 21)


BAD = {
    "no JSON": b"nonsense",
    "an array": b"[1]",
    "a number": b"1",
    "two objects": b'{"a":1} {"b":2}',
    "an open object": b'{"a":{}',
    "a trailing comma": b'{"a":1,}',
    "not UTF-8": b'{"a":"\xff"}',
    "a name that is not UTF-8": b'{"\xff":1}',
    "a surrogate": b'{"a":"\xed\xa0\x80"}',
    "a control character": b'{"a":"\x01"}',
    "NaN": b'{"a":NaN}',
    "a number beyond a float": b'{"a":1e999}',
    "a signed exponent": b'{"a":1.5E+400}',
    "very many digits": b'{"a":' + b"9" * 310 + b".5}",
    "many digits and a small exponent": b'{"a":' + b"9" * 250 + b"e99}",
    "too long": b'{"a":"' + b"x" * 1000 + b'"}',
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_reported_with_its_number_and_its_neighbours_are_read(name: str) -> None:
    parsed = parse(
        b'{"n":1}\n' + BAD[name] + b'\n{"n":2}\n', msgspec.structs.replace(START, line=7)
    )
    assert values(parsed) == [b'{"n":1}', b'{"n":2}']
    [bad] = parsed.bad
    assert (bad.line, bad.value) == (9, BAD[name])
    assert bad.error


@pytest.mark.parametrize("name", BAD)
def test_a_chunk_of_one_bad_line_is_bad(name: str) -> None:
    assert len(parse(BAD[name] + b"\n").bad) == 1


def test_an_object_does_not_span_lines() -> None:
    parsed = parse(b'{"a":{}\n}\n{} {}\n{"b":1}\n')
    assert values(parsed) == [b'{"b":1}']
    assert [bad.line for bad in parsed.bad] == [1, 2, 3]


def test_large_numbers_within_bounds_are_accepted() -> None:
    lines = [b'{"a":1e308}', b'{"a":1e-999}', b'{"a":"be123"}', b'{"id":"7e400"}', b"{}"]
    assert values(parse(b"\n".join(lines) + b"\n")) == lines


def test_identities_are_those_of_the_fields() -> None:
    data = b'{"id":1,"x":2}\n{"x":3,"id":"a"}\n'
    assert parse(data, identity=("id",)).identities == [b"[1]", b'["a"]']
    assert parse(data, identity=("x", "id")).identities == [b"[2,1]", b'[3,"a"]']


def test_a_line_without_its_identity_is_bad() -> None:
    parsed = parse(b'{"id":1}\n{"x":3}\n', identity=("id",))
    assert (values(parsed), parsed.identities) == ([b'{"id":1}'], [b"[1]"])
    assert "id" in parsed.bad[0].error


def test_other_encodings_become_utf_8() -> None:
    parsed = parse('{"a":"é"}\n'.encode("latin-1"), encoding="latin-1")
    assert values(parsed) == ['{"a":"é"}'.encode()]
    parsed = parse('{"a":"é"}\n'.encode("cp1252") + b'{"a":"\x81"}\n', encoding="cp1252")
    assert (values(parsed), len(parsed.bad)) == (['{"a":"é"}'.encode()], 1)


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
good_lines: Any = st.dictionaries(st.text(), json_values, max_size=4).map(msgspec.json.encode)
any_lines: Any = good_lines | st.binary(max_size=30).map(lambda line: line.replace(b"\n", b""))


@given(st.lists(any_lines, max_size=12), st.sampled_from([b"\n", b"\r\n"]), st.integers(1, 60))
def test_a_chunk_decodes_to_the_same_rows_as_its_lines_however_it_is_cut(
    found: list[bytes], newline: bytes, size: int
) -> None:
    """Against the plain loop: split, strip, decode each."""
    data = b"".join(line + newline for line in found)
    expected, bad = [], []
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if not line.strip():
            continue
        try:
            msgspec.json.decode(line, type=dict[str, Any])
            expected.append(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            bad.append((number, line))
    taken: list[bytes] = []
    refused: list[tuple[int | None, bytes]] = []
    position = msgspec.structs.replace(START, offset=1)  # not at the start: no byte order mark
    at = 0
    while at < len(data):
        end = len(data) if size > len(data) - at else at + size
        more = FileEnd.BOUNDED if end == len(data) else FileEnd.NOT_REACHED
        parsed = parse(data[at:end], position, more)
        if not parsed.consumed:
            size *= 2
            continue
        taken += values(parsed)
        refused += [(line.line, line.value) for line in parsed.bad]
        position = position.after(data[at : at + parsed.consumed], parsed.lines, parsed.in_line)
        at += parsed.consumed
    assert taken == expected
    assert refused == bad


def test_a_line_of_any_length_is_skipped_without_keeping_it_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "CHUNK_BYTES", 64)
    path = tmp_path / "x.jsonl"
    long = b'{"a":"' + b"x" * 5000 + b'"}'
    path.write_bytes(b'{"n":1}\n' + long + b'\n{"n":2}\n')
    file, format, position = OpenFile(str(path)), JsonLinesFormat((), "utf-8", 100), START
    taken: list[Any] = []
    bad: list[Any] = []
    while (chunk := format.read(file, position, None, FileEnd.GROWING)) is not None:
        taken += chunk.values.to_pylist()
        bad += chunk.bad
        position = chunk.position
    file.close()
    assert taken == [b'{"n":1}', b'{"n":2}']
    assert [(line.line, line.value) for line in bad] == [(2, long[:100])]
    assert "5,009 bytes" in bad[0].error
    assert (position.offset, position.line) == (path.stat().st_size, 3)
