"""The index of a segment: every entry is found, and damage never hides one."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.disk import Disk
from tailrace.log.index import BatchEntry, DamagedIndex, IndexReader, encode_block

BLOCK_HEAD_BYTES = 24
ENTRY_BYTES = 56
ALL_BYTES = 2**30


def entries_of(counts: Sequence[int], base: int = 0, gap: int = 0) -> list[BatchEntry]:
    """Return entries of batches of these sizes, `gap` offsets apart."""
    entries = []
    ordinal = position = 0
    for count in counts:
        entries.append(BatchEntry(base, count, ordinal, position, 30 * count, 1, 2, 3, 0xFFFF_FFFF))
        base += count + gap
        ordinal += count
        position += 30 * count
    return entries


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file.index", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def _write(descriptor: int, *blocks: Sequence[BatchEntry]) -> int:
    data = b"".join(map(encode_block, blocks))
    os.pwrite(descriptor, data, 0)
    return len(data)


def test_a_block_has_the_documented_bytes() -> None:
    entry = BatchEntry(7, 2, 3, 100, 60, 11, 12, 13, 0xCAFE)
    block = encode_block([entry])
    assert len(block) == BLOCK_HEAD_BYTES + ENTRY_BYTES
    entries_crc, header_crc = zlib.crc32(block[24:]), zlib.crc32(block[:20])
    assert block[:24].hex() == (
        f"54524958 00000001 0000000000000007 {entries_crc:08x} {header_crc:08x}".replace(" ", "")
    )
    assert block[BLOCK_HEAD_BYTES:].hex() == (
        "0000000000000007 00000002 00000003 00000064 0000003c"
        " 000000000000000b 000000000000000c 000000000000000d 0000cafe 00000000"
    ).replace(" ", "")


@given(
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=5), min_size=1, max_size=5),
    st.integers(0, 3),
)
def test_the_entry_that_holds_an_offset_is_found_or_the_next(
    sizes: list[list[int]], gap: int
) -> None:
    entries = entries_of([count for block in sizes for count in block], base=5, gap=gap)
    rest = iter(entries)
    blocks = [[next(rest) for _ in block] for block in sizes]
    descriptor = os.memfd_create("index")
    try:
        index_bytes = _write(descriptor, *blocks)
        reader = IndexReader(Disk())
        for offset in range(entries[-1].base + entries[-1].records + 2):
            found = reader.entries(descriptor, index_bytes, offset, ALL_BYTES)
            due = [entry for entry in entries if entry.base + entry.records > offset]
            assert found[:1] == due[:1]
            assert found == due[: len(found)]
            assert reader.entries(descriptor, index_bytes, offset, 1) == due[:1]
    finally:
        os.close(descriptor)


def test_bytes_after_the_committed_length_are_ignored(descriptor: int) -> None:
    first, second = entries_of([1, 1]), entries_of([1, 1], base=2)
    whole = _write(descriptor, first, second)
    committed = len(encode_block(first))
    reader = IndexReader(Disk())
    assert reader.entries(descriptor, committed, 2, ALL_BYTES) == []
    assert reader.entries(descriptor, whole, 2, ALL_BYTES) == second
    assert reader.entries(descriptor, committed, 2, ALL_BYTES) == []


def test_a_block_rewritten_after_a_failed_commit_is_read_again(descriptor: int) -> None:
    first = entries_of([1, 1])
    committed = _write(descriptor, first, entries_of([9], base=2))
    reader = IndexReader(Disk())
    assert reader.entries(descriptor, len(encode_block(first)), 0, ALL_BYTES) == first
    second = entries_of([4], base=2)
    assert _write(descriptor, first, second) == committed
    assert reader.entries(descriptor, committed, 3, ALL_BYTES) == second


def test_every_flipped_bit_is_found_and_the_entries_before_it_are_still_read(
    descriptor: int,
) -> None:
    blocks = [entries_of([2, 2], base=base) for base in (0, 4, 8)]
    index_bytes = _write(descriptor, *blocks)
    block_bytes = index_bytes // len(blocks)
    for bit in range(index_bytes * 8):
        position = bit // 8
        (byte,) = os.pread(descriptor, 1, position)
        os.pwrite(descriptor, bytes([byte ^ 1 << bit % 8]), position)
        damaged = position // block_bytes
        reader = IndexReader(Disk())
        for number, block in enumerate(blocks[:damaged]):
            assert reader.entries(descriptor, index_bytes, number * 4, ALL_BYTES) == block
        with pytest.raises(DamagedIndex) as caught:
            reader.entries(descriptor, index_bytes, damaged * 4, ALL_BYTES)
        assert caught.value.next_offset in (None, (damaged + 1) * 4)
        os.pwrite(descriptor, bytes([byte]), position)


def test_an_index_cut_short_is_damaged(descriptor: int) -> None:
    index_bytes = _write(descriptor, entries_of([1]), entries_of([1], base=1))
    for size in range(index_bytes):
        os.ftruncate(descriptor, size)
        with pytest.raises(DamagedIndex):
            IndexReader(Disk()).entries(descriptor, index_bytes, 1, ALL_BYTES)
