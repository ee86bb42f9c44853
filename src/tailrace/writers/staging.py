"""Files that are written aside and then moved into place: what `file` and `parquet` share.

    PATH/LAYOUT/WRITER-STREAM-START-END.parquet                       rows that readers see
    PATH/LAYOUT/WRITER-STREAM-START-END.2-of-3.parquet                a run in several files
    PATH/_tailrace/staged/WRITER/PLAN/STREAM-START-EPOCH.NUMBER-1.parquet     being written
    PATH/_tailrace/rewound/WRITER/LAYOUT/…                            taken back by an operator

Names with a leading underscore are no data to Spark, Hive, DuckDB and Arrow. A session writes under
a name that has its attempt in it, so no two attempts share a file. A *run* is a range of offsets
without a gap, all of which were taken; its files have their final names from it. To move a file is
to publish it. It happens once: a staged file that is gone, while the final one is there, was moved.

So the names say which offsets are published, without a record beside the files. A name that is not
there says nothing: people move and merge files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from tailrace.errors import Error, InvalidValue
from tailrace.hub import Hub
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Attempt, Staged, Writer, WriterSession
from tailrace.writers.place import Place
from tailrace.writers.runs import Format, StagedSession

E = TypeVar("E", bound=StrEnum)

STAGED: Final = "_tailrace/staged"
REWOUND: Final = "_tailrace/rewound"

_LAYOUT: Final = "{namespace}"
_RANGE: Final = r"(\d+)-(\d+)(?:\.(\d+)-of-(\d+))?\.[a-z.]+"


class _Move(msgspec.Struct, frozen=True):
    """A staged file and the name it gets: the form of `Staged.data`, under ``files``."""

    source: str
    target: str


WHOLE_FILES: Final = re.compile(r"(\d+) or (\d+): only whole files are taken back")
"""What is said of an offset in the middle of a file: where it begins and where the next one."""


class _Published(NamedTuple):
    """A published file, the run it belongs to, and which of how many files of the run it is."""

    name: str
    offsets: Offsets
    number: int
    total: int


def directory_meta(example: str) -> Meta:
    """What the option `path` is, with an example that no other writer has."""
    return Meta(
        description="The directory to write to, or the URL of one in an object store.",
        examples=[example, "s3://bucket/orders"],
        extra={"path": True},
    )


class StagedWriter(Writer, frozen=True):
    """A writer of files in directories, exactly once by staging.

    A rewind takes back whole files; an offset in the middle of one is refused.
    """

    path: Annotated[str, directory_meta("out/")]
    layout: Annotated[
        str,
        Meta(
            description="The directory below it for the files of a namespace. Empty: all in one.",
            examples=["{namespace}", "namespace={namespace}"],
        ),
    ] = _LAYOUT

    splits_streams: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a layout that would hide files or lead elsewhere."""
        parts = self.layout.split("/") if self.layout else []
        if any(
            not part or part[0] in "._" or re.search(r"[{}]", part.replace(_LAYOUT, ""))
            for part in parts
        ):
            raise InvalidValue(
                "layout", self.layout, "names divided by /, none with a leading . or _; {namespace}"
            )

    @property
    def format(self) -> Format:
        """How rows become the bytes of a file."""
        raise NotImplementedError

    def check(self) -> str:
        """Look whether files can be written there."""
        return Place(self.path).check()

    def open(self, attempt: Attempt) -> WriterSession:
        """Begin an attempt: its files are its own, so no other need be shut out."""
        directory = f"{STAGED}/{escaped(attempt.writer)}/{escaped(attempt.plan)}"
        staged = f"{directory}/{escaped(attempt.stream)}"
        number = f"{attempt.epoch}.{attempt.number}"
        final = _prefix(attempt.writer, attempt.stream)
        return StagedSession(
            Place(self.path),
            self.format,
            stage_as=lambda start, index: f"{staged}-{start}-{number}-{index}",
            publish_as=lambda offsets, namespace: self._final(final, offsets, namespace),
        )

    def _final(self, prefix: str, offsets: Offsets, namespace: str) -> str:
        directory = self.layout.replace(_LAYOUT, _directory_name(namespace))
        name = f"{prefix}{offsets.start:012d}-{offsets.end:012d}"
        return f"{directory}/{name}" if directory else name

    def applied(self, writer: str, stream: str, hub: Hub) -> Sequence[Offsets]:
        """The runs all of whose files are there. What is missing was never written, or was moved
        away by somebody: that is for the ledger to say."""
        runs: dict[tuple[Offsets, int], set[int]] = {}
        for file in self._published(Place(self.path), writer, stream):
            runs.setdefault((file.offsets, file.total), set()).add(file.number)
        return sorted(offsets for (offsets, total), found in runs.items() if len(found) == total)

    def applied_logs(self, writer: str, hub: Hub | None) -> frozenset[str]:
        """The logs that published files are of."""
        pattern = re.compile(rf"{re.escape(escaped(writer))}-(\w+)~\d+\.\d+-{_RANGE}")
        found = (pattern.fullmatch(name) for _, name in _visible(Place(self.path)))
        return frozenset(match[1] for match in found if match is not None)

    def begin(self, writer: str, open_plan: str | None) -> None:
        """Remove what other plans than the open one have staged."""
        place = Place(self.path)
        directory = f"{STAGED}/{escaped(writer)}"
        kept = None if open_plan is None else f"{directory}/{escaped(open_plan)}"
        for plan in place.directories(directory):
            if plan != kept:
                place.remove_directory(plan)

    def publish(self, writer: str, staged: Sequence[Staged]) -> None:
        """Move staged files to their final names, and remove what else their plans have staged."""
        place = Place(self.path)
        moves = [move for each in staged for move in msgspec.convert(each.data["files"], _MOVES)]
        _move_all(place, moves)
        for plan in {os.path.dirname(move.source) for move in moves}:
            place.remove_directory(plan)

    def forget(self, writer: str, stream: str, start: int, hub: Hub) -> None:
        """Take back the files from `start` on, to below ``_tailrace/rewound``.

        `InvalidValue` for an offset in the middle of a file, and nothing is taken back then.
        """
        place = Place(self.path)
        files = [f for f in self._published(place, writer, stream) if f.offsets.end > start]
        for file in files:
            first, after = file.offsets
            if first < start:
                raise InvalidValue(
                    "offset", start, f"{first} or {after}: only whole files are taken back"
                )
        aside = f"{REWOUND}/{escaped(writer)}"
        _move_all(place, [_Move(file.name, f"{aside}/{file.name}") for file in files])

    def _published(self, place: Place, writer: str, stream: str) -> Iterable[_Published]:
        pattern = re.compile(re.escape(_prefix(writer, stream)) + _RANGE)
        for path, name in _visible(place):
            found = pattern.fullmatch(name)
            if found is not None:
                start, end, number, total = (int(text or 1) for text in found.groups())
                yield _Published(path, Offsets(start, end), number, total)


