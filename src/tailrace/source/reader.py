"""The contract of a reader: the plug-in that reads a system, split by split.

A reader is an immutable set of options. `Reader.open` returns a `ReaderSession`, which holds the
connections and files. A source is read in *splits*: a file, a table, a change stream. Reading one
split may create others. A split's records and its position are stored in one transaction, so a
stored record is never read again, and a record that was not stored is read again.

Several tasks, in processes of their own, may read one source. Each opens the reader for itself and
reads splits of its own; a split moves to another task when its own ends. So a session may be asked
to read any split, from any stored position, and must not depend on splits that it did not read,
except on those that are `bound` together.

Other packages add readers by the entry point group ``tailrace.readers``: the name is the ``type``
that users write, the object a subclass of `Reader`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import pyarrow as pa

from tailrace.closing import Closing
from tailrace.errors import InvalidValue
from tailrace.log.record import Record

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub

IDENTITY: Final = "identity"
"""A header of a row: the identity of the row before the change, as a JSON object."""


class Until(Enum):
    """When a reader ends."""

    NOW = "at the end of the data that exists at the start"
    STOPPED = "when it is stopped"


class Split(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a source that is read in order, by itself.

    `id` names the split for ever: not empty, without control characters, not beginning with ``*``.
    `data` is for its reader, in JSON types.

    The split starts once every split that it `follows` is finished. A split that is not known yet
    is not finished. A finished split is removed when all known splits that follow it are finished.
    So a split must be reported before those that it follows are finished: by each of them, in its
    last batch at the latest, or together with them or before them by another split. A split that is
    `kept` is not removed, and those that follow it may be reported at any time.

    Several splits may report the same child, in equal words, which then has to follow all of them.
    It is created once: later reports change nothing.

    Any task of the source may read a split, unless it is `bound`: all splits with the same `bound`
    are read by one task, in one session.

    `namespace` and `rows_expected`, about how many rows a copy has, are for the display of its
    progress. None if the number is not known.
    """

    id: str
    data: dict[str, Any] = {}
    follows: tuple[str, ...] = ()
    bound: str | None = None
    kept: bool = False
    namespace: str = ""
    rows_expected: int | None = None


class BadRecord(msgspec.Struct, frozen=True):
    """Data that could not be read: it goes to the dead letters, and reading continues.

    `where` is for people, such as ``in/orders.jsonl:17``.
    """

    namespace: str
    where: str
    error: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Push:
    """Messages for a topic beside the commit log, in `tailrace.log.schema.SCHEMA`.

    They are routed by their keys. Messages for a topic that does not exist become dead letters, and
    so do those that it does not take, because they are too large. A reserved header, and a topic
    that no user may push to, fail the source.
    """

    topic: str
    records: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records of a split, and the position after them.

    `records` are in `tailrace.log.schema.SCHEMA` (offsets are ignored): the key is the namespace,
    the value a JSON object; mode and op say what the record is. A header whose name begins with
    ``tailrace.`` is refused: the source fails. `position`, in JSON types, is passed to
    `ReaderSession.read` when the split is read again. `identities`, if rows have one, keep the
    order of rows when the commit log has several partitions. `children` are new splits, `pushes`
    messages for other topics. With `finished`, the split has no more records, and has reported all
    its children: only then may those start that follow it. All of it is stored in one transaction.

    `lag` is about how many rows of the split are there already and come after this batch, for
    people; None if the reader cannot tell.
    """

    records: pa.RecordBatch | None
    position: Any
    bad: Sequence[BadRecord] = ()
    identities: Sequence[bytes] | pa.Array[Any] | None = None
    children: tuple[Split, ...] = ()
    finished: bool = False
    pushes: tuple[Push, ...] = ()
    lag: int | None = None


class ReaderSession(Protocol):
    """An opened reader. For one thread."""

    def splits(self) -> Iterable[Split]:
        """Return the first splits, when the source is read for the first time."""

    def read(
        self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
    ) -> Iterator[Batch | None]:
        """Yield the batches of a split after `position` (None: from its beginning).

        `last` is the last record that this split appended, if it still exists. `followed` are the
        final positions of the splits that it follows, by id. Never blocks for long: yield None if
        there is no data now, and the caller polls again later. When the next batch is requested,
        the previous one is stored.

        The iterator ends when all data within its `Until` was read. That finishes nothing: a split
        that ended without a `finished` batch is read again by the next run, or by this one if it
        has no end.

        An `OSError` means that the source does not answer: a task of a `Source` reads the split
        again later, from the stored position, and its other splits meanwhile. Any other exception
        ends the run. The run of a pipeline ends with either.
        """

    def close(self) -> None:
        """Release all resources."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The result of a preflight: a sentence, and at most five documents with their namespaces."""

    sentence: str
    documents: Sequence[tuple[str, dict[str, Any]]]


class Reader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a reader.

    Subclasses declare their options as fields, each with a description::

        path: Annotated[str, Meta(description="Which files, as a glob.", examples=["in/*.jsonl"])]

    Immutable, and cheap to create: nothing is opened before `check` or `open`.
    """

    def check(self) -> Preview:
        """Connect, check every setting that could silently lose data, and read some rows.

        Writes nothing. Raises an `Error` that says what is wrong; `NothingToRead` if the settings
        are right but there are no rows yet: then a run until now is refused, unless it may be
        empty, and any other run waits and calls this method again from time to time.
        """
        raise NotImplementedError

    def check_hub(self, hub: Hub, appends_to: Collection[str]) -> None:
        """Check, before a run, that the rows can be stored in this hub; an `Error` if not.

        `appends_to` are the names of the commit log and of the dead letters, which may not exist
        yet. Writes nothing. Only a reader that reads or pushes to topics of a hub overrides this.
        """

    def open(self, until: Until) -> ReaderSession:
        """Open the reader."""
        raise NotImplementedError


def check_reader(reader: object) -> Reader:
    """Return the reader; `InvalidValue` if it is none."""
    if not isinstance(reader, Reader):
        raise InvalidValue("reader", reader, "one of tailrace.readers")
    return reader


class Closeable(Closing):
    """A base class that calls `close` at the end of a `with` block."""

    def close(self) -> None:
        """Release all resources."""
