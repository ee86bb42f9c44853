"""A reader of mailboxes, and a writer that writes each document to a file."""

from __future__ import annotations

import mailbox
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta

from tailrace import ConfigError, Mode, Op
from tailrace.readers import (
    Batch,
    Closeable,
    Preview,
    Reader,
    Record,
    Split,
    Until,
    from_records,
)
from tailrace.writers import Attempt, Offsets, RefusedRecord, Rows, Staged, Writer

BATCH_MAILS = 1000


class MboxReader(Reader, frozen=True):
    """Reads the mails of a mailbox file, and follows it as it grows."""

    path: Annotated[
        str, Meta(description="The file.", examples=["inbox.mbox"], extra={"path": True})
    ]
    namespace: Annotated[str, Meta(description="The namespace of its mails.")] = "mails"

    def check(self) -> Preview:
        if not os.path.exists(self.path):
            raise ConfigError(f"there is no mailbox {self.path}")
        mails = mailbox.mbox(self.path, create=False)
        first = [(self.namespace, _document(mail)) for mail in islice(mails, 5)]
        return Preview(f"{len(mails)} mails in {self.path}", first)

    def open(self, until: Until) -> MboxSession:
        return MboxSession(self, until)


class MboxSession(Closeable):
    """Reads a mailbox as one split. Its position is the number of mails read."""

    def __init__(self, options: MboxReader, until: Until) -> None:
        self._options = options
        self._until = until

    def splits(self) -> list[Split]:
        return [Split("mbox")]

    def read(
        self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
    ) -> Iterator[Batch | None]:
        done: int = position or 0
        while True:
            mails = mailbox.mbox(self._options.path, create=False)
            fresh = list(islice(mails, done, done + BATCH_MAILS))
            if fresh:
                done += len(fresh)
                yield Batch(from_records([self._record(mail) for mail in fresh]), position=done)
            elif self._until is Until.NOW:
                return
            else:
                yield None

    def _record(self, mail: mailbox.mboxMessage) -> Record:
        key, value = self._options.namespace.encode(), msgspec.json.encode(_document(mail))
        return Record(0, 0, Mode.SYNC, Op.INSERT, key, None, value)


def _document(mail: mailbox.mboxMessage) -> dict[str, Any]:
    return {"id": mail["Message-ID"], "from": mail["From"], "subject": mail["Subject"]}


class FolderWriter(Writer, frozen=True):
    """Writes each document to a file, DIRECTORY/NAMESPACE/ID.json. A delete removes the file.

    Writing a document twice gives the same file, so at-least-once delivery is enough.
    """

    directory: Annotated[
        str, Meta(description="Where the files go.", examples=["out"], extra={"path": True})
    ]
    id: Annotated[str, Meta(description="The field that names a document.")] = "id"

    def check(self) -> str:
        if not os.access(Path(self.directory).absolute().parent, os.W_OK):
            raise ConfigError(f"{self.directory} cannot be written to")
        return f"files go to {self.directory}"

    def open(self, attempt: Attempt) -> FolderSession:
        return FolderSession(self)


def path_part(text: str) -> str:
    """Escape a name for use as one part of a path, so that it cannot leave the directory."""
    return quote(text, safe=" ").replace("..", "%2E%2E")


class FolderSession:
    """Writes files. They are on disk when `write` returns, so `finish` does nothing."""

    def __init__(self, options: FolderWriter) -> None:
        self._options = options

    def applied(self) -> Sequence[Offsets]:
        return ()

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[RefusedRecord]:
        refused = []
        rows_of = zip(rows.offsets, rows.namespaces, rows.ops, rows.documents, strict=True)
        for offset, namespace, op, document in rows_of:
            name = document.get(self._options.id)
            if not name:
                refused.append(RefusedRecord(offset, f"it has no {self._options.id}"))
                continue
            file = Path(self._options.directory, path_part(namespace), path_part(f"{name}.json"))
            if op is Op.DELETE:
                file.unlink(missing_ok=True)
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as opened:
                opened.write(msgspec.json.encode(document))
                opened.flush()
                os.fsync(opened.fileno())
        return refused

    def finish(self) -> Sequence[Staged]:
        return ()

    def close(self) -> None:
        return None
