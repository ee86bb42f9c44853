"""What a writer is: the plug-in that can write into a system.

A writer is an immutable set of options; it is carried to the executors. One attempt at a part of a
plan opens a `WriterSession`, which says what the sink holds of that part already, takes the rest in
batches, and ends.

How sure a writer can be of what it wrote decides what it must do:

* *at least once*, any sink: `WriterSession.write` returns once the sink has the rows.
* *exactly once in the sink*: a sink that can store, in one transaction, the rows and which offsets
  they were. `WriterSession.applied` reads that back; an older attempt is refused there.
* *exactly once by staging*: a session writes aside and `finish` returns what is staged; the driver,
  once its plan is sealed, makes it visible by `Writer.publish`, which may happen again.

Third parties add writers by the entry point group ``tailrace.writers``: the name is what users
write, the object a subclass of `Writer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import msgspec

from tailrace.errors import ConfigError
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stream_name(identity: str, partition: Partition) -> str:
    """A partition of a commit log, named for ever by the identity of the log."""
    return f"{identity}/{partition.storage}.{partition.number}"


def log_of(stream: str) -> str:
    """The identity of the commit log that a stream is of."""
    return stream.partition("/")[0]


class Failure(NamedTuple):
    """A record that the sink certainly has not taken."""

    offset: int
    error: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a part of a plan.

    `writer` is the full name, ``lake/crm``. `stream` names the partition of the commit log for
    ever: ``IDENTITY/0.0``, so another log of the same name is another stream. `plan` is unique.
    `offsets` is the part. Of two attempts the one with the higher (`epoch`, `number`) is the newer:
    `epoch` is that of the writer's fence, `number` rises within it. `fence` is the name of the
    writer's fence in the hub that `open_hub` gives, which executors open only if they need it.
    """

    writer: str
    stream: str
    plan: str
    offsets: Offsets
    epoch: int
    number: int
    fence: str
    open_hub: Callable[[], Hub]


class Staged(msgspec.Struct, frozen=True):
    """Rows that a session wrote aside: what `Writer.publish` needs to make them visible."""

    offsets: Offsets
    rows: int
    data: dict[str, Any] = {}


class WriterSession(Protocol):
    """An attempt under way. For one thread."""

    def applied(self) -> Sequence[Offsets]:
        """Which of the attempt's offsets the sink already has, in order; they are not given to
        `write`. Read after older attempts have been shut out. () where the sink cannot tell."""

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[Failure]:
        """Take rows: all that the functions left of the records at these offsets, maybe none.

        Returns the records that were certainly not taken, while all others certainly were; ()
        when all were. An error says that nothing is certain, or that nothing was taken; one that is
        an `OSError` or has a true `retryable` is the sink's, any other one may be the rows'. In a
        batch of a single record such an error is that record's failure.
        """

    def finish(self) -> Sequence[Staged]:
        """The end: everything given to `write` and taken is durable, in the sink or staged."""

    def close(self) -> None:
        """Give back what it holds; without `finish` before it, what was staged is worth nothing."""


class Writer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a writer. Subclasses declare theirs as fields, each with its meaning::

        url: Annotated[str, Meta(description="Where.", examples=["sqlite:///crm.db"])]

    Immutable, picklable, and cheap to make: nothing is opened before `check` or `open`.
    """

    splits_streams: ClassVar[bool] = False
    """Whether one stream may be written by several attempts side by side. Where order in the sink
    matters it may not."""

    takes_controls: ClassVar[bool] = False
    """Whether it is given control records too: mode Complete, op Command or Noop."""

    takes_columns: ClassVar[bool] = False
    """Whether it wants documents in columns, where null and absent fields are the same."""

    keeps_record: ClassVar[bool] = False
    """Whether `applied` is the truth of what the sink holds, also where it says that something is
    missing; otherwise it can only add to what the ledger says."""

    needs_spark: ClassVar[bool] = False
    """Whether only the Spark engine can run it."""

    def check(self) -> str:
        """Connect, write nothing, and say in a sentence what was found. Raises an `Error` that says
        what is wrong."""
        raise NotImplementedError

    def open(self, attempt: Attempt) -> WriterSession:
        """Begin an attempt. `Fenced` when a newer one has begun."""
        raise NotImplementedError

    def applied(self, writer: str, stream: str, hub: Hub) -> Sequence[Offsets] | None:
        """What the sink's own record says it holds of a stream; None where it keeps no record, and
        the ledger alone counts."""
        return None

    def applied_logs(self, writer: str, hub: Hub | None) -> frozenset[str]:
        """The identities of the commit logs of which the sink's own record says that it has rows of
        this writer. `hub` is None where that of the pipeline is not made yet."""
        return frozenset()

    def begin(self, writer: str, open_plan: str | None) -> None:
        """The driver starts: remove what is staged for this writer by any plan but the open one."""

    def publish(self, writer: str, staged: Sequence[Staged]) -> None:
        """Make staged rows visible, for good. May be asked again after a crash: does nothing where
        it was done."""

    def forget(self, writer: str, stream: str, start: int, hub: Hub) -> None:
        """An operator rewound the writer: the sink's record no longer holds `start` and beyond."""


class FrameWriter(Writer, frozen=True):
    """A writer into a sink of Spark's own, which takes all rows of a plan as a data frame.

    Only the Spark engine runs it. At least once.
    """

    needs_spark: ClassVar[bool] = True

    def open(self, attempt: Attempt) -> WriterSession:
        """Refused: Spark writes it, as a whole."""
        raise ConfigError(f"writer {attempt.writer} needs Spark", 'give it engine = "spark"')

    def save(self, rows: DataFrame) -> None:
        """Save rows with the columns offset, timestamp, mode, op, key, headers and value."""
        raise NotImplementedError
