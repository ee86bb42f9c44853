"""Requests on the dead letters of a subscription, which its workers carry out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from tailrace.errors import InvalidValue, UnknownSubscription
from tailrace.hub.dead_letters import LetterConditions
from tailrace.hub.hub import Hub
from tailrace.operations.audit import read_audit
from tailrace.operations.dead_letters.mailboxes import SubscriptionMailbox, open_mailbox
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.subscription.shard.requests.state import TargetOutcome
from tailrace.subscription.store.owners import workers
from tailrace.subscription.store.pause import find_pause
from tailrace.subscription.store.requests.making import PENDING_MAX, MadeRequest, is_pending
from tailrace.topic.offset_spec import parse_time

LOOK_S: Final = 0.2
"""The longest time between two looks at a request that is being carried out."""


class LetterRequestState(StrEnum):
    """How far a request is."""

    EMPTY = "empty"
    """No dead letter was selected: nothing was asked for."""
    ENDED = "ended"
    PENDING = "pending"
    """Workers have not ended it yet."""
    UNATTENDED = "unattended"
    """No worker runs: it waits for one."""
    PAUSED = "paused"
    """The subscription is paused: it waits for the end of the pause."""


@dataclass(frozen=True, slots=True)
class LetterCommand:
    """A command on the dead letters of a subscription, with its options as they were given.

    `everything` stands for all letters; otherwise there is at least one other condition. Times are
    texts in ISO 8601.
    """

    action: RequestAction
    keys: Sequence[str] = ()
    positions: Sequence[str] = ()
    error: str = ""
    after: str | None = None
    before: str | None = None
    everything: bool = False
    break_order: bool = False
    attempts: int = 1
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LetterRequestReport:
    """A request, and what came of it.

    `letters` and `keys` are the numbers that were selected. `skipped` letters met the conditions
    and are behind others of their key that did not; `left` ones were too many for one request. With
    the state `ended`, `resolved` is the number of letters that were redelivered or discarded, and
    `failed`, `refused` and `gone` are the numbers of keys, or of letters without a key, that failed
    again, were not the first of their key, or were resolved before.
    """

    consumer: str
    command: str
    request: str
    state: LetterRequestState
    letters: int
    keys: int
    skipped: int
    left: int
    resolved: int = 0
    failed: int = 0
    refused: int = 0
    gone: int = 0


def subscription_named(hub: Hub, consumer: str) -> str | None:
    """Return the subscription that a consumer's name means; None if it means another consumer."""
    mailbox = open_mailbox(hub, consumer)
    return mailbox.subscription if isinstance(mailbox, SubscriptionMailbox) else None


def make_request(hub: Hub, name: str, command: LetterCommand) -> MadeRequest:
    """Ask the workers of a subscription to redeliver or to discard dead letters.

    Raise `InvalidValue` if a key or position has no dead letter, if a letter that is to be
    redelivered is not the first of its key, or if a reason is missing.
    """
    letters = hub.subscription(name).dead_letters
    which = LetterConditions(
        key=command.keys,
        id=command.positions,
        error=command.error,
        after=_time_ms("--after", command.after),
        before=_time_ms("--before", command.before),
        all=command.everything,
    )
    if command.action is RequestAction.DISCARD:
        return letters.discard(reason=command.reason, **which)
    return letters.redeliver(
        break_order=command.break_order,
        attempts=command.attempts,
        reason=command.reason,
        **which,
    )


def await_request(
    hub: Hub,
    name: str,
    command: LetterCommand,
    made: MadeRequest,
    longest: timedelta,
    monotonic: Callable[[], float] = time.monotonic,
) -> LetterRequestReport:
    """Wait until workers have carried out a request, at most for a time. Return what came of it.

    If no worker can carry it out now, return that at once.
    """
    deadline = monotonic() + longest.total_seconds()
    follower = hub.backend.follower()
    try:
        while True:
            follower.arm()
            report = look_at(hub, name, command, made)
            left_s = deadline - monotonic()
            if report.state is not LetterRequestState.PENDING or left_s <= 0:
                return report
            follower.wait(min(left_s, LOOK_S))
    finally:
        follower.close()


def look_at(hub: Hub, name: str, command: LetterCommand, made: MadeRequest) -> LetterRequestReport:
    """Return how far a request is now."""
    state = LetterRequestState.EMPTY
    counts = dict.fromkeys(("resolved", "failed", "refused", "gone"), 0)
    if made.entries and is_pending(hub.backend, name, made.id):
        state = _pending_state(hub, name, command)
    elif made.entries:
        state = LetterRequestState.ENDED
        counts = _outcome(hub, name, made)
    return LetterRequestReport(
        name,
        _command_name(command),
        made.id,
        state,
        made.letters,
        made.keys,
        made.skipped,
        made.left,
        **counts,
    )


def _pending_state(hub: Hub, name: str, command: LetterCommand) -> LetterRequestState:
    if not workers(hub.backend, name, {}):
        return LetterRequestState.UNATTENDED
    if find_pause(hub.backend, name) is not None and command.action is RequestAction.REDELIVER:
        return LetterRequestState.PAUSED
    return LetterRequestState.PENDING


def _outcome(hub: Hub, name: str, made: MadeRequest) -> dict[str, int]:
    """Return what came of a request, by its audit lines."""
    if name not in hub.subscriptions():
        raise UnknownSubscription(name, hub.backend.name, hub.subscriptions())
    others = (TargetOutcome.FAILED, TargetOutcome.REFUSED, TargetOutcome.GONE)
    counts = {"resolved": 0} | {each.name.lower(): 0 for each in others}
    for entry in read_audit(hub, name, PENDING_MAX):
        if str(entry.before.get("request", "")).startswith(f"{made.id}."):
            counts["resolved"] += entry.after["letters"]
            for each in others:
                outcome = each.name.lower()
                counts[outcome] += entry.after["targets"].get(outcome, 0)
    return counts


def _command_name(command: LetterCommand) -> str:
    return f"dlq {command.action.value}"


def _time_ms(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    found = parse_time(text.removeprefix("@"))
    if found is None:
        raise InvalidValue(option, text, "a time in ISO 8601, such as 2026-01-01T00:00Z")
    return found
