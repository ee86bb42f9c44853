"""The partition of a key: Kafka's hash, both routers, one key and columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import InvalidValue
from tailrace.topic import router
from tailrace.topic.router import (
    HASHES,
    NO_KEY,
    RouterKind,
    hash_key,
    hash_keys,
    murmur2,
    route,
)

KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}

shapes = st.tuples(st.integers(1, 100), st.integers(1, 100)).map(lambda s: (s[0] * s[1], s[1]))
hashes = st.integers(0, HASHES - 1)


@pytest.mark.parametrize(("key", "signed"), KAFKA.items())
def test_the_hash_is_that_of_kafka(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32
    assert hash_key(key) == signed & 0x7FFFFFFF


@given(st.lists(st.none() | st.binary(max_size=23), max_size=80), st.integers(0, 3))
def test_a_column_hashes_like_its_keys(keys: list[bytes | None], start: int) -> None:
    expected = [hash_key(key) if key else NO_KEY for key in keys[start:]]
    assert hash_keys(pa.array(keys, pa.binary())[start:]).tolist() == expected


def test_keys_of_very_different_lengths_hash_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "_WORDS_MAX", 50)
    lengths = [1, 3, 4, 100, 5000, *[40] * 30, *[196, 199, 200, 201, 500] * 9]
    keys = [bytes(i + j & 0xFF for j in range(n)) for i, n in enumerate(lengths)]
    assert hash_keys(pa.array(keys)).tolist() == [hash_key(key) for key in keys]


def test_a_column_without_keys_has_no_hashes() -> None:
    assert hash_keys(pa.nulls(3, pa.binary())).tolist() == [NO_KEY] * 3
    assert hash_keys(pa.array([], pa.binary())).tolist() == []
    assert hash_keys(pa.array([b"", b""])).tolist() == [NO_KEY] * 2


@pytest.mark.parametrize(("h", "partition"), [(1, 5), (7, 5), (10, 1), (13, 6), (23, 7)])
def test_the_published_routes_hold(h: int, partition: int) -> None:
    assert route(RouterKind.SHARD_CONSISTENT, h, 10, 5) == partition


@given(hashes, shapes)
def test_a_key_stays_in_the_block_of_its_base_partition(h: int, shape: tuple[int, int]) -> None:
    partitions, k = shape
    assert route(RouterKind.SHARD_CONSISTENT, h, partitions, k) // k == h % (partitions // k)


@given(hashes, st.integers(1, 10_000))
def test_unscaled_a_key_goes_where_kafka_puts_it(h: int, partitions: int) -> None:
    assert route(RouterKind.SHARD_CONSISTENT, h, partitions, 1) == h % partitions


@given(st.lists(hashes, min_size=1), shapes, st.sampled_from(RouterKind))
def test_columns_route_like_single_hashes(
    some: list[int], shape: tuple[int, int], kind: RouterKind
) -> None:
    expected = [route(kind, h, *shape) for h in some]
    assert route(kind, np.array(some), *shape).tolist() == expected
    assert all(0 <= partition < shape[0] for partition in expected)


@pytest.mark.parametrize("kind", RouterKind)
@pytest.mark.parametrize("shape", [(12, 3), (12, 1), (10, 5), (7, 7)])
def test_keys_spread_evenly(kind: RouterKind, shape: tuple[int, int]) -> None:
    keys = hash_keys(pa.array([f"customer-{i}".encode() for i in range(20_000)]))
    counts = np.bincount(route(kind, keys, *shape), minlength=shape[0])
    assert counts.min() > 0.85 * 20_000 / shape[0]


def test_an_unknown_router_is_refused_with_the_known_ones() -> None:
    assert RouterKind.parse("range") is RouterKind.RANGE
    with pytest.raises(InvalidValue, match="valid: shard-consistent, range"):
        RouterKind.parse("random")
