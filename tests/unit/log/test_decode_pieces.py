"""Decoding in pieces returns the same records as decoding at once."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from tailrace.log.columns import decode, decode_pieces, encode
from tailrace.log.record import DamagedRecord, Positions
from tests.support.records import record

COUNT = 1000


def _encoded(seed: int) -> tuple[bytes, Positions]:
    chance = random.Random(seed)
    rows = (
        record(chance.randbytes(chance.randrange(200)), key=chance.randbytes(chance.randrange(9)))
        for _ in range(COUNT)
    )
    encoded = encode(tuple(rows))
    return bytes(encoded.stamp(7)), encoded.positions


def _joined(pieces: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(pieces).combine_chunks()


@pytest.mark.parametrize("bytes_max", [1, 3000, 40_000, 10**9])
@pytest.mark.parametrize("kept", [True, False])
def test_pieces_are_the_whole_cut_at_records(bytes_max: int, kept: bool) -> None:
    data, positions = _encoded(1)
    pieces = list(decode_pieces(data, positions if kept else None, bytes_max))
    assert _joined(pieces).equals(pa.Table.from_batches([decode(data)]))
    assert min(piece.num_rows for piece in pieces) >= 1
    assert len(pieces) == min(COUNT, max(1, round(len(data) / bytes_max)))


def test_wrong_positions_change_only_the_time_of_decoding() -> None:
    data, positions = _encoded(2)
    whole = pa.Table.from_batches([decode(data)])
    chance = np.random.default_rng(3)
    for _ in range(50):
        wrong = positions.copy()
        spoiled = chance.integers(0, COUNT, size=chance.integers(1, 20))
        wrong[spoiled] = chance.integers(0, 2**32, size=len(spoiled), dtype=np.uint32)
        assert _joined(list(decode_pieces(data, wrong, 5000))).equals(whole)
    for wrong in (np.zeros(COUNT, np.uint32), positions[::-1].copy(), positions[:10]):
        assert _joined(list(decode_pieces(data, wrong, 5000))).equals(whole)


def test_a_damaged_record_is_named_and_the_pieces_before_it_are_returned() -> None:
    data, positions = _encoded(4)
    place = int(positions[700])
    damaged = data[: place + 8] + b"\xff\xff\xff\xff" + data[place + 12 :]
    given: list[pa.RecordBatch] = []
    with pytest.raises(DamagedRecord):
        given.extend(decode_pieces(damaged, positions, 5000))
    assert 600 < sum(piece.num_rows for piece in given) <= 700
