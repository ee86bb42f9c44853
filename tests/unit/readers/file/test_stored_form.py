"""The stored form of positions and split data: a source of an earlier version must resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tailrace import readers
from tailrace.readers.file.copy import CopyData, CopyFile, CopyPosition
from tailrace.readers.file.file_position import FilePosition, Fingerprint
from tailrace.readers.file.follow import FollowData
from tailrace.readers.file.ranges.division import FileRange
from tailrace.readers.file.ranges.range_position import DividedFile, RangeData, RangePosition
from tailrace.readers.file.registry import FileRegistry, FollowedName, KnownFile
from tailrace.source.reader import Split, Until

POSITION = FilePosition(
    "a.jsonl", 1, 2, offset=9, head=Fingerprint(3, 4), generation=5, past=(FilePosition("b", 1, 3),)
)
STORED = {
    "path": "a.jsonl",
    "device": 1,
    "inode": 2,
    "offset": 9,
    "head": [3, 4],
    "turn": 5,
    "past": [{"path": "b", "device": 1, "inode": 3}],
}


def stored(value: msgspec.Struct) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_a_file_position_keeps_its_stored_keys() -> None:
    assert stored(POSITION) == STORED
    assert msgspec.convert(STORED, FilePosition) == POSITION


def test_a_copy_keeps_its_stored_keys() -> None:
    data = CopyData("a", (CopyFile(POSITION, 9, "follow:1:a.jsonl"),))
    file = {"place": STORED, "size": 9, "split": "follow:1:a.jsonl"}
    assert stored(data) == {"namespace": "a", "files": [file]}
    position = CopyPosition(1, POSITION, 7)
    assert stored(position) == {"number": 1, "place": STORED, "rows": 7}


def test_a_follow_split_keeps_its_stored_keys() -> None:
    data = FollowData("a.jsonl", "a", POSITION, "follow:1:a.jsonl")
    assert stored(data) == {
        "name": "a.jsonl",
        "namespace": "a",
        "place": STORED,
        "owner": "follow:1:a.jsonl",
    }


def test_a_registry_keeps_its_stored_form() -> None:
    registry = FileRegistry(
        {"a.jsonl": FollowedName("follow:1:a.jsonl", 2, missing=True)},
        {"1:2": KnownFile("follow:1:a.jsonl", 2, Fingerprint(3, 4), born_ns=5, fresh=True)},
        1,
    )
    assert stored(registry) == {
        "names": {"a.jsonl": ["follow:1:a.jsonl", 2, True]},
        "files": {"1:2": ["follow:1:a.jsonl", 2, [3, 4], 5, True]},
        "count": 1,
    }
    waiting = FileRegistry(waiting={"follow:1:a.jsonl": POSITION})
    assert stored(waiting) == {"waiting": {"follow:1:a.jsonl": STORED}}


def test_a_range_keeps_its_stored_keys() -> None:
    data = RangeData("a", POSITION, FileRange(0, 7), 9)
    assert stored(data) == {"namespace": "a", "place": STORED, "range": [0, 7], "size": 9}
    position = RangePosition(5, POSITION, 3, 2)
    assert stored(position) == {"begin": 5, "place": STORED, "lines": 3, "rows": 2}
    divided = DividedFile(POSITION, (0, 7), "follow:1:a.jsonl")
    file = {"place": STORED, "starts": [0, 7], "split": "follow:1:a.jsonl"}
    assert stored(CopyData("a", (), (divided,))) == {
        "namespace": "a",
        "files": [],
        "divided": [file],
    }
    assert divided.ranges == ("range:0:a.jsonl", "range:7:a.jsonl")


def test_splits_that_were_stored_without_a_bound_report_such_splits(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n":1}\n')
    with readers.file(str(path)).open(Until.NOW) as session:
        [discovered] = session.read(Split("discover"), None, None, {})
        assert discovered is not None
        copy, watch = discovered.children
        copied, completed = session.read(Split(copy.id, copy.data), None, None, {})
        assert copied is not None
        assert completed is not None
        assert completed.records is not None
        assert [each.bound for each in (copy, watch, *copied.children)] == [None] * 3
