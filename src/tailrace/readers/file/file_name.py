"""Derive the format, the compression and the namespace of a file from its name."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from tailrace.errors import InvalidValue

_FORMATS: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
_COMPRESSIONS: Final = {".gz": "gzip"}


def format_of(path: str) -> str:
    """Return the format that a file's suffix stands for; raise `InvalidValue` if unknown."""
    suffix = PurePath(_uncompressed(path)).suffix.lower()
    if suffix not in _FORMATS:
        raise InvalidValue(
            f"the format of {path!r}",
            suffix,
            f"a name that ends in {', '.join(_FORMATS)}, each also with .gz",
            "rename the file, or set format = jsonl, csv or parquet",
        )
    return _FORMATS[suffix]


def compression_of(path: str) -> str:
    """Return the compression that a file's suffix stands for, or ``none``."""
    return _COMPRESSIONS.get(PurePath(path).suffix.lower(), "none")


def namespace_of(path: str) -> str:
    """Return a file's name without the suffixes for format and compression."""
    return PurePath(_uncompressed(path)).stem


def _uncompressed(path: str) -> str:
    return path[: -len(PurePath(path).suffix)] if compression_of(path) != "none" else path
