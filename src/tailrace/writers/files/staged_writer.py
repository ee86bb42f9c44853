"""The base of writers that stage files and then move them into place: `file` and `parquet`.

    PATH/LAYOUT/WRITER-STREAM-START-END.parquet                       published
    PATH/LAYOUT/WRITER-STREAM-START-END.2-of-3.parquet                a run in several files
    PATH/_tailrace/staged/WRITER/PLAN/STREAM-START-EPOCH.NUMBER-1.parquet.staged
    PATH/_tailrace/rewound/WRITER/LAYOUT/….parquet.rewound            rewound by an operator

Spark, Hive and Arrow ignore names with a leading underscore. DuckDB and Polars find files in all
directories, by their suffix; so files that are not published have another suffix. The name of a
staged file contains its attempt, so no two attempts share a file. A *run* is a contiguous range of
offsets that were all accepted; the final names of its files contain the range. Moving a file
publishes it. If the staged file is missing and the final one exists, the file was moved before.

So the names record which offsets are published. A missing name proves nothing: users move and merge
files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from tailrace.errors import InvalidValue
from tailrace.hub.hub import Hub
from tailrace.message import Op
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.transform.rows import RowError, Rows
from tailrace.pipeline.writer import (
    Attempt,
    LocalSink,
    RewindRefused,
    Staged,
    StagedLost,
    Writer,
    WriterSession,
)
from tailrace.writers.files.destination import Destination
from tailrace.writers.files.staged_session import FileEncoder, FileMove, StagedSession

E = TypeVar("E", bound=StrEnum)

STAGED: Final = "_tailrace/staged"
REWOUND: Final = "_tailrace/rewound"

_REWOUND_SUFFIX: Final = ".rewound"
_LAYOUT: Final = "{namespace}"
_RANGE: Final = r"(\d+)-(\d+)(?:\.(\d+)-of-(\d+))?\.[a-z.]+"


class _Published(NamedTuple):
    """A published file, the offsets of its run, and its number among the files of the run."""

    name: str
    offsets: Offsets
    number: int
    total: int


def directory_meta(example: str) -> Meta:
    """Return the description of the option `path`, with an example of its own for each writer."""
    return Meta(
        description="The directory to write to, or a URL in an object store.",
        examples=[example, "s3://bucket/orders"],
        extra={"path": True},
    )


class StagedWriter(Writer, frozen=True):
    """A writer of files, exactly once by staging. A subclass provides the `encoder`.

    A rewind moves whole files aside; an offset inside a file is refused.
    """

    path: Annotated[str, directory_meta("out/")]
    layout: Annotated[
        str,
        Meta(
            description="The subdirectory for the files of a namespace. Empty: none.",
            examples=["{namespace}", "namespace={namespace}"],
        ),
    ] = _LAYOUT

    splits_streams: ClassVar[bool] = True
    may_refuse_rewind: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check that the layout hides no files and stays within the directory."""
        parts = self.layout.split("/") if self.layout else []
        if any(
            not part or part[0] in "._" or re.search(r"[{}]", part.replace(_LAYOUT, ""))
            for part in parts
        ):
            raise InvalidValue(
                "layout",
                self.layout,
                "names separated by /, none with a leading . or _, with {namespace} as placeholder",
            )

    def new_encoder(self, writer: str) -> FileEncoder:
        """Return the encoder of the files of a session."""
        raise NotImplementedError

    def destination(self) -> Destination:
        """Return the directory."""
        return Destination(self.path)

    def check(self) -> str:
        """Check that files can be written to the directory."""
        return self.destination().check()

    def create_sink(self) -> None:
        """Create the directory if it does not exist."""
        self.destination().create_root()

    def local_sink(self, hub: Hub) -> LocalSink | None:
        """Return the directory; None if it is in an object store."""
        directory = self.destination().local_directory
        return None if directory is None else LocalSink(directory)

    def open(self, attempt: Attempt) -> WriterSession:
        """Begin an attempt. Its staged files are its own, so older attempts need not be fenced."""
        directory = f"{STAGED}/{file_name_part(attempt.writer)}/{file_name_part(attempt.plan)}"
        staged = f"{directory}/{file_name_part(attempt.stream)}"
        number = f"{attempt.epoch}.{attempt.number}"
        final = _prefix(attempt.writer, attempt.stream)
        return StagedSession(
            self.destination(),
            self.new_encoder(attempt.writer),
            stage_as=lambda start, index: f"{staged}-{start}-{number}-{index}",
            publish_as=lambda offsets, table: _final_name(table, final, offsets),
            table_of=self._table_of,
        )

    def _table_of(self, namespace: str) -> str:
        return self.layout.replace(_LAYOUT, _directory_name(namespace))

    def applied(self, writer: str, stream: str, hub: Hub) -> Sequence[Offsets]:
        """Return the runs whose files all exist.

        A missing file was never published, or a user moved it; the ledger knows which.
        """
        runs: dict[tuple[Offsets, int], set[int]] = {}
        for file in self._published(self.destination(), writer, stream):
            runs.setdefault((file.offsets, file.total), set()).add(file.number)
        return sorted(offsets for (offsets, total), found in runs.items() if len(found) == total)

    def applied_logs(self, writer: str, hub: Hub | None) -> frozenset[str]:
        """Return the commit logs whose rows are in published files."""
        pattern = _name_pattern(writer)
        found = (pattern.fullmatch(name) for _, name in _visible(self.destination()))
        return frozenset(match[1] for match in found if match is not None)

    def begin(self, writer: str, open_plan: str | None) -> None:
        """Remove the staged files of all plans but the open one."""
        destination = self.destination()
        destination.check_root()
        directory = f"{STAGED}/{file_name_part(writer)}"
        kept = None if open_plan is None else f"{directory}/{file_name_part(open_plan)}"
        for plan in destination.directories(directory):
            if plan != kept:
                destination.remove_directory(plan)

    def publish(self, writer: str, staged: Sequence[Staged]) -> None:
        """Move staged files to their final names; remove the other staged files of their plans."""
        destination = self.destination()
        destination.check_root()
        moves = [move for each in staged for move in msgspec.convert(each.data["files"], _MOVES)]
        _move_all(destination, moves)
        for plan in {os.path.dirname(move.source) for move in moves}:
            destination.remove_directory(plan)

    def check_rewind(self, writer: str, stream: str, start: int, hub: Hub) -> None:
        """Raise `RewindRefused` if `start` is inside a file."""
        self._files_from(writer, stream, start)

    def forget(self, writer: str, stream: str, start: int, hub: Hub) -> None:
        """Move the files from `start` on to ``_tailrace/rewound``.

        Raises `RewindRefused` if `start` is inside a file; then no file is moved.
        """
        aside = f"{REWOUND}/{file_name_part(writer)}"
        files = self._files_from(writer, stream, start)
        moves = [FileMove(f.name, f"{aside}/{f.name}{_REWOUND_SUFFIX}") for f in files]
        _move_all(self.destination(), moves)

    def _files_from(self, writer: str, stream: str, start: int) -> list[_Published]:
        """Return the published files from `start` on; `RewindRefused` if `start` is inside one."""
        published = self._published(self.destination(), writer, stream)
        files = [file for file in published if file.offsets.end > start]
        for file in files:
            first, after = file.offsets
            if first < start:
                raise RewindRefused(start, (first, after), "only whole files can be rewound")
        return files

    def _published(
        self, destination: Destination, writer: str, stream: str
    ) -> Iterable[_Published]:
        pattern = re.compile(re.escape(_prefix(writer, stream)) + _RANGE)
        for path, name in _visible(destination):
            found = pattern.fullmatch(name)
            if found is not None:
                start, end, number, total = (int(text or 1) for text in found.groups())
                yield _Published(path, Offsets(start, end), number, total)


