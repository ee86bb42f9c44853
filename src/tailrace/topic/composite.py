"""What a topic is: an ordered list of storage topics and a produce pointer, as one value.

A `Definition` is one entry of the store, in JSON, under ``topic/NAME``. Its methods give the next
definition and write nothing: whoever stores it does so with the version it was read at, so that no
two changes are lost in each other. Whether a storage topic is sealed, and where it ends, is the
log's to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from tailrace.amount import format_amount
from tailrace.backend.contract import Change, StorageTopic
from tailrace.errors import InvalidName, InvalidValue
from tailrace.message import Partition
from tailrace.topic.lineage import Shape, check_count, follows, next_shape
from tailrace.topic.router import RouterKind

TOPICS: Final = "topic/"
"""Store entries under this prefix are the definitions of topics."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


def check_name(kind: str, name: object) -> str:
    """The name, if it can be a directory, a URL part and a label; otherwise `InvalidName`."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidName(kind, name)
    return name


def check_new_name(kind: str, name: object) -> str:
    """The name, if it is valid and no command takes it for an option; otherwise `InvalidName`."""
    checked = check_name(kind, name)
    if checked.startswith("-"):
        raise InvalidName(kind, name)
    return checked


class Definition(msgspec.Struct, frozen=True):
    """A composite topic without its name.

    `storage` are the shapes of its storage topics, oldest first; `pointer` is the index of the one
    that takes pushes. `identity` tells it from an earlier topic of the same name.
    """

    router: RouterKind
    content_type: str
    storage: tuple[Shape, ...]
    pointer: int
    created_ms: int
    identity: str

    @property
    def shape(self) -> Shape:
        """The shape of the storage topic that takes pushes."""
        return self.storage[self.pointer]

    @property
    def last(self) -> int:
        """The index of the newest storage topic."""
        return len(self.storage) - 1

    def added(self, partitions: int, *, any_count: bool = False) -> Definition:
        """With one more storage topic at the end. The pointer stays."""
        check_count(partitions, any_count)
        shape = next_shape(self.storage[-1], partitions)
        return msgspec.structs.replace(self, storage=(*self.storage, shape))

    def switched(self) -> Definition:
        """With the pointer one further on; at the last storage topic the same definition."""
        return msgspec.structs.replace(self, pointer=min(self.pointer + 1, self.last))

    def scaled(self, partitions: int, *, any_count: bool = False) -> Definition:
        """With one more storage topic, and the pointer at it."""
        added = self.added(partitions, any_count=any_count)
        return msgspec.structs.replace(added, pointer=added.last)

    def storage_topic(self, topic: str, storage: int) -> StorageTopic:
        """One of its storage topics as the log names it; `InvalidValue` when there is none."""
        if not 0 <= storage <= self.last:
            raise InvalidValue(f"storage topic of {topic!r}", storage, f"0 to {self.last}")
        return StorageTopic(topic, storage, self.storage[storage].partitions)

    def storage_topics(self, topic: str) -> Iterator[StorageTopic]:
        """All of them, oldest first, as the log names them."""
        for storage, shape in enumerate(self.storage):
            yield StorageTopic(topic, storage, shape.partitions)

    def follows(self, partition: Partition) -> set[Partition]:
        """The partitions that must be finished before this one may start."""
        self.check_partition(partition)
        if partition.storage == 0:
            return set()
        before = partition.storage - 1
        numbers = follows(
            self.router, self.storage[before], self.storage[partition.storage], partition.number
        )
        return {Partition(partition.topic, before, number) for number in numbers}

    def check_partition(self, partition: Partition) -> Partition:
        """The partition, if there is one; otherwise `InvalidValue` with those that there are."""
        count = self.storage_topic(partition.topic, partition.storage).partitions
        if not 0 <= partition.number < count:
            where = f"partition of storage topic {partition.storage} of {partition.topic!r}"
            raise InvalidValue(where, partition.number, f"0 to {count - 1}")
        return partition

    def differences(self, partitions: int, router: RouterKind, content_type: str) -> list[str]:
        """How this definition is not the one somebody wants to create, in words.

        A topic created with that many partitions and scaled since is still the same topic.
        """
        found = []
        if partitions not in (self.storage[0].partitions, self.shape.partitions):
            held = format_amount(self.shape.partitions, "partition")
            found.append(f"it has {held}, not {partitions}")
        if router is not self.router:
            found.append(f"its router is {self.router.value}, not {router.value}")
        if content_type != self.content_type:
            found.append(f"its content type is {self.content_type}, not {content_type}")
        return found


def first_definition(
    *,
    partitions: int,
    router: RouterKind,
    content_type: str,
    any_count: bool,
    created_ms: int,
    identity: str,
) -> Definition:
    """A new topic: one storage topic with K = 1, and the pointer at it."""
    check_count(partitions, any_count)
    return Definition(router, content_type, (Shape(partitions, 1),), 0, created_ms, identity)


def creation(topic: str, definition: Definition) -> Change:
    """What makes a new topic; it must not exist."""
    return Change(
        expect={TOPICS + topic: 0},
        writes={TOPICS + topic: msgspec.json.encode(definition)},
        create=tuple(definition.storage_topics(topic)),
    )


def change_between(topic: str, before: Definition, after: Definition, version: int) -> Change:
    """What leads from a definition, stored at `version`, to a later one of the same topic.

    Storage topics that the pointer passes are sealed, those that are new are created, in the one
    commit.
    """
    created = [after.storage_topic(topic, i) for i in range(before.last + 1, after.last + 1)]
    sealed = [after.storage_topic(topic, i) for i in range(before.pointer, after.pointer)]
    return Change(
        expect={TOPICS + topic: version},
        writes={TOPICS + topic: msgspec.json.encode(after)},
        create=tuple(created),
        seal=tuple(sealed),
    )


def deletion(topic: str, definition: Definition, version: int) -> Change:
    """What removes a topic with all its records."""
    return Change(
        expect={TOPICS + topic: version},
        writes={TOPICS + topic: None},
        delete=tuple(definition.storage_topics(topic)),
    )


def decode_definition(data: bytes) -> Definition:
    """The definition that the store keeps."""
    return msgspec.json.decode(data, type=Definition)
