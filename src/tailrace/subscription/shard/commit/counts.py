"""How many messages of a shard had which end, stored with the acknowledgements.

The table ``subscription-counts/NAME`` has an entry for each shard, ``0.3``. Each commit of the
shard's owner replaces it, so the counts and the ledgers never disagree: each message that was
pushed is counted in `acked`, `filtered`, `discarded` or `passed`, or is unacknowledged in MQ, RQ or
DLQ.
"""

from __future__ import annotations

import msgspec

from tailrace.backend.contract import TableKey


class ShardCounts(msgspec.Struct):
    """The counts of one shard since its subscription was created.

    `emitted` counts calls, those of further attempts included; `failed` those that failed. `acked`
    messages were handled, `filtered` ones did not match the filter, and `discarded` ones were
    dropped by an operator. `early` messages were acknowledged before their call, and `ended` counts
    those of them whose call has ended: the rest of an owner that was killed is `skipped`. `quiet`
    is the version of the last pause for which nothing was in flight any more. `passed` messages
    were passed over by offset resets, less those that a reset has made to be handled again; it may
    be negative. `usual` is the number of messages that are usually called in a second, and
    `held_ms` the time at which the throttle last held a message back, or 0.
    """

    emitted: int = 0
    failed: int = 0
    acked: int = 0
    filtered: int = 0
    discarded: int = 0
    early: int = 0
    ended: int = 0
    skipped: int = 0
    quiet: int = 0
    passed: int = 0
    usual: float = 0.0
    held_ms: int = 0

    def plus(self, other: ShardCounts) -> ShardCounts:
        """Return the sums of two counts. Those of `quiet` and `held_ms` mean nothing."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return ShardCounts(*(one + another for one, another in pairs))

    def taken_over(self) -> ShardCounts:
        """Return the counts for a new owner: calls that had not ended never will."""
        unended = self.early - self.ended
        return msgspec.structs.replace(self, ended=self.early, skipped=self.skipped + unended)


_decoder = msgspec.msgpack.Decoder(ShardCounts)


def counts_table(subscription: str) -> str:
    """Return the name of a subscription's table."""
    return f"subscription-counts/{subscription}"


def counts_key(subscription: str, shard: str) -> TableKey:
    """Return the key of a shard's entry."""
    return TableKey(counts_table(subscription), shard.encode())


def encode_counts(counts: ShardCounts) -> bytes:
    """Return the value to store."""
    return msgspec.msgpack.encode(counts)


def decode_counts(value: bytes | None) -> ShardCounts:
    """Decode a stored entry; None means that there is none."""
    return ShardCounts() if value is None else _decoder.decode(value)
