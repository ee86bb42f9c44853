"""The audit line of a request on dead letters: what was asked for, and what came of it."""

from __future__ import annotations

from typing import Final

from tailrace.amount import format_amount
from tailrace.clock import utc_time
from tailrace.subscription.shard.requests.request import LetterRequest, RequestAction
from tailrace.subscription.shard.requests.state import EndedRequest, TargetOutcome
from tailrace.subscription.store.requests.letters import letter_position
from tailrace.topic.audit_log import AuditEntry

NAMED_MAX: Final = 100
"""The number of keys, and of letters, that an audit line names."""

_DONE: Final = {RequestAction.REDELIVER: "redelivered", RequestAction.DISCARD: "discarded"}
_OTHERS: Final = {
    TargetOutcome.FAILED: "failed",
    TargetOutcome.REFUSED: "refused: not the first of its key",
    TargetOutcome.GONE: "not pending any more",
}


def audit_of(subscription: str, ended: EndedRequest, now_ms: int) -> AuditEntry:
    """Return the audit entry of a request that ends now. Its target is the subscription."""
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
        },
        reason=request.reason,
    )


def _keys(request: LetterRequest) -> list[str]:
    """Return the keys of which all letters were asked for."""
    keys = [target.key for target in request.targets if target.key and not target.letters]
    return [key.decode("utf-8", "backslashreplace") for key in keys[:NAMED_MAX]]


def _letters(subscription: str, request: LetterRequest) -> list[str]:
    """Return the positions of the letters that were asked for."""
    places = [place for target in request.targets for place in target.letters]
    return [letter_position(subscription, place) for place in places[:NAMED_MAX]]
