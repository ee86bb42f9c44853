"""The deletion of the oldest storage topics of a topic, which every consumer has finished.

The definition of the topic lists the storage topics that were deleted. Consumers treat their
partitions as finished, and continue with those that are left.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from tailrace.amount import format_amount, is_whole
from tailrace.backend.contract import Amount, Backend, Log
from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.topic.composite import Definition, DeletedPartition
from tailrace.topic.consumers import consumers
from tailrace.topic.ledger import Progress
from tailrace.topic.record_count import amount_left, amount_within
from tailrace.topic.view import View


@dataclass(frozen=True, slots=True)
class Trim:
    """Storage topics to delete, or that were deleted: their indices, and what they hold.

    `unread` has the number of messages in them that a consumer has not acknowledged, by the names
    of such consumers. `consumed` is False if the topic has no consumer, so that none has read them.
    """

    topic: str
    storages: tuple[int, ...]
    amount: Amount
    unread: dict[str, int]
    consumed: bool

    @property
    def finished(self) -> bool:
        """True if no message is lost unread."""
        return not self.unread and (self.consumed or not self.amount.records)


def plan_trim(view: View, before: int) -> Trim:
    """Plan the deletion of all storage topics before the one of index `before`. Changes nothing.

    `InvalidValue` unless `before` is the index of a storage topic up to the produce pointer.
    """
    definition = view.refresh().definition
    if not (is_whole(before) and 0 <= before <= definition.pointer):
        valid = f"0 to {definition.pointer}, the storage topic that takes pushes"
        raise InvalidValue("before", before, valid)
    storages = tuple(each for each in definition.storages if each < before)
    backend, log = view.backend, view.backend.log
    partitions = [
        Partition(view.topic, each, number)
        for each in storages
        for number in range(definition.storage[each].partitions)
    ]
    amount = Amount()
    for where in partitions:
        amount = amount.plus(_amount(log, where))
    registered = consumers(backend.store, view.topic) if storages else []
    unread = {name: _unread(backend, name, partitions) for name in registered}
    return Trim(
        view.topic,
        storages,
        amount,
        {name: count for name, count in unread.items() if count},
        bool(registered),
    )


def trim(view: View, before: int, *, force: bool = False) -> Trim:
    """Delete all storage topics before the one of index `before`, and return what was deleted.

    Raises as `plan_trim` does, and `InvalidValue` if a consumer has not finished them, or if the
    topic has messages there and no consumer, unless `force`.
    """
    plan = plan_trim(view, before)
    check_finished(plan, before, force=force)
    log = view.backend.log
    view.change(lambda now: now.without(to_delete(log, view.topic, now, plan.storages)))
    return plan


def check_finished(plan: Trim, before: int, *, force: bool) -> None:
    """Raise `InvalidValue` if messages would be lost unread, unless `force`."""
    if force or plan.finished:
        return
    storages = ", ".join(map(str, plan.storages))
    if plan.unread:
        names = ", ".join(
            f"{name} has {format_amount(count, 'message')} unread"
            for name, count in plan.unread.items()
        )
    else:
        held = format_amount(plan.amount.records, "message")
        names = f"the topic has no consumer, so nothing has read the {held}"
    raise InvalidValue(
        "before",
        before,
        "storage topics that every consumer has finished",
        "to delete the messages unread: force=True, or --force",
        f"storage {storages} of topic {plan.topic!r} is not finished: {names}",
    )


def to_delete(
    log: Log, topic: str, definition: Definition, storages: Container[int]
) -> dict[int, tuple[DeletedPartition, ...]]:
    """Return what `Definition.without` stores of storage topics that are deleted by the change.

    Those that are deleted already are left out. They must be sealed, so that their ends are final.
    """
    return {
        each.storage: tuple(
            DeletedPartition(
                bounds.end, _amount(log, Partition(topic, each.storage, number)).records
            )
            for number, bounds in enumerate(log.bounds_of(each))
        )
        for each in definition.storage_topics(topic)
        if each.storage in storages
    }


def _amount(log: Log, partition: Partition) -> Amount:
    return amount_within(log, partition, [(0, log.bounds(partition).end)])


def _unread(backend: Backend, consumer: str, partitions: Iterable[Partition]) -> int:
    return sum(
        amount_left(backend.log, where, Progress.load(backend.table, consumer, where)).records
        for where in partitions
    )
