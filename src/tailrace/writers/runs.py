"""A session that writes files aside, run by run of offsets that were all taken."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.rows import RowError, Rows
from tailrace.pipeline.writer import Failure, Staged
from tailrace.writers.place import Place
from tailrace.writers.refusals import between, refused, within

RUN_ROWS_MAX: Final = 1 << 20
"""A run that has so many rows is ended, so that a file, and what it needs in memory, is bounded."""


class Content(Protocol):
    """A file being written."""

    def add(self, encoded: Any) -> None:
        """Take what `Format.encode` gave."""

    def end(self) -> None:
        """Write what is left to the stream, which the caller closes."""


class Format(Protocol):
    """How rows become the bytes of a file."""

    @property
    def suffix(self) -> str:
        """How its file names end."""

    def encode(self, rows: Rows) -> Any:
        """Rows of one namespace in a form for `Content.add`, or `RowError`."""

    def create(self, stream: pa.NativeFile) -> Content:
        """Begin a file."""


@dataclass(slots=True)
class _File:
    """A staged file of a run."""

    name: str
    stream: pa.NativeFile
    content: Content


@dataclass(slots=True)
class _Run:
    """Offsets without a gap, all taken, and one file for each namespace among them."""

    start: int
    end: int
    rows: int = 0
    files: dict[str, _File] = field(default_factory=dict)


class StagedSession:
    """Writes each run of offsets to files of its own.

    `stage_as` names the file of that number in a run from an offset on, `publish_as` that of a
    namespace in a run; both without a suffix.
    """

    def __init__(
        self,
        place: Place,
        format: Format,
        *,
        stage_as: Callable[[int, int], str],
        publish_as: Callable[[Offsets, str], str],
    ) -> None:
        self._place = place
        self._format = format
        self._stage_as = stage_as
        self._publish_as = publish_as
        self._run: _Run | None = None
        self._staged: list[Staged] = []
        self._failed: Exception | None = None

    def applied(self) -> Sequence[Offsets]:
        """What is published is known to the driver; what is staged by others does not count."""
        return ()

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[Failure]:
        """Take the rows, but not those that the format cannot hold."""
        try:
            encoded = self._encoded(rows)
        except RowError:
            failures = refused(rows, self._encoded)
            for piece in between(offsets, failures):
                self._take(self._encoded(within(rows, piece)), piece)
            return failures
        self._take(encoded, offsets)
        return ()

    def finish(self) -> Sequence[Staged]:
        """Close and sync the files; what is staged, run by run."""
        if self._failed is not None:
            raise self._failed
        self._end_run()
        return self._staged

    def close(self) -> None:
        """Leave nothing open, and nothing of a run that did not end."""
        run, self._run = self._run, None
        for file in run.files.values() if run else ():
            with contextlib.suppress(OSError):
                file.stream.close()
            with contextlib.suppress(OSError):
                self._place.remove(file.name)

    def _encoded(self, rows: Rows) -> list[tuple[str, int, Any]]:
        return [
            (namespace, len(part), self._format.encode(part))
            for namespace, part in _by_namespace(rows)
        ]

    def _take(self, encoded: list[tuple[str, int, Any]], offsets: Offsets) -> None:
        try:
            run = self._run_at(offsets.start)
            for namespace, count, part in encoded:
                if namespace not in run.files:
                    run.files[namespace] = self._file(run)
                run.files[namespace].content.add(part)
                run.rows += count
            run.end = offsets.end
        except Exception as error:
            # Part of it may be in the files, so they are worth nothing any more.
            self._failed = error
            raise

    def _run_at(self, offset: int) -> _Run:
        run = self._run
        if run is None or run.end != offset or run.rows >= RUN_ROWS_MAX:
            self._end_run()
            run = self._run = _Run(offset, offset)
        return run

    def _file(self, run: _Run) -> _File:
        name = self._stage_as(run.start, len(run.files) + 1) + self._format.suffix
        stream = self._place.create(name)
        return _File(name, stream, self._format.create(stream))

    def _end_run(self) -> None:
        run = self._run
        if run is not None and run.files:
            for file in run.files.values():
                file.content.end()
                file.stream.close()
            names = [file.name for file in run.files.values()]
            self._place.sync([*names, *{name.rpartition("/")[0] for name in names}])
            offsets = Offsets(run.start, run.end)
            self._staged.append(Staged(offsets, run.rows, {"files": list(self._moves(run))}))
        self._run = None

    def _moves(self, run: _Run) -> Iterator[dict[str, str]]:
        count = len(run.files)
        for number, (namespace, file) in enumerate(run.files.items(), 1):
            target = self._publish_as(Offsets(run.start, run.end), namespace)
            part = f".{number}-of-{count}" if count > 1 else ""
            yield {"source": file.name, "target": target + part + self._format.suffix}


def _by_namespace(rows: Rows) -> Iterator[tuple[str, Rows]]:
    if not len(rows):
        return
    keys = rows.records["key"].fill_null(b"").dictionary_encode()
    distinct: list[Any] = keys.dictionary.to_pylist()
    names = [key.decode("utf-8", "backslashreplace") for key in distinct]
    if len(names) == 1:
        yield names[0], rows
        return
    numbers = keys.indices.to_numpy()
    for number, name in enumerate(names):
        yield name, rows.take(np.flatnonzero(numbers == number).tolist())
