"""Becoming a consumer of a group."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from tailrace.backend.contract import Backend
from tailrace.clock import Clock, SystemClock
from tailrace.group.asked import Asked
from tailrace.group.definition import TopicFilter, check_group, matching_topics
from tailrace.group.deliveries import Deliveries
from tailrace.group.ends import ends_of
from tailrace.group.members import enter
from tailrace.group.opening import open_group
from tailrace.group.runtime import Runtime, join
from tailrace.group.session import Session
from tailrace.group.starting import StartLike
from tailrace.group.times import Times
from tailrace.message import Message
from tailrace.settings import HubSettings

Decoder = Callable[[str], Callable[[Message[Any]], Any]]
"""What makes the value of a message, for each topic."""

_log: Final = logging.getLogger("tailrace.group")


def consume(
    backend: Backend,
    group: str,
    topics: str,
    start: StartLike,
    asked: Asked,
    *,
    decoder: Decoder,
    settings: HubSettings,
    clock: Clock,
) -> Deliveries[Any]:
    """A consumer of a group, which is made if it is not there.

    It takes part from the beginning of its `with` block or its first iteration on.
    """
    definition = open_group(backend, group, topics, start, clock).definition
    chosen = TopicFilter(definition.filter)
    times = Times.of(settings.lease)
    interval_s = settings.progress_interval / timedelta(seconds=1)

    def take_part(session: Session) -> Runtime:
        runtime = join(backend, session, times, interval_s)
        try:
            check_group(backend, group)
            enter(backend, group, session.id, runtime.process, clock.now_ms())
            if not matching_topics(backend, chosen):
                _log.warning("group %s: no topic matches %s yet", group, chosen.text)
        except BaseException:
            runtime.leave(session.id)
            raise
        return runtime

    return Deliveries(
        backend,
        group,
        asked,
        join=take_part,
        decoder=decoder,
        ends=lambda: ends_of(backend, matching_topics(backend, chosen)),
        clock=SystemClock(),  # that of the runtime: leases are compared with it
    )
