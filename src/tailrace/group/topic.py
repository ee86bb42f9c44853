"""A topic that can be shared by the consumers of a group."""

from __future__ import annotations

from datetime import timedelta
from typing import Generic, TypeVar

from tailrace.group.asked import Ack, Asked, Until
from tailrace.group.deliveries import Deliveries
from tailrace.group.starting import StartLike
from tailrace.group.tailing import consume
from tailrace.topic.topic import Topic as StoredTopic

T = TypeVar("T")


class Topic(StoredTopic[T], Generic[T]):
    """A composite topic: ordered per key, re-scalable while it is used, consumed by groups."""

    def tail(
        self,
        *,
        group: str,
        start: StartLike = "earliest",
        ack: Ack = "auto",
        attempts: int | None = None,
        until: Until = None,
        limit: int | None = None,
        idle_timeout: timedelta | str | None = None,
        handler_timeout: timedelta | str | None = None,
        batch_size: int = 10_000,
        id: str | None = None,
    ) -> Deliveries[T]:
        """A consumer of a group: each message goes to one of them, in order per key.

        The same in more places, threads or processes, is all it takes to scale. `start` is where a
        new group begins: ``"earliest"``, ``"latest"``, an aware datetime, a position, or offsets by
        partition. ``until="end"`` ends the loop at what is there when it begins, `limit` after so
        many messages, `idle_timeout` when none came for so long. ``ack="manual"`` leaves it to
        `Delivery.ack` and `Delivery.nack`. `handler_timeout` is how long one message may take when
        its partition is to go to another consumer. `id` is what its name, for people, begins with.
        """
        return consume(
            self.view.backend,
            group,
            self.name,
            start,
            Asked.of(
                self.settings,
                id=id,
                ack=ack,
                until=until,
                limit=limit,
                idle_timeout=idle_timeout,
                attempts=attempts,
                handler_timeout=handler_timeout,
                batch_size=batch_size,
            ),
            decoder=lambda _: self.payload.decode_message,
            settings=self.settings,
            clock=self.clock,
        )
