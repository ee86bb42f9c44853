"""The messages of MQ that may be called, by partition: their offsets are stored before.

The table ``subscription-permits/NAME`` has an entry for each partition of MQ, ``orders/1.7``: the
process of the shard's owner, and the offsets that it may have called, as a msgpack list of
differences. An owner
stores a few times its concurrency at once, so a call rarely waits for a commit. If few keys wait,
it permits their followers too, and revokes these permits when other keys need them: a shard has
permits for a few times its concurrency, beside the calls under way, whatever it holds back. A clean
end removes the entry. So an owner that finds one came after an unclean end. If the process has
ended, the unacknowledged offsets may have been in flight, and one of them may have ended it: they
are *suspect*. A process that lives, and has only lost the shard, was ended by no message.

A bound, as groups have it, would not do: a key with many messages is far behind the others, and
each of its messages below the bound would be suspect.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from operator import sub
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import TableKey
from tailrace.message import Partition

_decode: Final = msgspec.msgpack.Decoder(tuple[str, list[int]]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class Permits(NamedTuple):
    """The messages of a partition that the process `worker` may have called."""

    worker: str
    offsets: frozenset[int]


NO_PERMITS: Final = Permits("", frozenset())


def permits_table(subscription: str) -> str:
    """Return the name of a subscription's table."""
    return f"subscription-permits/{subscription}"


def permits_key(subscription: str, partition: Partition) -> TableKey:
    """Return the key of a partition's entry."""
    return TableKey(permits_table(subscription), str(partition).encode())


def encode_permits(worker: str, offsets: Iterable[int]) -> bytes | None:
    """Return the value to store; None, which removes the entry, if there are no offsets."""
    ordered = sorted(offsets)
    return _encode((worker, [*map(sub, ordered, (0, *ordered))])) if ordered else None


def decode_permits(value: bytes | None) -> Permits:
    """Decode a stored entry; None means that there is none."""
    if value is None:
        return NO_PERMITS
    worker, differences = _decode(value)
    return Permits(worker, frozenset(accumulate(differences)))
