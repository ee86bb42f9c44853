"""What a consumer asked for when it came, checked."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Literal, TypeAlias, TypedDict

from tailrace.amount import is_whole
from tailrace.duration import parse_duration
from tailrace.errors import InvalidValue
from tailrace.group.share import Terms
from tailrace.settings import HubSettings
from tailrace.topic.composite import check_name

REVOKE_EXTRA_S = 5.0
"""How much longer than a handler may take a unit may take to be let go of."""


Ack: TypeAlias = Literal["auto", "manual"]
Until: TypeAlias = Literal["end"] | None


class TailOptions(TypedDict, total=False):
    """The options of `Topic.tail`, but for the group and where it begins."""

    id: str | None
    ack: Ack
    until: Until
    limit: int | None
    idle_timeout: timedelta | str | None
    attempts: int | None
    handler_timeout: timedelta | str | None
    batch_size: int


class Acks(Enum):
    """When a delivery is acknowledged: as the next is asked for, or by the user."""

    AUTO = "auto"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of `tail`.

    `id` is a name that nobody else has. `limit` and `idle_s` are None where a loop does not end by
    them.
    """

    id: str
    acks: Acks
    to_end: bool
    limit: int | None
    idle_s: float | None
    batch_size: int
    terms: Terms

    @classmethod
    def of(
        cls,
        settings: HubSettings,
        *,
        id: str | None = None,
        ack: Ack = "auto",
        until: Until = None,
        limit: int | None = None,
        idle_timeout: timedelta | str | None = None,
        attempts: int | None = None,
        handler_timeout: timedelta | str | None = None,
        batch_size: int = 10_000,
    ) -> Asked:
        """Options as a user gives them; what is not given is as the settings say."""
        if ack not in [acks.value for acks in Acks]:
            raise InvalidValue("ack", ack, "'auto' or 'manual'")
        if until not in (None, "end"):
            raise InvalidValue("until", until, "'end', or None to go on")
        counts = {"limit": limit, "attempts": attempts, "batch_size": batch_size}
        for what, count in counts.items():
            if count is not None and not (is_whole(count) and count >= 1):
                raise InvalidValue(what, count, "a whole number, 1 or more")
        token = secrets.token_hex(6)
        handler = parse_duration(
            settings.handler_timeout if handler_timeout is None else handler_timeout,
            "handler_timeout",
        )
        idle = None if idle_timeout is None else parse_duration(idle_timeout, "idle_timeout")
        return cls(
            id=token if id is None else f"{check_name('consumer', id)}.{token}",
            acks=Acks(ack),
            to_end=until is not None,
            limit=limit,
            idle_s=None if idle is None else idle.total_seconds(),
            batch_size=batch_size,
            terms=Terms(
                attempts=settings.attempts if attempts is None else attempts,
                redelivery_records_max=settings.redelivery_records_max,
                prefetch_bytes=settings.prefetch_bytes,
                revoke_timeout_s=handler.total_seconds() + REVOKE_EXTRA_S,
            ),
        )
