"""The stored form of positions and split data: a source of an earlier version must resume."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.readers.file.copy import CopyData, CopyFile, CopyPosition
from tailrace.readers.file.file_position import FilePosition, Fingerprint
from tailrace.readers.file.follow import FollowData
from tailrace.readers.file.registry import FileRegistry, FollowedName, KnownFile

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
