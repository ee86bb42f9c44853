"""The contract of a writer: the plug-in that writes to a system.

A writer is an immutable set of options, which is sent to the executors. One attempt at a part of a
plan opens a `WriterSession`. The session reports the offsets that the sink has already applied,
takes the rows of the others in batches, and finishes.

A writer gives one of these guarantees:

* *At least once*, with any sink: `WriterSession.write` returns once the sink has the rows.
* *Exactly once in the sink*, if the sink can store the rows and their offsets in one transaction.
  `WriterSession.applied` reads the offsets; the sink refuses an older attempt.
* *Exactly once by staging*: a session writes staged files, which `finish` returns. The driver seals
  its plan and then calls `Writer.publish`, possibly more than once, to make them visible.

Other packages add writers by the entry point group ``tailrace.writers``: the name is the ``type``
that users write, the object a subclass of `Writer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import msgspec

from tailrace.errors import ConfigError, Error, InvalidValue
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.transform.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stream_name(identity: str, partition: Partition) -> str:
    """Return the name of a partition of a commit log.

    It contains the identity of the log, so it is unique for ever.
    """
    return f"{identity}/{partition.storage}.{partition.number}"


def log_identity(stream: str) -> str:
    """Return the identity of the commit log of a stream."""
    return stream.partition("/")[0]


class RefusedRecord(NamedTuple):
    """A record that the sink certainly did not take, and why."""

    offset: int
    error: str


class RewindRefused(InvalidValue):
    """An offset to which `Writer.forget` cannot rewind a sink, such as one in the middle of a file.

    `valid_offsets` are the nearest offsets to which it can; `explain` suggests them.
    """

    def __init__(self, offset: int, valid_offsets: Sequence[int], reason: str) -> None:
        self.valid_offsets = tuple(valid_offsets)
        self.partition: str | None = None
        super().__init__("offset", offset, f"{' or '.join(map(str, valid_offsets))}: {reason}")


class StagedLost(Error, RuntimeError):
    """Staged rows that `Writer.publish` finds neither staged nor published.

    The writer fails. `explain` suggests a rewind, which stages and publishes them again.
    """


class SinkRefused(Error, RuntimeError):
    """The sink can be reached and refuses the writer: a wrong password, missing rights.

    No record is at fault, and waiting does not help: the writer fails until an operator retries it.
    """


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a part of a plan.

    `writer` is the full name, ``lake/crm``. `stream` names the partition of the commit log for
    ever: ``IDENTITY/0.0``, so another log of the same name is another stream. `plan` is unique.
    `offsets` is the part. Of two attempts, the one with the higher (`epoch`, `number`) is the newer
    one: `epoch` is that of the writer's fence, and `number` increases within it. `fence` is the
    name of that fence in the hub. `open_hub` returns the hub; executors open it only if they need
    it.
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
    """Rows that a session staged: the data that `Writer.publish` needs to make them visible."""

    offsets: Offsets
    rows: int
    data: dict[str, Any] = {}


class LocalSink(NamedTuple):
    """A sink in a directory of the driver's host; other hosts may have the directory or not.

    `one_host` is True if only processes of one host may write the sink together, because it relies
    on the locks of the kernel, as SQLite does. `executors_only` is True if the driver cannot write
    the sink in place of the executors; then the writer waits until all of them share the directory.
    """

    directory: str
    one_host: bool = False
    executors_only: bool = False


class WriterSession(Protocol):
    """An attempt in progress. For one thread."""

    def applied(self) -> Sequence[Offsets]:
        """Return the offsets of the attempt that the sink already has, in order.

        They are not passed to `write`. Older attempts must be fenced off before the offsets are
        read. Return () if the sink cannot tell.
        """

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[RefusedRecord]:
        """Write the rows of the records at these offsets, after the functions; there may be none.

        Returns the records that the sink certainly refused; all others were certainly written.
        Return () if none was refused. An exception means that the outcome is unknown or that
        nothing was written. An `OSError`, or an exception with a true `retryable`, means that the
        sink cannot be reached: the writer waits, and tries again with a new attempt. `SinkRefused`
        means that waiting does not help: the writer fails. Any other exception may be caused by a
        row. In a batch of a single record, that record is then refused.
        """

    def finish(self) -> Sequence[Staged]:
        """End the attempt: all written rows are durable, in the sink or staged.

        Return what is staged.
        """

    def close(self) -> None:
        """Release all resources. Rows staged without `finish` are not published."""


class Writer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a writer.

    Subclasses declare their options as fields, each with a description::

        url: Annotated[
            str, Meta(description="URL of the database.", examples=["sqlite:///crm.db"])
        ]

    Immutable, picklable and cheap to create: nothing is opened before `check` or `open`.
    """

    splits_streams: ClassVar[bool] = False
    """True if several attempts may write one stream in parallel. False if order in the sink
    matters."""

    takes_controls: ClassVar[bool] = False
    """True if the writer takes control records: mode Complete, op Command or Noop."""

    takes_columns: ClassVar[bool] = False
    """True if the writer wants documents as columns, in which null and absent fields are the
    same."""

    stores_offsets: ClassVar[bool] = False
    """True if `applied` is the truth about the sink, also about missing offsets.

    If False, `applied` can only add to the offsets that the ledger has.
    """

    needs_spark: ClassVar[bool] = False
    """True if only the Spark engine can run the writer."""

    may_refuse_rewind: ClassVar[bool] = False
    """True if `check_rewind` may refuse an offset.

    The hub then stores the options, so that the operator's command can call it. They must hold no
    secrets.
    """

    @property
    def wants_controls(self) -> bool:
        """True if the writer gets control records. An option of the writer may decide."""
        return self.takes_controls

    def check(self) -> str:
        """Connect, write nothing, and return a sentence that describes the sink.

        Raises an `OSError` or a retryable `Error` if the sink cannot be reached, and another
        `Error` that says what is wrong if waiting does not help.
        """
        raise NotImplementedError

    def open(self, attempt: Attempt) -> WriterSession:
        """Begin an attempt. `Fenced` if a newer one has begun."""
        raise NotImplementedError

    def applied(self, writer: str, stream: str, hub: Hub) -> Sequence[Offsets] | None:
        """Return the offsets of a stream that the sink has stored as applied.

        None if the sink stores no offsets; then only the ledger counts.
        """
        return None

    def applied_logs(self, writer: str, hub: Hub | None) -> frozenset[str]:
        """Return the identities of the commit logs from which the sink has rows of this writer.

        `hub` is None if the hub of the pipeline does not exist yet.
        """
        return frozenset()

    def create_sink(self) -> None:
        """Create the sink if it does not exist, for example a directory.

        The driver calls it once in a run, before `begin`. A sink that is missing later in the run
        cannot be reached: its disk may have been unmounted.
        """

    def local_sink(self, hub: Hub) -> LocalSink | None:
        """Return the directory of a sink that is part of a file system; None for any other sink.

        Sessions run on Spark's executors only if all of them share this directory with the driver;
        otherwise the driver writes. `hub` is the hub of the pipeline. Called after `create_sink`,
        in the driver.
        """
        return None

    def begin(self, writer: str, open_plan: str | None) -> None:
        """Remove the staged rows of all plans of this writer but the open one. The driver calls it
        at its start."""

    def unify(self, writer: str, staged: Sequence[Staged]) -> Sequence[Staged | None]:
        """Return staged rows in a form in which they can be published together.

        Sessions stage rows in parallel, so they may have decided differently, as about the type of
        a column. The driver calls it before it seals the plan, with all that is staged, in the
        order of the plan's parts. None in place of rows that do not go together with those before
        them: they are delivered again in a later plan. The first ones always do. Nothing becomes
        visible.
        """
        return staged

    def publish(self, writer: str, staged: Sequence[Staged]) -> None:
        """Make staged rows visible, for good.

        May be called again after a crash; does nothing for rows that are visible already. Raises
        `StagedLost` for rows that are neither staged nor visible.
        """

    def check_rewind(self, writer: str, stream: str, start: int, hub: Hub) -> None:
        """Raise `RewindRefused` if the sink cannot be rewound to `start`. Change nothing.

        Called before an operator rewinds the writer, in the operator's process.
        """

    def forget(self, writer: str, stream: str, start: int, hub: Hub) -> None:
        """Remove `start` and the offsets after it from the applied offsets of the sink.

        Called after an operator rewound the writer. Raises `RewindRefused` if the sink cannot be
        rewound to `start`.
        """


class FrameWriter(Writer, frozen=True):
    """A writer to a sink of Spark, which takes all rows of a plan as a data frame.

    Only the Spark engine runs it. At least once.
    """

    needs_spark: ClassVar[bool] = True

    def open(self, attempt: Attempt) -> WriterSession:
        """Raise `ConfigError`: Spark writes a plan as a whole."""
        raise ConfigError(f"writer {attempt.writer} needs Spark", 'set engine = "spark" for it')

    def save(self, rows: DataFrame) -> None:
        """Save rows with the columns offset, timestamp, mode, op, key, headers and value."""
        raise NotImplementedError
