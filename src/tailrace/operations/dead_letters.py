"""Dealing with dead letters by hand: send them again, or give them up.

Who deals with letters raises the fence ``dead-letters/TOPIC`` first, so two cannot send the same
one again. The letter is resolved, the record appended to the commit log for its writer alone, and
the audit told, in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tailrace.amount import format_amount
from tailrace.backend.contract import Records, TableKey, Transaction, raise_fence
from tailrace.errors import Busy, Fenced, InvalidValue
from tailrace.group.group import checked_reason
from tailrace.hub import Hub
from tailrace.message import Partition, Position
from tailrace.operations.audit import audit_append, audit_entry, audit_topic
from tailrace.operations.letters import (
    Mailbox,
    WaitingLetter,
    chosen,
    open_mailbox,
    resolved,
)
from tailrace.operations.registered import commit_log
from tailrace.pipeline.dead_letters import redelivery
from tailrace.source.headers import POSITION
from tailrace.topic.topic import Topic
from tailrace.topic.view import commit_following

LETTERS_AT_ONCE: Final = 500
"""So many letters make a transaction."""

ATTEMPTS_MAX: Final = 20


class Audited(NamedTuple):
    """What the audit is told of a command."""

    command: str
    done: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Letters that were dealt with, by their positions."""

    consumer: str
    command: str
    letters: tuple[str, ...]
    reason: str


def redeliver(hub: Hub, consumer: str, positions: Sequence[str] | None) -> Resolution:
    """Append records to the commit log again, each for its writer alone; without positions, all.

    Letters of a reader cannot be: `InvalidValue`, with nothing sent.
    """
    mailbox = open_mailbox(hub, consumer)
    log = commit_log(hub, mailbox.pipeline)
    if log is None:
        raise InvalidValue("consumer", consumer, f"one whose {mailbox.pipeline.commit_log} exists")

    def choose() -> list[WaitingLetter]:
        if positions is None:
            return [letter for letter in mailbox.waiting() if letter.writer is not None]
        letters = chosen(mailbox, positions)
        for letter in letters:
            _check_writable(mailbox, letter)
        return letters

    return _resolve(hub, mailbox, Audited("dlq redeliver", "sent again"), choose, log)


def discard(hub: Hub, consumer: str, positions: Sequence[str], reason: str) -> Resolution:
    """Give letters up, for a reason."""
    mailbox = open_mailbox(hub, consumer)
    audited = Audited("dlq discard", "given up", checked_reason(reason))
    return _resolve(hub, mailbox, audited, lambda: chosen(mailbox, positions))


def _check_writable(mailbox: Mailbox, letter: WaitingLetter) -> None:
    name = mailbox.name
    if letter.writer is None:
        raise InvalidValue(
            "position",
            letter.position,
            "a letter of a writer: this one could not be read",
            "put its source right, then: "
            f"tailrace dlq {name} discard {letter.position} --reason TEXT",
        )
    if letter.writer.partition("/")[2] not in mailbox.pipeline.writers:
        valid = f"a letter of a writer that is there; {letter.writer} is not"
        raise InvalidValue("position", letter.position, valid)


def _again(log: Topic[Any], letter: WaitingLetter) -> tuple[Partition, Records]:
    """Into the partition that the record came from, where that still takes records."""
    record = redelivery(letter.record, letter.consumer)
    target = log.view.target
    came_from = Position.parse(letter.headers[POSITION].decode())
    if came_from.storage == target.storage:
        return target.partitions[came_from.partition], (record,)
    return target.partition_of(record.key), (record,)


def _resolve(
    hub: Hub,
    mailbox: Mailbox,
    audited: Audited,
    choose: Callable[[], list[WaitingLetter]],
    log: Topic[Any] | None = None,
) -> Resolution:
    """Deal with letters, some at a time; where there is a log, they are appended to it."""
    done: list[str] = []
    waiting = choose()  # what is refused is refused before anything has happened
    fenced = 0
    while waiting:
        some, rest = waiting[:LETTERS_AT_ONCE], waiting[LETTERS_AT_ONCE:]
        try:
            done += _resolve_some(hub, mailbox, audited, some, log)
        except Fenced as error:
            fenced += 1
            if fenced > ATTEMPTS_MAX:
                raise Busy(f"others deal with letters of {mailbox.name}", "try again") from error
            continue
        waiting = rest
    return Resolution(mailbox.name, audited.command, tuple(done), audited.reason)


def _resolve_some(
    hub: Hub,
    mailbox: Mailbox,
    audited: Audited,
    letters: Sequence[WaitingLetter],
    log: Topic[Any] | None,
) -> list[str]:
    """One transaction: the positions of those that nobody had dealt with before."""
    fence = raise_fence(hub.backend.store, f"dead-letters/{mailbox.topic.name}")
    ledgers = {where: resolved(mailbox.topic, where) for where in {x.where for x in letters}}
    left = [x for x in letters if not ledgers[x.where].acked(x.record.offset)]
    if not left:
        return []
    for letter in left:
        ledgers[letter.where].ack(letter.record.offset, letter.record.offset + 1)
    table: dict[TableKey, bytes | None] = {}
    for ledger in ledgers.values():
        table |= ledger.writes()
    names = [letter.position for letter in left]
    before = {"letters": names, "records": [letter.origin for letter in left]}
    after = {"done": f"{format_amount(len(names), 'dead letter')} {audited.done}"}
    entry = audit_entry(
        audited.command, mailbox.name, before=before, after=after, reason=audited.reason
    )
    audit = audit_topic(hub)
    views = {topic.name: topic.view for topic in (audit, log) if topic is not None}

    def build() -> Transaction:
        again = [] if log is None else [_again(log, letter) for letter in left]
        return Transaction((*again, audit_append(audit, entry)), table, fence)

    commit_following(hub.backend, views, build)
    return names
