"""How many messages may fail before a subscription slows down. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace.delivery.share import VALID, parse_share
from tailrace.errors import InvalidValue

SHARE: Final = 0.1
"""The share of a throttle that is not given."""

BURST: Final = 1000
"""The messages of a subscription that may fail at once, and move to RQ, before it slows down."""

BURST_MIN: Final = 20
"""The least part of them that a shard has."""

PROBES_PER_S: Final = 1.0
"""The messages of a shard that may fail in a second however slow it is."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """An error throttle: the most messages of a shard that may fail in a second, as a share of
    those that it usually calls in a second, and those that may fail at once."""

    share: float
    burst: int = BURST

    @classmethod
    def of_shard(cls, share: float, shards: int) -> Throttle:
        """Return the throttle of each of so many shards."""
        return cls(share, max(BURST_MIN, -(-BURST // shards)))


def parse_throttle(given: object) -> float:
    """Parse the share of a throttle, such as ``10%``; ``on`` is the default. Raises
    `InvalidValue`."""
    if given == "on":
        return SHARE
    try:
        return parse_share(given, "throttle")
    except InvalidValue:
        raise InvalidValue("throttle", given, f"{VALID}, 'on' or 'off'") from None
