"""The state that the splits of one opened `file` reader share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tailrace.clock import Clock, SystemClock
from tailrace.duration import parse_duration
from tailrace.message import Mode, Op
from tailrace.readers.file.birth_time import birth_time_ns
from tailrace.readers.file.file_name import compression_of, format_of, namespace_of
from tailrace.readers.file.file_position import FINGERPRINT_BYTES, FilePosition, Fingerprint
from tailrace.readers.file.files import (
    FileInfo,
    GzipFile,
    Listing,
    OpenFile,
    find_in_directory,
    list_files,
)
from tailrace.readers.file.formats.columns import change_records, concatenate
from tailrace.readers.file.formats.csv import CsvFormat
from tailrace.readers.file.formats.format import FileChunk, FileEnd, FileFormat
from tailrace.readers.file.formats.json_lines import JsonLinesFormat
from tailrace.readers.file.formats.parquet import ParquetFormat
from tailrace.readers.file.held_files import HeldFiles
from tailrace.readers.file.registry import FileRegistry, FileStart
from tailrace.readers.file.rotation import FollowedFile
from tailrace.readers.file.snapshot import FileSnapshot
from tailrace.source.reader import BadRecord, Batch, Split, Until

if TYPE_CHECKING:
    from tailrace.readers.file.reader import FileReader


class FileSessionState:
    """The files of a reader, as its splits see them. For one thread.

    `snapshot` is None until the watch split has polled once. `followed` has the file that each
    split copies or follows, by split id. `rewritten` are the identities of the files whose rewrite
    was detected since the last poll of the watch split.
    """

    def __init__(self, options: FileReader, until: Until, clock: Clock | None = None) -> None:
        self.options = options
        self.until = until
        self.snapshot: FileSnapshot | None = None
        self.followed: dict[str, FollowedFile] = {}
        self.rewritten: set[tuple[int, int]] = set()
        self.held_files = HeldFiles()
        self._clock = clock or SystemClock()
        self._poll_s = parse_duration(options.poll, "poll").total_seconds()
        self._line_formats: dict[str, FileFormat] = {}
        self._polled = self._clock.monotonic()
        self._listing = list_files(options.path)

    def poll(self) -> Listing:
        """Return the files that the glob matches, listed at most one poll interval ago.

        A run until now keeps the listing of its start.
        """
        if self.until is Until.STOPPED:
            self._list_if_due()
        return self._listing

    def reset(self) -> None:
        """Forget what earlier readings of the splits have shared.

        Another task may have read these splits since then, and the files may have changed.
        """
        self.snapshot = None
        self.followed.clear()
        self.rewritten.clear()
        self.held_files.release_reserved()
        self._list_if_due()

    def _list_if_due(self) -> None:
        if self._clock.monotonic() - self._polled >= self._poll_s:
            self._polled = self._clock.monotonic()
            self._listing = list_files(self.options.path)

    def publish(self, listing: Listing, registry: FileRegistry) -> None:
        """Let all splits act on a listing whose registry is stored."""
        number = 1 if self.snapshot is None else self.snapshot.number + 1
        self.snapshot = FileSnapshot(number, listing, registry)

    @property
    def file_end(self) -> FileEnd:
        """What follows the last byte of a file that still has its name."""
        return FileEnd.BOUNDED if self.until is Until.NOW else FileEnd.GROWING

    @property
    def now_ms(self) -> int:
        """The timestamp of rows that are read now."""
        return self._clock.now_ms()

    def namespace_of(self, path: str) -> str:
        """Return the namespace of a file's rows."""
        return self.options.namespace or namespace_of(path)

    def compression_of(self, path: str) -> str:
        """Return the compression of a file."""
        return self.options.compression or compression_of(path)

    def format_name(self, path: str) -> str:
        """Return the name of a file's format, from the option or the file's name.

        Raises `InvalidValue` if neither determines the format.
        """
        return self.options.format or format_of(path)

    def format_of(self, path: str) -> FileFormat:
        """Return the format of a file. Raises `InvalidValue` as `format_name` does."""
        name = self.format_name(path)
        if name == "parquet":
            return ParquetFormat(self.options.identity)
        if name not in self._line_formats:
            self._line_formats[name] = self._line_format(name)
        return self._line_formats[name]

    def _line_format(self, name: str) -> FileFormat:
        options = self.options
        if name == "jsonl":
            return JsonLinesFormat(options.identity, options.encoding, options.line_bytes_max)
        return CsvFormat(
            delimiter=options.delimiter,
            types=options.types,
            identity=options.identity,
            encoding=options.encoding,
            line_bytes_max=options.line_bytes_max,
        )

    def open(self, path: str) -> OpenFile | None:
        """Open a file; return None if it does not exist."""
        try:
            return GzipFile(path) if self.compression_of(path) == "gzip" else OpenFile(path)
        except FileNotFoundError:
            return None

    def open_known(self, position: FilePosition) -> OpenFile | None:
        """Open the file of a position under its old or its present name; None if it has none."""
        now = self.poll().find(position.device, position.inode)
        for path in (position.path, None if now is None else now.path):
            opened = None if path is None else self._open_same(path, position.identity)
            if opened is not None:
                return opened
        return None

    def open_beside(self, position: FilePosition) -> OpenFile | None:
        """Open the file of a position under any name in its directory.

        It may be another file that was created with the inode of the deleted one.
        """
        beside = find_in_directory(position.path, position.inode)
        return None if beside is None else self._open_same(beside, position.identity)

    def _open_same(self, path: str, identity: tuple[int, int]) -> OpenFile | None:
        """Open a file; return None if it does not exist, or is another one."""
        opened = self.open(path)
        if opened is None or opened.identity == identity:
            return opened
        opened.close()
        return None

    def reserve(self, file: FileInfo) -> None:
        """Hold a listed file open until its split reads it."""
        opened = self._open_same(file.path, file.identity)
        if opened is not None:
            self.held_files.reserve(opened)

    def read_start(self, file: FileInfo, length: int) -> FileStart | None:
        """Return the start of a file; see `ReadStart`."""
        try:
            descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) != file.identity:
                return None
            head = Fingerprint.of(os.pread(descriptor, length or FINGERPRINT_BYTES, 0))
            return FileStart(head, birth_time_ns(descriptor))
        finally:
            os.close(descriptor)

    def is_removed(self, position: FilePosition, split: str, listing: Listing) -> bool:
        """True if a file was removed, or is shorter than the part that was read."""
        present = listing.find(position.device, position.inode)
        if present is None:
            return True
        snapshot = self.snapshot
        if snapshot is not None and not snapshot.is_known(present, split, position.generation):
            return True
        plain = self.compression_of(position.path) == "none" and self.format_of(position.path).grows
        return plain and present.size < position.offset

    def has_unlinked_files(self, split: str, generation: int, listing: Listing) -> bool:
        """True if later files of a split are reserved, although they have lost their names."""
        later = () if self.snapshot is None else self.snapshot.later_files(split, generation)
        reserved = self.held_files.reserved
        return any(
            reserved(*identity) is not None and listing.find(*identity) is None
            for _, identity in later
        )

    def batch(
        self,
        namespace: str,
        chunks: Sequence[FileChunk],
        mode: Mode,
        position: msgspec.Struct,
        children: tuple[Split, ...] = (),
    ) -> Batch:
        """Return chunks of files as one batch."""
        values = concatenate([chunk.values for chunk in chunks])
        records = None
        if len(values):
            records = change_records(namespace, values, mode, Op.INSERT, self.now_ms)
        bad = [
            BadRecord(namespace, f"{chunk.position.path}:{line.where}", line.error, line.value)
            for chunk in chunks
            for line in chunk.bad
        ]
        identities: list[bytes] | None = None
        if self.options.identity:
            identities = [each for chunk in chunks for each in chunk.identities or ()]
        return Batch(records, msgspec.to_builtins(position), bad, identities, children)

    def close(self) -> None:
        """Close all files."""
        self.held_files.close()