_MOVES: Any = list[FileMove]


def published_files(
    destination: Destination, writer: str, table: str | None = None
) -> Iterator[str]:
    """Yield the files that a writer has published, in one table or in all."""
    pattern = _name_pattern(writer)
    for path, name in _visible(destination, table or ""):
        if pattern.fullmatch(name) and table in (None, path.rpartition("/")[0]):
            yield path


def _name_pattern(writer: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(file_name_part(writer))}-(\w+)~\d+\.\d+-{_RANGE}")


def _final_name(table: str, prefix: str, offsets: Offsets) -> str:
    name = f"{prefix}{offsets.start:012d}-{offsets.end:012d}"
    return f"{table}/{name}" if table else name


def _visible(destination: Destination, directory: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each file that readers of a directory see."""
    for path in destination.files(directory):
        if not path.startswith("_"):
            yield path, path.rpartition("/")[2]


def _move_all(destination: Destination, moves: Sequence[FileMove]) -> None:
    """Move the files that were not moved before, and sync their directories."""
    staged = destination.exists([move.source for move in moves])
    published = destination.exists([move.target for move in moves])
    directories = {os.path.dirname(move.target) for move in moves}
    for directory in directories:
        destination.make_directory(directory)
    for move, is_staged, is_published in zip(moves, staged, published, strict=True):
        if is_staged:
            destination.move(move.source, move.target)
        elif not is_published:
            raise StagedLost(
                f"{move.source} is missing in {destination.path}, and so is {move.target}",
                "move the file back if you moved it, and retry the writer; or rewind the writer,"
                " which writes the records of the file again",
            )
    destination.sync(directories)


def parse_choice(what: str, value: str, kind: type[E]) -> E:
    """Return the member of an enum with that value; raise `InvalidValue` with the valid ones."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidValue(what, value, ", ".join(kind)) from None


def refuse_deletes(rows: Rows, remedy: str) -> None:
    """Raise `RowError` for the first delete, in a file where it would look like any other row."""
    deletes = (rows.records["op"].to_numpy() == Op.DELETE).nonzero()[0]
    if len(deletes):
        raise RowError(
            rows.records["offset"][int(deletes[0])].as_py(),
            "a delete would be indistinguishable from a row in this file · "
            f"set {remedy}, or drop deletes with the function opfilter",
        )


def file_name_part(name: str) -> str:
    """Return a writer, plan or stream name for a file name: ``lake~crm`` for ``lake/crm``."""
    return name.replace("/", "~")


def _prefix(writer: str, stream: str) -> str:
    return f"{file_name_part(writer)}-{file_name_part(stream)}-"


def _directory_name(namespace: str) -> str:
    """Return a namespace as the name of one visible directory, escaped as in URLs."""
    safe = re.sub(r"[^\w.~ -]|^[._]", _percent, namespace)
    return safe or "%"


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found.group().encode("utf-8", "surrogatepass"))
