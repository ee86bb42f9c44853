"""What a reader is: the plug-in that can read a system, split by split.

A reader is an immutable set of options. `Reader.open` makes a `Reading` of it, which holds whatever
must be open. What is read is cut into *splits*: a file, a table, a change stream. Reading one split
may bring forth others. A split's records and its position are stored in one transaction, so what
was stored is never read again, and what was not stored is.

Third parties add readers by the entry point group ``tailrace.readers``: the name is what users
write, the object a subclass of `Reader`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
import pyarrow as pa

from tailrace.log.record import Record


class Until(Enum):
    """How far a reading goes."""

    NOW = "what is there when it begins"
    STOPPED = "what comes later too, until it is stopped"


class Split(msgspec.Struct, frozen=True):
    """A part of a source that is read in order, by itself.

    `id` names it for ever. `data` is what its reader needs to know of it, in JSON's types. It
    starts once all splits that it `follows` are finished; those must exist already, or be stored
    with it.
    """

    id: str
    data: dict[str, Any] = {}
    follows: tuple[str, ...] = ()


class BadRecord(msgspec.Struct, frozen=True):
    """Something that could not be read: it goes to the dead letters, and the reading goes on.

    `where` is for people, such as ``in/orders.jsonl:17``.
    """

    namespace: str
    where: str
    error: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records of a split, and the position behind them.

    `records` are in `tailrace.log.schema.SCHEMA` (offsets are ignored): the key is the namespace,
    the value a JSON object, mode and op say what it is. `position`, in JSON's types, is given back
    to `Reading.read` when the split is read again. `identities`, where rows have one, are what
    order is kept by when the commit log has several partitions. `children` are new splits; with
    `finished` the split has no more. All of it is stored in one transaction.
    """

    records: pa.RecordBatch | None
    position: Any
    bad: Sequence[BadRecord] = ()
    identities: Sequence[bytes] | None = None
    children: tuple[Split, ...] = ()
    finished: bool = False


class Reading(Protocol):
    """An opened reader. For one thread."""

    def splits(self) -> Iterable[Split]:
        """The splits to begin with, when the source is read for the first time."""

    def read(self, split: Split, position: Any, last: Record | None) -> Iterator[Batch | None]:
        """Batches of a split behind `position` (None: from its beginning).

        `last` is the last record that this split appended, where it is still kept. Never waits for
        long: None says that there is nothing at the moment, and the caller asks again later. When
        it is asked again, the batch before is stored. The iterator ends when there is nothing more
        within the `Until` it was opened for.
        """

    def close(self) -> None:
        """Give back what it holds."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a preflight found: a sentence, and up to five documents with their namespaces."""

    sentence: str
    documents: Sequence[tuple[str, dict[str, Any]]]


class Reader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a reader. Subclasses declare theirs as fields, each with its meaning::

        path: Annotated[str, Meta(description="Which files, as a glob.", examples=["in/*.jsonl"])]

    Immutable, and cheap to make: nothing is opened before `check` or `open`.
    """

    def check(self) -> Preview:
        """Connect, verify every setting that could silently lose data, and look at some rows.

        Writes nothing. Raises an `Error` that names what is wrong; `NothingToRead` when nothing is,
        but there are no rows yet: then a run starts all the same.
        """
        raise NotImplementedError

    def open(self, until: Until) -> Reading:
        """Open it."""
        raise NotImplementedError


class Opened:
    """A base for what is closed at the end of its `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back what it holds."""
