"""The messages of MQ that may be called, by partition: their offsets are stored before.

The table ``subscription-permits/NAME`` has an entry for each partition of MQ, ``orders/1.7``: the
offsets that the owner of the shard may have called, as a msgpack list of differences. An owner
stores a few times its concurrency at once, so a call rarely waits for a commit. If few keys wait,
it permits their followers too, and revokes these permits when other keys need them: a shard has
permits for a few times its concurrency, beside the calls under way, whatever it holds back. A clean
end removes the entry. So an owner that finds one came after an unclean end, and its unacknowledged
offsets may have been in flight: they are *suspect*.

A bound, as groups have it, would not do: a key with many messages is far behind the others, and
each of its messages below the bound would be suspect.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from operator import sub
from typing import Final

import msgspec

from tailrace.backend.contract import TableKey
from tailrace.message import Partition

_decode: Final = msgspec.msgpack.Decoder(list[int]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


def permits_table(subscription: str) -> str:
    """Return the name of a subscription's table."""
    return f"subscription-permits/{subscription}"


def permits_key(subscription: str, partition: Partition) -> TableKey:
    """Return the key of a partition's entry."""
    return TableKey(permits_table(subscription), str(partition).encode())


def encode_permits(offsets: Iterable[int]) -> bytes | None:
    """Return the value to store; None, which removes the entry, if there are none."""
    ordered = sorted(offsets)
    return _encode([*map(sub, ordered, (0, *ordered))]) if ordered else None


def decode_permits(value: bytes | None) -> frozenset[int]:
    """Decode a stored entry; None means that there is none."""
    return frozenset() if value is None else frozenset(accumulate(_decode(value)))
