"""The checksum of two pieces of data in a row."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.checksum import crc32, crc32_combine


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_checksums_of_two_pieces_make_that_of_both(first: bytes, second: bytes) -> None:
    found = crc32_combine(crc32(first), crc32(second), len(second))
    assert found == crc32(first + second) == zlib.crc32(first + second)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**41), st.integers(0, 2**41))
def test_pieces_may_be_larger_than_memory(checksum: int, first: int, second: int) -> None:
    in_two_steps = crc32_combine(crc32_combine(checksum, 0, first), 0, second)
    assert in_two_steps == crc32_combine(checksum, 0, first + second)