_MOVES: Any = list[_Move]


def _visible(place: Place) -> Iterator[tuple[str, str]]:
    """The files that readers take for data: the path of each, and its name alone."""
    for path in place.files():
        if not path.startswith("_"):
            yield path, path.rpartition("/")[2]


def _move_all(place: Place, moves: Sequence[_Move]) -> None:
    """Move files where that was not done before, and have it on the disk."""
    there = place.exists([move.source for move in moves])
    done = place.exists([move.target for move in moves])
    directories = {os.path.dirname(move.target) for move in moves}
    for directory in directories:
        place.make_directory(directory)
    for move, is_there, is_done in zip(moves, there, done, strict=True):
        if is_there:
            place.move(move.source, move.target)
        elif not is_done:
            raise Error(
                f"{move.source} in {place.path} is gone, and {move.target} is not there",
                "put the file back if you moved it, or rewind the writer to write it again",
            )
    place.sync(directories)


def chosen(what: str, value: str, kind: type[E]) -> E:
    """One of an enum's values, given as text in Python; `InvalidValue` lists them."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidValue(what, value, ", ".join(kind)) from None


def escaped(name: str) -> str:
    """A name of ours, in which only ``/`` is not fit for a file: ``lake/crm`` as ``lake~crm``."""
    return name.replace("/", "~")


def _prefix(writer: str, stream: str) -> str:
    return f"{escaped(writer)}-{escaped(stream)}-"


def _directory_name(namespace: str) -> str:
    """A namespace as one visible directory; what is not fit for one is escaped as in URLs."""
    safe = re.sub(r"[^\w.~ -]|^[._]", _percent, namespace)
    return safe or "%"


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found.group().encode("utf-8", "surrogatepass"))
