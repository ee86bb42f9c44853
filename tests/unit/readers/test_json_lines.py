"""JSON lines: what is taken, what is bad, and that a chunk gives what its lines would give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.readers import lines as lines_module
from tailrace.readers.files import OpenFile
from tailrace.readers.json_lines import JsonLines
from tailrace.readers.lines import Ending, Parsed
from tailrace.readers.place import Place

PLACE = Place("x.jsonl", 1, 2)


def parse(
    data: bytes,
    place: Place = PLACE,
    ending: Ending = Ending.GROWING,
    *,
    identity: tuple[str, ...] = (),
    encoding: str = "utf-8",
    line_bytes_max: int = 1000,
) -> Parsed:
    return JsonLines(identity, encoding, line_bytes_max).parse(data, place, ending)


def values(parsed: Parsed) -> list[Any]:
    return parsed.values.to_pylist()


def test_lines_are_stored_as_they_stand() -> None:
    parsed = parse(b'{"a": 1}\n {"b":\t"\xc3\xa9"} \n{"c":1.0}\n')
    assert values(parsed) == [b'{"a": 1}', b' {"b":\t"\xc3\xa9"} ', b'{"c":1.0}']
    assert (parsed.lines, parsed.consumed, list(parsed.bad)) == (3, 33, [])


def test_only_whole_lines_are_taken() -> None:
    parsed = parse(b'{"a":1}\n{"b":', ending=Ending.MORE)
    assert (values(parsed), parsed.consumed) == ([b'{"a":1}'], 8)
    assert parse(b'{"b":').consumed == 0


@pytest.mark.parametrize("ending", [Ending.GROWING, Ending.NOW, Ending.GONE])
def test_a_last_line_that_is_a_whole_object_needs_no_newline(ending: Ending) -> None:
    parsed = parse(b'{"a":1}\n{"b":2}', ending=ending)
    assert values(parsed) == [b'{"a":1}', b'{"b":2}']
    assert (parsed.lines, parsed.consumed, parsed.in_line) == (2, 15, True)


def test_in_the_middle_of_a_file_a_line_needs_its_newline() -> None:
    assert values(parse(b'{"a":1}\n{"b":2}', ending=Ending.MORE)) == [b'{"a":1}']


def test_the_newline_that_comes_later_is_no_line() -> None:
    parsed = parse(b'\r\n{"b":2}\n', msgspec.structs.replace(PLACE, offset=7, in_line=True))
    assert (values(parsed), parsed.lines) == ([b'{"b":2}'], 1)


def test_what_is_left_of_a_file_that_is_gone_is_bad() -> None:
    parsed = parse(b'{"a":', ending=Ending.GONE)
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
def test_a_bad_line_is_told_with_its_number_and_its_neighbours_are_taken(name: str) -> None:
    parsed = parse(
        b'{"n":1}\n' + BAD[name] + b'\n{"n":2}\n', msgspec.structs.replace(PLACE, line=7)
    )
    assert values(parsed) == [b'{"n":1}', b'{"n":2}']
    [bad] = parsed.bad
    assert (bad.line, bad.value) == (9, BAD[name])
    assert bad.error


@pytest.mark.parametrize("name", BAD)
def test_a_chunk_of_one_bad_line_is_not_taken_for_a_good_one(name: str) -> None:
    assert len(parse(BAD[name] + b"\n").bad) == 1


def test_objects_do_not_go_on_from_line_to_line() -> None:
    parsed = parse(b'{"a":{}\n}\n{} {}\n{"b":1}\n')
    assert values(parsed) == [b'{"b":1}']
    assert [bad.line for bad in parsed.bad] == [1, 2, 3]


def test_large_numbers_within_bounds_are_taken() -> None:
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
def test_a_chunk_gives_what_its_lines_would_give_however_it_is_cut(
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
    refused: list[tuple[int, bytes]] = []
    place = msgspec.structs.replace(PLACE, offset=1)  # not at the start: no byte order mark
    at = 0
    while at < len(data):
        end = len(data) if size > len(data) - at else at + size
        more = Ending.NOW if end == len(data) else Ending.MORE
        parsed = parse(data[at:end], place, more)
        if not parsed.consumed:
            size *= 2
            continue
        taken += values(parsed)
        refused += [(line.line, line.value) for line in parsed.bad]
        place = place.behind(data[at : at + parsed.consumed], parsed.lines, parsed.in_line)
        at += parsed.consumed
    assert taken == expected
    assert refused == bad


def test_a_line_of_any_length_is_passed_over_without_holding_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "CHUNK_BYTES", 64)
    path = tmp_path / "x.jsonl"
    long = b'{"a":"' + b"x" * 5000 + b'"}'
    path.write_bytes(b'{"n":1}\n' + long + b'\n{"n":2}\n')
    file, format, place = OpenFile(str(path)), JsonLines((), "utf-8", 100), PLACE
    taken: list[Any] = []
    bad: list[Any] = []
    while (piece := format.read(file, place, None, Ending.GROWING)) is not None:
        taken += piece.values.to_pylist()
        bad += piece.bad
        place = piece.place
    file.close()
    assert taken == [b'{"n":1}', b'{"n":2}']
    assert [(line.line, line.value) for line in bad] == [(2, long[:100])]
    assert "5,009 bytes" in bad[0].error
    assert (place.offset, place.line) == (path.stat().st_size, 3)
