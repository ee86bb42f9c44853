"""The definition of a topic: an ordered list of storage topics and a produce pointer, as one value.

A `Definition` is one entry of the store, in JSON, under ``topic/NAME``. Its methods return the next
definition and write nothing. The caller stores it with the version it was read at, so that no
change overwrites another. The log knows if a storage topic is sealed, and where it ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tailrace.amount import format_amount
from tailrace.backend.contract import Change, StorageTopic
from tailrace.errors import InvalidName, InvalidValue, StorageDeleted, TopicTypeMismatch
from tailrace.message import Partition
from tailrace.payload.agreement import differences as type_differences
from tailrace.payload.agreement import extends
from tailrace.payload.value_type import ValueType
from tailrace.topic.lineage import Shape, check_count, follows, next_shape
from tailrace.topic.order_by import OrderBy
from tailrace.topic.router import RouterKind

TOPICS: Final = "topic/"
"""Store entries under this prefix are the definitions of topics."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")

SHORT_NAME_MAX: Final = 100
"""The maximum length of a name to which suffixes are added."""


def check_name(kind: str, name: object) -> str:
    """Return the name if it can be a directory, a part of a URL and a label; else `InvalidName`."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidName(kind, name)
    return name


def check_short_name(kind: str, name: object) -> str:
    """Return a name that is still valid with the suffixes that topics and files add to it."""
    checked = check_name(kind, name)
    if len(checked) > SHORT_NAME_MAX:
        raise InvalidName(kind, name)
    return checked


def check_new_name(kind: str, name: object) -> str:
    """Return the name if it is valid and cannot be confused with an option; else `InvalidName`."""
    checked = check_name(kind, name)
    if checked.startswith("-"):
        raise InvalidName(kind, name)
    return checked


class DeletedPartition(msgspec.Struct, frozen=True, array_like=True):
    """A partition of a deleted storage topic: its end offset, and the records it had at last."""

    end: int
    records: int


class Definition(msgspec.Struct, frozen=True):
    """A composite topic without its name.

    `storage` are the shapes of its storage topics, oldest first; `pointer` is the index of the one
    that pushes go to. `identity` differs from that of an earlier topic of the same name.
    `value_type` is the type of its values; None if they may be of any type, and in hubs of versions
    that stored none. `order_by` is what the key of a message is made from; None if messages are
    pushed with their keys. `deleted` has the storage topics that were deleted with their records,
    with what is known of each of their partitions; their shapes stay in `storage`.
    """

    router: RouterKind
    content_type: str
    storage: tuple[Shape, ...]
    pointer: int
    created_ms: int
    identity: str
    value_type: ValueType | None = None
    order_by: str | None = None
    deleted: dict[int, tuple[DeletedPartition, ...]] = {}

    @property
    def shape(self) -> Shape:
        """The shape of the storage topic that pushes go to."""
        return self.storage[self.pointer]

    @property
    def last(self) -> int:
        """The index of the newest storage topic."""
        return len(self.storage) - 1

    def added(self, partitions: int, *, any_count: bool = False) -> Definition:
        """Return the definition with one more storage topic at the end. The pointer stays."""
        check_count(partitions, any_count)
        shape = next_shape(self.storage[-1], partitions)
        return msgspec.structs.replace(self, storage=(*self.storage, shape))

    def switched(self) -> Definition:
        """Return the definition with the pointer one further; at the last storage topic, itself."""
        return msgspec.structs.replace(self, pointer=min(self.pointer + 1, self.last))

    def scaled(self, partitions: int, *, any_count: bool = False) -> Definition:
        """Return the definition with one more storage topic, and the pointer at it."""
        added = self.added(partitions, any_count=any_count)
        return msgspec.structs.replace(added, pointer=added.last)

    def without(self, deleted: Mapping[int, tuple[DeletedPartition, ...]]) -> Definition:
        """Return the definition without some storage topics before the pointer. Those that were
        deleted before stay as they are."""
        assert all(0 <= storage < self.pointer for storage in deleted)
        both = {**deleted, **self.deleted}
        return msgspec.structs.replace(self, deleted=dict(sorted(both.items())))

    @property
    def storages(self) -> tuple[int, ...]:
        """The indices of the storage topics that were not deleted, oldest first."""
        return tuple(each for each in range(len(self.storage)) if each not in self.deleted)

    def storage_topic(self, topic: str, storage: int) -> StorageTopic:
        """Return a storage topic as the log names it; `InvalidValue` if there is none."""
        if not 0 <= storage <= self.last:
            raise InvalidValue(f"storage topic of {topic!r}", storage, f"0 to {self.last}")
        return StorageTopic(topic, storage, self.storage[storage].partitions)

    def storage_topics(self, topic: str) -> Iterator[StorageTopic]:
        """Yield the storage topics that were not deleted, oldest first, as the log names them."""
        for storage in self.storages:
            yield StorageTopic(topic, storage, self.storage[storage].partitions)

    def follows(self, partition: Partition) -> set[Partition]:
        """Return the partitions that must be finished before this one may start. Those of a deleted
        storage topic are finished."""
        self.check_partition(partition)
        before = partition.storage - 1
        if before < 0 or before in self.deleted:
            return set()
        numbers = follows(
            self.router, self.storage[before], self.storage[partition.storage], partition.number
        )
        return {Partition(partition.topic, before, number) for number in numbers}

    def check_partition(self, partition: Partition) -> Partition:
        """Return the partition if it exists; else `InvalidValue` with the valid numbers."""
        count = self.storage_topic(partition.topic, partition.storage).partitions
        if not 0 <= partition.number < count:
            where = f"partition of storage topic {partition.storage} of {partition.topic!r}"
            raise InvalidValue(where, partition.number, f"0 to {count - 1}")
        return partition

    def check_held(self, partition: Partition, offset: int | None = None) -> Partition:
        """Return the partition if it exists and was not deleted; else `InvalidValue` with the valid
        numbers, or `StorageDeleted`, which names the offset if one is given."""
        self.check_partition(partition)
        deleted = self.deleted.get(partition.storage)
        if deleted is not None:
            end = deleted[partition.number].end
            raise StorageDeleted(str(partition), offset, end, self.storages)
        return partition

    def with_type(self, topic: str, offered: ValueType) -> Definition:
        """Return the definition with a type that adds fields with a default; with any other type
        that agrees, itself.

        `TopicTypeMismatch` has the differences of a type that does not agree.
        """
        stored = self.value_type
        if stored is None:
            return self
        if found := type_differences(stored, offered):
            raise TopicTypeMismatch(topic, stored.text, offered.name, found)
        if not extends(stored, offered):
            return self
        return msgspec.structs.replace(self, value_type=offered)

    def differences(
        self,
        partitions: int,
        router: RouterKind,
        content_type: str,
        value_type: ValueType | None = None,
        order_by: str | None = None,
    ) -> list[str]:
        """List how this definition differs from a requested one, in words.

        A topic that was created with this number of partitions and scaled since is the same topic.
        """
        found = []
        if partitions not in (self.storage[0].partitions, self.shape.partitions):
            held = format_amount(self.shape.partitions, "partition")
            found.append(f"it has {held}, not {partitions}")
        if router is not self.router:
            found.append(f"its router is {self.router.value}, not {router.value}")
        if content_type != self.content_type:
            found.append(f"its content type is {self.content_type}, not {content_type}")
        elif self.value_type is not None and value_type is not None:
            fields = type_differences(self.value_type, value_type)
            head = f"its type is {self.value_type.text}, not {value_type.name}"
            found += [f"{head}: {'; '.join(fields)}"] if fields else []
        if order_by != self.order_by:
            found.append(f"it is ordered by {self.order_by or 'key'}, not by {order_by or 'key'}")
        return found


def first_definition(
    *,
    partitions: int,
    router: RouterKind,
    content_type: str,
    any_count: bool,
    created_ms: int,
    identity: str,
    value_type: ValueType | None = None,
    order_by: str | None = None,
) -> Definition:
    """Return a new topic: one storage topic with K = 1, and the pointer at it."""
    check_count(partitions, any_count)
    if order_by is not None:
        OrderBy(order_by).check_type(value_type)
    shapes = (Shape(partitions, 1),)
    return Definition(router, content_type, shapes, 0, created_ms, identity, value_type, order_by)


def creation(topic: str, definition: Definition) -> Change:
    """Return the change that creates a topic, which must not exist."""
    return Change(
        expect={TOPICS + topic: 0},
        writes={TOPICS + topic: msgspec.json.encode(definition)},
        create=tuple(definition.storage_topics(topic)),
    )


def change_between(topic: str, before: Definition, after: Definition, version: int) -> Change:
    """Return the change from a definition, stored at `version`, to a later one of the same topic.

    In the one commit, the storage topics before the pointer are sealed, the new ones created, and
    those deleted that the later definition is without.
    """
    created = [after.storage_topic(topic, i) for i in range(before.last + 1, after.last + 1)]
    sealed = [after.storage_topic(topic, i) for i in range(before.pointer, after.pointer)]
    deleted = [after.storage_topic(topic, i) for i in after.deleted if i not in before.deleted]
    return Change(
        expect={TOPICS + topic: version},
        writes={TOPICS + topic: msgspec.json.encode(after)},
        create=tuple(created),
        seal=tuple(sealed),
        delete=tuple(deleted),
    )


def deletion(topic: str, definition: Definition, version: int) -> Change:
    """Return the change that removes a topic with all its records."""
    return Change(
        expect={TOPICS + topic: version},
        writes={TOPICS + topic: None},
        delete=tuple(definition.storage_topics(topic)),
    )


def decode_definition(data: bytes) -> Definition:
    """Decode a stored definition."""
    return msgspec.json.decode(data, type=Definition)
