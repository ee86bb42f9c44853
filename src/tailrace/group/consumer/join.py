"""Joining a group as a consumer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from tailrace.backend.contract import Backend
from tailrace.clock import Clock, SystemClock
from tailrace.group.consumer.consumer import Consumer
from tailrace.group.consumer.options import ConsumerOptions
from tailrace.group.protocol.times import Times
from tailrace.group.runtime.runtime import Runtime, join
from tailrace.group.session.session import Session
from tailrace.group.store.definition import TopicFilter, check_group, matching_topics
from tailrace.group.store.end_offsets import end_offsets
from tailrace.group.store.lifecycle import open_group
from tailrace.group.store.presence import enter
from tailrace.group.store.start import StartLike
from tailrace.message import Message
from tailrace.settings import HubSettings

Decoder = Callable[[str], Callable[[Message[Any]], Any]]
"""Returns, for a topic, the function that decodes the value of a message."""

_log: Final = logging.getLogger("tailrace.group")


def consume(
    backend: Backend,
    group: str,
    topics: str,
    start: StartLike,
    options: ConsumerOptions,
    *,
    decoder: Decoder,
    settings: HubSettings,
    clock: Clock,
) -> Consumer[Any]:
    """Return a consumer of a group. The group is created if it does not exist.

    The consumer joins when its `with` block or its first iteration begins.
    """
    definition = open_group(backend, group, topics, start, clock).definition
    chosen = TopicFilter(definition.filter)
    times = Times.of(settings.lease)
    interval_s = settings.progress_interval / timedelta(seconds=1)

    def join_group(session: Session) -> Runtime:
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

    return Consumer(
        backend,
        group,
        options,
        join=join_group,
        decoder=decoder,
        ends=lambda: end_offsets(backend, matching_topics(backend, chosen)),
        clock=SystemClock(),  # the clock of the runtime, whose leases are compared with it
    )
