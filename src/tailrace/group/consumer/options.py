"""The options of a consumer, checked."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final, Literal, TypeAlias, TypedDict

from tailrace.amount import is_whole
from tailrace.duration import parse_duration
from tailrace.errors import InvalidValue
from tailrace.group.session.machine import SessionOptions
from tailrace.settings import HubSettings
from tailrace.topic.composite import check_name

REVOKE_EXTRA_S: Final = 5.0
"""How much longer than a handler a unit may take to be released."""

Ack: TypeAlias = Literal["auto", "manual"]
Until: TypeAlias = Literal["end"] | None


class TailOptions(TypedDict, total=False):
    """The options of `Topic.tail`, except for the group and its start."""

    id: str | None
    ack: Ack
    until: Until
    limit: int | None
    idle_timeout: timedelta | str | None
    attempts: int | None
    handler_timeout: timedelta | str | None
    batch_size: int
    control: bool


class AckMode(Enum):
    """When a delivery is acknowledged: when the next one is asked for, or by the user."""

    AUTO = "auto"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The options of `tail`.

    `id` is a unique name. `limit` and `idle_s` are None if they do not end the loop. `attempts` is
    None if the user gave none; a loop then has those of the settings.
    """

    id: str
    ack_mode: AckMode
    to_end: bool
    limit: int | None
    idle_s: float | None
    batch_size: int
    attempts: int | None
    session: SessionOptions

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
        control: bool = False,
    ) -> ConsumerOptions:
        """Make options from the arguments of a user. The settings have the defaults."""
        if ack not in [mode.value for mode in AckMode]:
            raise InvalidValue("ack", ack, "'auto' or 'manual'")
        if until not in (None, "end"):
            raise InvalidValue("until", until, "'end', or None to continue for ever")
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
            ack_mode=AckMode(ack),
            to_end=until is not None,
            limit=limit,
            idle_s=None if idle is None else idle.total_seconds(),
            batch_size=batch_size,
            attempts=attempts,
            session=SessionOptions(
                attempts=settings.attempts if attempts is None else attempts,
                redelivery_records_max=settings.redelivery_records_max,
                prefetch_bytes=settings.prefetch_bytes,
                revoke_timeout_s=handler.total_seconds() + REVOKE_EXTRA_S,
                control=control,
            ),
        )
