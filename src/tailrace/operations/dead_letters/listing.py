"""Dead letters for people: listed one by one, or grouped by error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Final

from tailrace.clock import utc_time
from tailrace.delivery.dead_letters.letter import LETTER_HEADERS, DeadLetter
from tailrace.delivery.dead_letters.mailbox import Mailbox
from tailrace.hub.hub import Hub
from tailrace.log.redelivered import FOR
from tailrace.message import Mode, Op
from tailrace.operations.dead_letters.mailboxes import (
    ConsumerMailbox,
    SubscriptionMailbox,
    open_mailbox,
)
from tailrace.operations.pipeline.lookup import dead_letter_topic
from tailrace.operations.topic.message_view import Form, shown_value, text_of
from tailrace.pipeline.catalog import RegisteredPipeline
from tailrace.subscription.shard.attempts import Attempts, Origin
from tailrace.subscription.shard.moved_record import RESET
from tailrace.subscription.store.key_state import AttemptFailure, attempt_failures, read_trace
from tailrace.subscription.store.requests.letters import read_failed_attempts

_NUMBERS: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class DeadLetterView:
    """A pending dead letter.

    `position` is the position of the letter; `origin` is the position of the failed record, or its
    place in the source. `consumer` is the writer, the group or the subscription that could not
    process the record, or the pipeline whose reader could not read it. `namespace` is the key of
    the record, which is the namespace in a commit log. `form` is the form of `value`: a document,
    text or base64. `attempts` counts the failed attempts of a subscription, 0 for a letter that is
    behind another one of its key; None for other consumers. `failures` are the last 10 of them, and
    `traceback` is that of the last one that raised an error.
    """

    position: str
    consumer: str
    error: str
    origin: str
    time: datetime
    namespace: str
    mode: str
    op: str
    headers: dict[str, str]
    form: Form
    value: Any
    attempts: int | None = None
    failures: tuple[AttemptFailure, ...] = ()
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Letters of one consumer whose errors differ only in numbers.

    `error` is the error of the first letter.
    """

    consumer: str
    error: str
    count: int
    first: str
    last: str
    oldest: datetime


def count_letters(hub: Hub, pipeline: RegisteredPipeline) -> dict[str, int]:
    """Return the number of waiting letters of each writer.

    Letters of the reader count under the name of the pipeline.
    """
    topic = dead_letter_topic(hub, pipeline)
    if topic is None:
        return {}
    counts = Mailbox(topic.view, pipeline.name).count_by_writer()
    return {writer or pipeline.name: count for writer, count in counts.items()}


def list_letters(hub: Hub, consumer: str, count: int) -> list[DeadLetterView]:
    """Return the oldest waiting letters, at most `count`."""
    return _views(hub, consumer, lambda letters: islice(letters.waiting(), count))


def group_letters(hub: Hub, consumer: str) -> list[LetterGroup]:
    """Return all waiting letters grouped by error, the largest group first."""
    mailbox = open_mailbox(hub, consumer)
    attempts = _attempts(hub, mailbox)
    groups: dict[tuple[str, str], list[DeadLetter]] = {}
    for letter in mailbox.letters.waiting():
        key = letter.consumer, _NUMBERS.sub("#", _error(letter, attempts))
        groups.setdefault(key, []).append(letter)
    ordered = sorted(groups.values(), key=len, reverse=True)
    return [
        LetterGroup(
            consumer=letters[0].consumer,
            error=_error(letters[0], attempts),
            count=len(letters),
            first=letters[0].position,
            last=letters[-1].position,
            oldest=utc_time(letters[0].record.timestamp),
        )
        for letters in ordered
    ]


def show_letters(hub: Hub, consumer: str, positions: Sequence[str]) -> list[DeadLetterView]:
    """Return the waiting letters at these positions; see `Mailbox.select`."""
    return _views(hub, consumer, lambda letters: letters.select(positions))


def _views(
    hub: Hub, consumer: str, choose: Callable[[Mailbox], Iterable[DeadLetter]]
) -> list[DeadLetterView]:
    mailbox = open_mailbox(hub, consumer)
    attempts = _attempts(hub, mailbox)
    views = [_view(letter, attempts) for letter in choose(mailbox.letters)]
    if not isinstance(mailbox, SubscriptionMailbox):
        return views
    return [_with_trace(hub, mailbox.subscription, view) for view in views]


def _with_trace(hub: Hub, subscription: str, view: DeadLetterView) -> DeadLetterView:
    trace = read_trace(hub.backend, subscription, Origin.parse(view.origin))
    return replace(view, traceback=trace)


def _attempts(
    hub: Hub, mailbox: ConsumerMailbox | SubscriptionMailbox
) -> Mapping[str, Attempts] | None:
    """Return the failed attempts of a subscription's messages, by origin; None if the letters are
    those of another consumer."""
    if not isinstance(mailbox, SubscriptionMailbox):
        return None
    return read_failed_attempts(hub.backend, mailbox.subscription)


def _error(letter: DeadLetter, attempts: Mapping[str, Attempts] | None) -> str:
    """Return the last error, which may be that of a redelivery."""
    last = (attempts or {}).get(letter.origin)
    return letter.error if last is None else last.error or letter.error


def _view(letter: DeadLetter, attempts: Mapping[str, Attempts] | None) -> DeadLetterView:
    record = letter.record
    form, value = shown_value(record.value, Form.JSON)
    hidden = LETTER_HEADERS | {FOR, RESET}
    last = (attempts or {}).get(letter.origin)
    headers = {k: text_of(v) for k, v in letter.headers.items() if k not in hidden}
    return DeadLetterView(
        position=letter.position,
        consumer=letter.consumer,
        error=_error(letter, attempts),
        origin=letter.origin,
        time=utc_time(record.timestamp),
        namespace=text_of(record.key or b""),
        mode=Mode(record.mode).name.lower(),
        op=Op(record.op).name.lower(),
        headers=headers,
        form=form,
        value=value,
        attempts=None if attempts is None else 0 if last is None else last.count,
        failures=() if last is None else attempt_failures(last),
    )
