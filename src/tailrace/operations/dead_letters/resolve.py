"""Operators redeliver dead letters of groups and pipelines, or discard them.

One transaction acknowledges a letter, appends the redelivered record for its consumer alone, and
stores the audit entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.amount import format_amount
from tailrace.delivery.dead_letters.letter import DeadLetter
from tailrace.delivery.dead_letters.resolve import Append, resolve
from tailrace.errors import InvalidValue
from tailrace.group.group import check_reason
from tailrace.hub.hub import Hub
from tailrace.operations.audit import audit_entry, audit_topic
from tailrace.operations.dead_letters.mailboxes import (
    ConsumerMailbox,
    SubscriptionMailbox,
    open_mailbox,
)
from tailrace.topic.audit_log import DISCARDED, NAMED_MAX, audit_append, discarded_message
from tailrace.topic.view import View


@dataclass(frozen=True, slots=True)
class ResolvedLetters:
    """The letters that a command resolved, by position."""

    consumer: str
    command: str
    letters: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class _Command:
    """A command as its audit entry names it; `done` completes "3 dead letters …"."""

    name: str
    done: str
    reason: str = ""


def redeliver(
    hub: Hub, consumer: str, positions: Sequence[str] | None, reason: str = ""
) -> ResolvedLetters:
    """Append the records to their topics again, each for its consumer alone.

    The topic is the commit log of a writer, or the topic of a group. Without positions, redeliver
    all letters that can be, and leave the others pending. Raise `InvalidValue` for the position of
    a letter that cannot be redelivered: its reader could not read it, or its writer, group or topic
    does not exist any more; then no letter is redelivered. The audit keeps the reason.
    """
    mailbox = _mailbox(hub, consumer)
    if positions is None:
        letters = [each for each in mailbox.letters.waiting() if mailbox.can_redeliver(each)]
    else:
        letters = mailbox.letters.select(positions)
        for letter in letters:
            mailbox.check_redeliver(letter)
    targets = mailbox.targets(letters)
    command = _Command("dlq redeliver", "redelivered", reason)
    return _resolve(hub, mailbox, command, letters, targets)


def discard(hub: Hub, consumer: str, positions: Sequence[str], reason: str) -> ResolvedLetters:
    """Discard letters for good. The audit keeps the reason."""
    mailbox = _mailbox(hub, consumer)
    command = _Command("dlq discard", "discarded", check_reason(reason))
    return _resolve(hub, mailbox, command, mailbox.letters.select(positions), None)


def _mailbox(hub: Hub, consumer: str) -> ConsumerMailbox:
    mailbox = open_mailbox(hub, consumer)
    if isinstance(mailbox, SubscriptionMailbox):
        valid = "a group, a pipeline or a writer; the workers of a subscription resolve its letters"
        raise InvalidValue("consumer", consumer, valid)
    return mailbox


def _resolve(
    hub: Hub,
    mailbox: ConsumerMailbox,
    command: _Command,
    letters: Sequence[DeadLetter],
    targets: Mapping[str, View] | None,
) -> ResolvedLetters:
    """Resolve letters and write the audit; append them to their topics if `targets` are given."""
    name = mailbox.letters.name
    audit = audit_topic(hub) if letters else None

    def appends(some: Sequence[DeadLetter]) -> list[Append]:
        assert audit is not None
        entry = audit_entry(
            command.name,
            name,
            before={
                "letters": [letter.position for letter in some],
                "records": [letter.origin for letter in some],
            },
            after={
                "done": f"{format_amount(len(some), 'dead letter')} {command.done}",
                **(_discarded(some) if targets is None else {}),
            },
            reason=command.reason,
        )
        again = [] if targets is None else [mailbox.append(letter, targets) for letter in some]
        return [*again, audit_append(audit.view, entry)]

    views = dict(targets or {}) | ({} if audit is None else {audit.name: audit.view})
    done = resolve(mailbox.letters, letters, views, appends)
    positions = tuple(letter.position for letter in done)
    return ResolvedLetters(name, command.name, positions, command.reason)


def _discarded(letters: Sequence[DeadLetter]) -> dict[str, Any]:
    named = letters[:NAMED_MAX]
    return {DISCARDED: [discarded_message(each.origin, each.record.key) for each in named]}
