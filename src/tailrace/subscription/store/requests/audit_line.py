"""The audit line of a request on dead letters: what was asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from tailrace.amount import format_amount
from tailrace.backend.contract import Backend
from tailrace.clock import utc_time
from tailrace.errors import CorruptBatch, OutOfRange
from tailrace.message import Partition
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.requests.request import (
    LetterPlace,
    LetterRequest,
    RequestAction,
    RequestTarget,
)
from tailrace.subscription.shard.requests.state import EndedRequest, TargetOutcome
from tailrace.subscription.store.names import dead_letter_queue
from tailrace.subscription.store.queue_scan import message_at
from tailrace.subscription.store.requests.letters import letter_position
from tailrace.topic.audit_log import DISCARDED, NAMED_MAX, AuditEntry, discarded_message

_DONE: Final = {RequestAction.REDELIVER: "redelivered", RequestAction.DISCARD: "discarded"}
_OTHERS: Final = {
    TargetOutcome.FAILED: "failed",
    TargetOutcome.REFUSED: "refused: not the first of its key",
    TargetOutcome.GONE: "not pending any more",
}


def audit_of(backend: Backend, subscription: str, ended: EndedRequest, now_ms: int) -> AuditEntry:
    """Return the audit entry of a request that ends now. Its target is the subscription.

    That of a discard names the messages: at most `NAMED_MAX`, and a key that has more letters
    alone.
    """
    request, state = ended
    done = f"{format_amount(state.letters, 'dead letter')} {_DONE[request.action]}"
    counts = state.counts()
    others = [f"{counts[each]:,} {text}" for each, text in _OTHERS.items() if each in counts]
    return AuditEntry(
        utc_time(now_ms),
        request.who,
        request.pid,
        request.command,
        subscription,
        before={
            "request": request.id,
            "shard": request.shard,
            "requested": utc_time(request.made_ms).isoformat(),
            "keys": _keys(request),
            "letters": _letters(subscription, request),
        },
        after={
            "done": "; ".join([done, *others]),
            "letters": state.letters,
            "targets": {each.name.lower(): count for each, count in counts.items()},
            **_discarded(backend, subscription, ended),
        },
        reason=request.reason,
    )


def _discarded(backend: Backend, subscription: str, ended: EndedRequest) -> dict[str, Any]:
    request, state = ended
    if request.action is not RequestAction.DISCARD:
        return {}
    done = [
        target
        for target, outcome in zip(request.targets, state.outcomes, strict=True)
        if outcome == TargetOutcome.DONE.value
    ]
    return {DISCARDED: [*islice(_names(backend, subscription, done), NAMED_MAX)]}


def _names(
    backend: Backend, subscription: str, targets: Iterable[RequestTarget]
) -> Iterator[dict[str, str | None]]:
    for target in targets:
        for place in target.letters:
            yield _named(backend, subscription, place)
        if target.until is not None:
            last = f"all dead letters up to {letter_position(subscription, target.until)}"
            yield discarded_message(last, target.key)


def _named(backend: Backend, subscription: str, place: LetterPlace) -> dict[str, str | None]:
    """Return the name of a message; that of its letter if the letter cannot be read."""
    partition = Partition(dead_letter_queue(subscription), place.storage, place.partition)
    try:
        found = message_at(backend, Queue.DLQ, partition, place.offset)
    except (CorruptBatch, OutOfRange):
        return discarded_message(letter_position(subscription, place), None)
    return discarded_message(str(found.origin), found.record.key)


def _keys(request: LetterRequest) -> list[str]:
    """Return the keys of which all letters were asked for."""
    keys = [target.key for target in request.targets if target.key and not target.letters]
    return [key.decode("utf-8", "backslashreplace") for key in keys[:NAMED_MAX]]


def _letters(subscription: str, request: LetterRequest) -> list[str]:
    """Return the positions of the letters that were asked for."""
    places = [place for target in request.targets for place in target.letters]
    return [letter_position(subscription, place) for place in places[:NAMED_MAX]]
