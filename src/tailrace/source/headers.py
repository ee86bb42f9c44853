"""The headers that sources and pipelines put on records."""

from __future__ import annotations

from typing import Final

IDENTITY: Final = "identity"
"""Of a row: its identity before the change, as a JSON object."""

FOR: Final = "tailrace.for"
"""Of a record in a commit log that is meant for one writer alone: the writer's full name."""

READER: Final = "tailrace.reader"
WRITER: Final = "tailrace.writer"
"""Of a dead letter: who could not read it, or could not write it."""

ERROR: Final = "tailrace.error"
WHERE: Final = "tailrace.where"
POSITION: Final = "tailrace.position"
TIMESTAMP: Final = "tailrace.timestamp"
"""Of a dead letter: the reason; where in the source it was; which record of the commit log it was,
and its time there in milliseconds."""

CUT: Final = "tailrace.cut"
"""How many bytes a value had that was too long to be kept whole."""

OF_DEAD_LETTERS: Final = frozenset((READER, WRITER, ERROR, WHERE, POSITION, TIMESTAMP, CUT))

ERROR_CHARACTERS_MAX: Final = 1000


def error_text(error: str) -> bytes:
    """A reason as a header holds it."""
    return error[:ERROR_CHARACTERS_MAX].encode("utf-8", "backslashreplace")
