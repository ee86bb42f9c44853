"""A decoder that knows the record format alone reads every `.log` file of a hub."""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from tailrace.backend.contract import StorageTopic, Transaction
from tailrace.backend.embedded import EmbeddedBackend, folding, writer
from tailrace.message import Mode, Op, Partition
from tests.support.records import columns, create, record

pytestmark = pytest.mark.part("log")


class _LogEntry(NamedTuple):
    offset: int
    timestamp: int
    mode: int
    key: bytes
    data: bytes


def _decode(log: bytes) -> Iterator[_LogEntry]:
    """Yield entries of a log, decoded by the description alone: offset 8 bytes, message length 4,
    timestamp 8, mode 1, key length 4, key, data length 4, data; the message is what follows mode.
    """
    at = 0
    while at < len(log):
        offset, length, timestamp, mode = struct.unpack_from(">QIQB", log, at)
        at += 21
        message = log[at : at + length]
        at += length
        (key_length,) = struct.unpack_from(">I", message)
        key = message[4 : 4 + key_length]
        (data_length,) = struct.unpack_from(">I", message, 4 + key_length)
        data = message[8 + key_length :]
        assert len(data) == data_length
        yield _LogEntry(offset, timestamp, mode, key, data)


def _committed_bytes(hub: Path) -> dict[tuple[int, int], int]:
    """Return the committed length of each segment, read by SQLite alone."""
    connection = apsw.Connection(str(hub / "hub.db"))
    rows: Any = connection.execute(
        "SELECT s.partition, s.base, iif(s.base = p.segment, p.bytes, s.bytes)"
        " FROM segments s JOIN partitions p ON p.id = s.partition"
    ).fetchall()
    connection.close()
    return {(number, base): size for number, base, size in rows}


def _expected(offset: int, row: Any) -> _LogEntry:
    data = row.value
    if row.headers:
        # msgpack: a map of one short str to a short bin
        ((name, value),) = row.headers.items()
        block = b"\x81" + bytes([0xA0 + len(name)]) + name.encode()
        block += b"\xc4" + bytes([len(value)]) + value
        data = struct.pack(">I", len(block)) + block + data
    mode = row.mode | row.op << 2 | (0x80 if row.headers else 0)
    return _LogEntry(offset, row.timestamp, mode, row.key or b"", data)


def test_a_foreign_decoder_reads_every_file_up_to_the_last_committed_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FOLD_ABOVE", 8)
    monkeypatch.setattr(folding, "FOLD_COUNT", 4)
    chance = random.Random(5)
    expected: dict[str, list[_LogEntry]] = defaultdict(list)
    with closing(EmbeddedBackend.open(tmp_path, sync="none", segment_bytes=3000)) as backend:
        topics = (
            StorageTopic("orders", 0, 3),
            StorageTopic("orders", 1, 2),
            StorageTopic("x", 0, 1),
        )
        partitions = [
            Partition(topic.topic, topic.storage, number)
            for topic in topics
            for number in range(topic.partitions)
        ]
        for topic in topics:
            create(backend, topic)
        for _ in range(60):
            rows = tuple(
                record(
                    chance.randbytes(chance.randrange(40)),
                    chance.choice((None, b"A", b"customer-7")),
                    chance.choice((None, {"trace": b"\x00\xff"})),
                    chance.randrange(2**40),
                    chance.choice(list(Mode)),
                    chance.choice(list(Op)),
                )
                for _ in range(chance.choice((1, 3, 120)))
            )
            given = columns(rows) if chance.random() < 0.5 else rows
            chosen = chance.sample(partitions, 2)
            for landed in backend.commit(
                Transaction(tuple((partition, given) for partition in chosen))
            ):
                name = (
                    f"{landed.partition.topic}/{landed.partition.storage}.{landed.partition.number}"
                )
                expected[name] += map(_expected, range(landed.start, landed.end), rows)
    committed = _committed_bytes(tmp_path)
    found: dict[str, list[_LogEntry]] = defaultdict(list)
    files = sorted((tmp_path / "topics").glob("*/*/*.log"))
    assert len(files) > len(partitions) * 3
    for file in files:
        place, number = file.parent.name.rsplit("-", 1)
        log = file.read_bytes()[: committed[int(number), int(file.stem)]]
        found[f"{file.parent.parent.name}/{place}"] += _decode(log)
    assert found == expected


def test_the_golden_bytes_decode() -> None:
    golden = bytes.fromhex(
        "0000000000000000 0000000b 00000000591be3c0 00 00000001 41 00000002 7b7d"
    )
    assert list(_decode(golden)) == [_LogEntry(0, 1_495_000_000, 0, b"A", b"{}")]
