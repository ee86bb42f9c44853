"""Resolving dead letters: acknowledge them, and append records, in one transaction.

A process raises the fence ``dead-letters/TOPIC`` before it resolves letters, so two processes
cannot both redeliver a letter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from tailrace.backend.contract import Records, TableKey, Transaction, raise_fence
from tailrace.delivery.dead_letters.letter import POSITION, DeadLetter, redelivery
from tailrace.delivery.dead_letters.mailbox import Mailbox
from tailrace.errors import Busy, Fenced
from tailrace.log.redelivered import ORIGIN
from tailrace.message import Partition, Position
from tailrace.topic.view import View, commit_following

LETTERS_PER_TRANSACTION_MAX: Final = 500
ATTEMPTS_MAX: Final = 20
"""The number of times that another process may fence this one before `Busy` is raised."""

Append: TypeAlias = "tuple[Partition, Records]"


def resolve(
    mailbox: Mailbox,
    letters: Sequence[DeadLetter],
    views: Mapping[str, View],
    appends: Callable[[Sequence[DeadLetter]], Sequence[Append]],
) -> list[DeadLetter]:
    """Acknowledge letters, at most `LETTERS_PER_TRANSACTION_MAX` in a transaction.

    Returns the letters that no other process had resolved. `appends` returns the records that a
    transaction appends for its letters; `views` are the topics of these records, by name. `appends`
    is called again if one of these topics was switched. `Busy` when other processes resolve letters
    of the topic at the same time.
    """
    done: list[DeadLetter] = []
    fenced = 0
    left = list(letters)
    while left:
        try:
            done += _resolve_some(mailbox, left[:LETTERS_PER_TRANSACTION_MAX], views, appends)
        except Fenced as error:
            fenced += 1
            if fenced > ATTEMPTS_MAX:
                raise Busy(
                    f"other processes resolve dead letters of {mailbox.name}", "try again"
                ) from error
            continue
        left = left[LETTERS_PER_TRANSACTION_MAX:]
    return done


def redelivery_append(log: View, letter: DeadLetter) -> Append:
    """Return the append that redelivers a letter to its writer."""
    record = redelivery(letter.record, letter.consumer)
    return _partition_for(log, letter), (record,)


def group_redelivery_append(topic: View, letter: DeadLetter) -> Append:
    """Return the append that redelivers a letter to its group.

    A header names the position that the record had at first.
    """
    record = redelivery(letter.record, letter.consumer)
    headers = {ORIGIN: letter.headers[POSITION]} | dict(record.headers or {})
    return _partition_for(topic, letter), (record._replace(headers=headers),)


def _partition_for(topic: View, letter: DeadLetter) -> Partition:
    """Return the partition that a letter's record came from, if the storage topic of that partition
    is still written to; else the partition of its key. A topic that was created again may have
    fewer partitions."""
    target = topic.target
    came_from = Position.parse(letter.headers[POSITION].decode())
    same_storage = came_from.storage == target.storage
    if same_storage and came_from.partition < len(target.partitions):
        return target.partitions[came_from.partition]
    return target.partition_of(letter.record.key)


def _resolve_some(
    mailbox: Mailbox,
    letters: Sequence[DeadLetter],
    views: Mapping[str, View],
    appends: Callable[[Sequence[DeadLetter]], Sequence[Append]],
) -> list[DeadLetter]:
    view = mailbox.view
    assert view is not None, "there are letters"
    fence = raise_fence(view.backend.store, f"dead-letters/{view.topic}")
    ledgers = {where: mailbox.resolved(where) for where in {each.partition for each in letters}}
    left = [each for each in letters if not ledgers[each.partition].acked(each.record.offset)]
    if not left:
        return []
    for letter in left:
        ledgers[letter.partition].ack(letter.record.offset, letter.record.offset + 1)
    table: dict[TableKey, bytes | None] = {}
    for ledger in ledgers.values():
        table |= ledger.writes()
    commit_following(view.backend, views, lambda: Transaction(tuple(appends(left)), table, fence))
    return left
